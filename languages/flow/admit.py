"""The check of a start against a flow, and the needs of a flow: what a run requires of its worker, as far as the
definition spells it out.

Arguments that do not fit the root's parameters are not refused. The specification (*The Flow object*, Validation)
requires such an execution to run: the validation failure becomes the Result of its root frame.

The needs are environment variables, by name so that no value is recorded, providers, NATS subjects, and the parameters
of model turns. If an expression makes a tool source or a subject, it is not known before the call: the source gets its
variables all the same, and the worker checks the subject when it sends the request.
"""

import re
from collections.abc import Iterator

from callboard.bus.commands import StartRun
from callboard.bus.events import Environment, Problem
from callboard.bus.model_names import given_parameters
from callboard.bus.outgoing_subjects import Addressed
from callboard.languages.flow.children import find_missing_children
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.flow.contracts.nats import NATS
from callboard.languages.flow.contracts.tool import TOOL
from callboard.languages.flow.document import CallObject, CallStep, Flow, GatherStep, MiddlewareEntry
from callboard.languages.flow.interpret import ROOT
from callboard.languages.flow.outline import outline
from callboard.languages.flow.shipped_providers import CONTRACTS, NEED_A_MODEL
from callboard.languages.flow.template import extract_literals
from callboard.languages.plan import Definition, Needs, Plan, TurnParameters
from callboard.languages.problems import Location, format_location
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON


def admit(definition: Definition[Flow], start: StartRun) -> Plan[Flow] | list[Problem]:
    """Make a plan of a definition and a start, or return everything that is wrong with the start."""
    document: JSON = decode_json(definition.canonical)
    problems = [*_unknown_members(start), *find_missing_children(document, start)]
    drawn = outline(definition.document, ROOT)
    known = {node.id for node in drawn.nodes} | {node.name for node in drawn.nodes}
    problems += [
        Problem("UNKNOWN_BREAKPOINT", f"there is no step {name!r}", f"breakpoints[{index}]", expected="a step's name")
        for index, name in enumerate(start.breakpoints)
        if name not in known
    ]
    if problems:
        return problems
    return Plan(
        definition=definition,
        input=start.input,
        arguments=start.arguments,
        options={},
        outline=drawn,
        needs=needs_of(definition.document, document),
        warnings=definition.warnings,
        shortfalls=_shortfalls,
    )


def _shortfalls(environment: Environment) -> list[Problem]:
    """Warn of variables that tools use and the worker does not have: opening such a tool fails."""
    names = environment.lacking.get(BORROWED, [])
    if not names:
        return []
    unset = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set where the worker runs"
    return [Problem("VARIABLE_UNSET", f"tools that borrow it will fail: {unset}; set it there", severity="warning")]


def _unknown_members(start: StartRun) -> list[Problem]:
    """Return the problems of options and a state document, which other languages accept and flows do not."""
    problems: list[Problem] = []
    if start.options:
        message = f"a flow takes no options, but there is {', '.join(sorted(start.options))}"
        problems.append(
            Problem("SCHEMA", message, "options", expected="arguments, which the root's parameters declare")
        )
    if start.state is not None:
        problems.append(Problem("SCHEMA", "a flow takes no state document", "state", expected="none; a fork goes on"))
    return problems


