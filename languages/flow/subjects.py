"""The NATS subjects that a flow asks on, as far as its arguments spell them out.

A subject that an expression makes is not known before the call; the worker checks that one when it asks.
"""

from collections.abc import Iterator

from callboard.bus.outgoing_subjects import Addressed
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.flow.contracts.nats import NATS
from callboard.languages.flow.contracts.tool import TOOL
from callboard.languages.flow.document import Call, CallStep, Entry, Flow, GatherStep
from callboard.languages.flow.template import extract_literals
from callboard.lib.json_types import JSON


def subjects(flow: Flow) -> Iterator[Addressed]:
    """Yield the subjects of all calls that a flow, or one that it calls, may make."""
    flows = [flow]
    seen: set[int] = set()
    while flows:
        one = flows.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for where, call in _calls(one):
            if call.flow is not None:
                flows.append(call.flow)
            yield from _find_addressed(call, where)


def _calls(flow: Flow) -> Iterator[tuple[str, Call]]:
    """Yield the calls of a flow, those inside of its middleware too, each with its place."""
    yield from _inside(flow.middleware, "middleware")
    for name, step in flow.steps.items():
        where = f"steps.{name}"
        if isinstance(step, CallStep):
            yield where, step.call
            yield from _inside(step.middleware, f"{where}.middleware")
        elif isinstance(step, GatherStep):
            yield from ((where, call) for call in step.calls)


def _inside(stack: tuple[Entry, ...], where: str) -> Iterator[tuple[str, Call]]:
    entries = list(stack)
    while entries:
        entry = entries.pop()
        entries += entry.stack
        if entry.call is not None:
            yield where, entry.call


def _find_addressed(call: Call, where: str) -> Iterator[Addressed]:
    arguments = extract_literals(call.arguments) if call.arguments is not None else None
    if not isinstance(arguments, dict):
        return
    if call.provider == NATS.contract.uri:
        yield from _subject(arguments, where)
    elif call.provider == TOOL.contract.uri:
        yield from _of_sources([arguments.get("source")], where)
    elif call.provider == MODEL.contract.uri:
        tools = arguments.get("tools")
        yield from _of_sources(tools if isinstance(tools, list) else [], where)


def _of_sources(sources: list[JSON], where: str) -> Iterator[Addressed]:
    for source in sources:
        if isinstance(source, dict) and source.get("type") == "nats":
            yield from _subject(source, where)


def _subject(arguments: dict[str, JSON], where: str) -> Iterator[Addressed]:
    if isinstance(subject := arguments.get("subject"), str):
        yield Addressed(subject, where)
