"""A flow's outline: its steps and the edges between them, with subflows below the steps that call them.

A node's ``type`` is the step's action, its ``subtype`` the call and its middleware: ``http in Timeout, Retry``. An
edge's ``when`` is a case's condition, ``default`` or ``catch …``; for an edge into a subflow it is ``calls`` or ``for
each``. The edges of a step are in the order of its fields, so ``case.1`` is the second edge of a Match.
"""

from collections.abc import Sequence

from callboard.bus.events import Outline, OutlineEdge, OutlineNode
from callboard.bus.paths import child, encode_id
from callboard.languages.flow.document import (
    CallObject,
    CallStep,
    Clause,
    Flow,
    GatherStep,
    Matcher,
    MatchStep,
    MiddlewareEntry,
    SleepStep,
    Step,
)
from callboard.languages.flow.frame import aspect
from callboard.languages.flow.template import Expression, LiteralTemplate

NODES_MAX = 2_000
"""The greatest number of steps in an outline. A named flow appears once for each call, so their number multiplies."""

LEVELS_MAX = 100
"""How many levels of subflows an outline shows."""

CONDITION_CHARS_MAX = 60
"""How many characters of a case's condition an edge shows."""

CALLS, EACH = "calls", "for each"


def outline(flow: Flow, root: str) -> Outline:
    """Return the outline of a flow; ``root`` is the path of its frame.

    A node's id is the path of its step. One subflow represents all dispatches of a Gather with ``over``.
    """
    drawing = Outline()
    _draw(flow, root, drawing, LEVELS_MAX)
    return drawing


def _draw(flow: Flow, path: str, drawing: Outline, levels: int) -> None:
    for step in flow.steps.values():
        if len(drawing.nodes) >= NODES_MAX:
            return
        at = child(path, encode_id(step.name))
        drawing.nodes.append(OutlineNode(at, step.name, step.action, _about(step)))
        drawing.edges.extend(OutlineEdge(at, child(path, encode_id(target)), when) for target, when in _ways(step))
        for inner, below in _subflows(step, at) if levels > 1 else ():
            way = EACH if below.endswith("[]") else CALLS
            drawing.edges.append(OutlineEdge(at, child(below, encode_id(inner.entrypoint)), way))
            _draw(inner, below, drawing, levels - 1)


def _about(step: Step) -> str:
    """Return the subtype of a step: its calls and middleware, or the duration of its sleep."""
    match step:
        case CallStep():
            return f"{_target(step.call)}{_within(step.middleware)}"
        case GatherStep():
            return ", ".join(dict.fromkeys(_target(call) for call in step.calls))
        case SleepStep():
            found = step.duration or step.until
            return str(found.value) if isinstance(found, LiteralTemplate) else ""
        case _:
            return ""


def _target(call: CallObject) -> str:
    if call.flow is not None:
        return call.flow.name or "flow"
    return _short(call.provider or "")


def _within(stack: Sequence[MiddlewareEntry]) -> str:
    return f" in {', '.join(_short(entry.provider) for entry in stack)}" if stack else ""


def _short(uri: str) -> str:
    """Return the name in a provider's URI, without namespace and version."""
    names = uri.split("/")[2:] or [uri]
    return "/".join(names[:-1] if len(names) > 1 else names)


def _ways(step: Step) -> list[tuple[str, str | None]]:
    match step:
        case MatchStep():
            cases = [(case.next, _condition(case, index)) for index, case in enumerate(step.cases)]
            return [*cases, (step.default.next, "default")]
        case CallStep() | GatherStep():
            caught = [(clause.next, f"catch {_describe_clause(clause.match)}") for clause in step.catch]
            return [(step.next, None), *caught]
        case _:
            following: str | None = getattr(step, "next", None)
            return [(following, None)] if following is not None else []


def _condition(case: Clause, index: int) -> str:
    if not isinstance(case.when, Expression):
        return f"case {index}"
    text = " ".join(case.when.source.split())
    return text if len(text) <= CONDITION_CHARS_MAX else f"{text[: CONDITION_CHARS_MAX - 1]}…"


def _describe_clause(match: Matcher) -> str:
    """Return a description of the failures that a clause handles."""
    told = [" | ".join(match.codes)] if match.codes else []
    if match.types:
        told.append(" | ".join(sorted(match.types)))
    if match.retryable is not None:
        told.append("retryable" if match.retryable else "not retryable")
    return ", ".join(told)


def _subflows(step: Step, at: str) -> list[tuple[Flow, str]]:
    match step:
        case CallStep(call=call) if call.flow is not None:
            return [(call.flow, aspect(at, "call"))]
        case GatherStep(calls=calls, over=None):
            return [(call.flow, f"{at}[{index}]") for index, call in enumerate(calls) if call.flow is not None]
        case GatherStep(calls=(call,)) if call.flow is not None:
            return [(call.flow, f"{at}[]")]
        case _:
            return []