BORROWED = "tools"
"""The key in `Needs.borrowed` of the variables that tool sources use."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def needs_of(flow: Flow, document: JSON) -> Needs:
    """Return the needs of a flow; ``document`` is its definition as a JSON value.

    ``environment`` and ``borrowed`` both list the worker's variables that tool sources mention.
    """
    reached = find_providers(flow)
    borrowed = sorted(set(find_variables(document)))
    return Needs(
        model=bool(reached & NEED_A_MODEL),
        borrowed={BORROWED: borrowed} if borrowed else {},
        environment=borrowed,
        providers=sorted(reached - set(CONTRACTS)),
        subjects=list(find_subjects(flow)),
        parameters=list(_find_turn_parameters(document)),
    )


def find_variables(document: JSON) -> Iterator[str]:
    """Yield the names of the variables that tool sources mention, anywhere in a document."""
    match document:
        case {"type": "python", "config": dict(config)}:
            yield from _find_references(config)
        case {"type": "mcp", **rest}:
            env = rest.get("env")
            yield from (name for name in (env.values() if isinstance(env, dict) else ()) if isinstance(name, str))
            yield from _find_references(rest.get("headers"))
        case dict():
            for value in document.values():
                yield from find_variables(value)
        case list():
            for item in document:
                yield from find_variables(item)
        case _:
            pass


def _find_references(texts: JSON) -> Iterator[str]:
    for text in texts.values() if isinstance(texts, dict) else ():
        if isinstance(text, str):
            yield from _REFERENCE.findall(text)


def _find_turn_parameters(document: JSON, location: Location = ()) -> Iterator[TurnParameters]:
    """Yield the parameters that calls of a model set for its turns, where the definition spells out the model."""
    match document:
        case {"provider": str(uri), "with": {**given}} if uri in NEED_A_MODEL:
            model = given.get("model", "")
            if (names := list(given_parameters(given))) and isinstance(model, str) and "{{" not in model:
                yield TurnParameters(format_location((*location, "with")), names, model)
        case _:
            pass
    if isinstance(document, dict | list):
        for name, inner in document.items() if isinstance(document, dict) else enumerate(document):
            yield from _find_turn_parameters(inner, (*location, name))


# -- providers --------------------------------------------------------------------------------------------------------


def find_providers(flow: Flow) -> set[str]:
    """Return the URIs of all call providers and middlewares that a flow, or a flow that it calls, may use."""
    found: set[str] = set()
    flows = [flow]
    seen: set[int] = set()
    while flows:
        one = flows.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        entries, calls = list(one.middleware), list[CallObject]()
        for step in one.steps.values():
            if isinstance(step, CallStep):
                entries += step.middleware
                calls.append(step.call)
            elif isinstance(step, GatherStep):
                calls += step.calls
        _add_entries(entries, calls, found)
        flows += [call.flow for call in calls if call.flow is not None]
        found |= {call.provider for call in calls if call.provider is not None}
    return found


def _add_entries(entries: list[MiddlewareEntry], calls: list[CallObject], found: set[str]) -> None:
    """Add the providers of a stack to ``found``, and the calls inside its entries to ``calls``, with their stacks."""
    while entries:
        entry = entries.pop()
        found.add(entry.provider)
        entries += entry.stack
        if entry.call is not None:
            calls.append(entry.call)


# -- subjects ---------------------------------------------------------------------------------------------------------


def find_subjects(flow: Flow) -> Iterator[Addressed]:
    """Yield the NATS subjects of all calls that a flow, or a flow that it calls, may make."""
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


def _calls(flow: Flow) -> Iterator[tuple[str, CallObject]]:
    """Yield the calls of a flow and of its middleware, each with its place."""
    yield from _calls_in_stack(flow.middleware, "middleware")
    for name, step in flow.steps.items():
        where = f"steps.{name}"
        if isinstance(step, CallStep):
            yield where, step.call
            yield from _calls_in_stack(step.middleware, f"{where}.middleware")
        elif isinstance(step, GatherStep):
            yield from ((where, call) for call in step.calls)


def _calls_in_stack(stack: tuple[MiddlewareEntry, ...], where: str) -> Iterator[tuple[str, CallObject]]:
    entries = list(stack)
    while entries:
        entry = entries.pop()
        entries += entry.stack
        if entry.call is not None:
            yield where, entry.call


def _find_addressed(call: CallObject, where: str) -> Iterator[Addressed]:
    arguments = extract_literals(call.arguments) if call.arguments is not None else None
    if not isinstance(arguments, dict):
        return
    if call.provider == NATS.contract.uri:
        yield from _subject(arguments, where)
    elif call.provider == TOOL.contract.uri:
        yield from _subjects_of_sources([arguments.get("source")], where)
    elif call.provider == MODEL.contract.uri:
        tools = arguments.get("tools")
        yield from _subjects_of_sources(tools if isinstance(tools, list) else [], where)


def _subjects_of_sources(sources: list[JSON], where: str) -> Iterator[Addressed]:
    for source in sources:
        if isinstance(source, dict) and source.get("type") == "nats":
            yield from _subject(source, where)


def _subject(arguments: dict[str, JSON], where: str) -> Iterator[Addressed]:
    if isinstance(subject := arguments.get("subject"), str):
        yield Addressed(subject, where)
