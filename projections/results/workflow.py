"""A run of a SWEny workflow in the specification's own shapes: ExecutionResult and the stream of ExecutionEvents.

They are defined in the sections *Trace*, *Execution result* and *Observer events* of the specification's execution
page. They have no times, models or tokens; `callboard.projections.trace.trace` has those.
"""

from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.events import Event, Payload
from callboard.bus.paths import last_id
from callboard.projections.drawing.edges import edge_index
from callboard.projections.projection import known_payload
from callboard.projections.results import View

END = "(end)"
"""The target of a route that does not follow an edge."""

ONLY_PATH = "only path"
"""The reason of an edge without a condition."""

_STATUS = {"ok": "success", "skipped": "skipped"}


class TraceStep(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One attempt of a visit. ``iteration`` counts visits from 1, ``retryAttempt`` attempts from 0, if any failed."""

    node: str
    status: str
    iteration: int
    retry_attempt: int | None = None


class TraceEdge(Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """An edge that was followed; ``reason`` is its condition."""

    source: str
    target: str
    reason: str


class WorkflowTrace(Struct, frozen=True):
    steps: list[TraceStep]
    edges: list[TraceEdge]
    sources: dict[str, dict[str, Any]]


class ExecutionResult(Struct, frozen=True):
    """The result of a run. ``results`` has the last NodeResult of each node."""

    results: dict[str, dict[str, Any]]
    trace: WorkflowTrace


class WorkflowExecution:
    """Folds one run of a workflow into its `ExecutionResult`, also while it is running."""

    def __init__(self) -> None:
        self._outline = ev.Outline()
        self._results: dict[str, dict[str, Any]] = {}
        self._steps: list[TraceStep] = []
        self._edges: list[TraceEdge] = []
        self._sources: dict[str, dict[str, Any]] = {}
        self._retries: dict[tuple[str, int], int] = {}

    def apply(self, event: Event) -> None:
        match known_payload(event):
            case ev.RunAccepted(outline=outline):
                self._outline = outline
            case ev.SourcesResolved(sources=sources):
                self._sources = sources
            case ev.NodeEnter():
                self._retries.pop((event.path, event.iteration), None)
            case ev.NodeRetry() as retry:
                self._retries[event.path, event.iteration] = retry.attempt
                step = TraceStep(retry.node or last_id(event.path), "failed", event.iteration, retry.attempt - 1)
                self._steps.append(step)
            case ev.NodeExit() as node_exit:
                node, result = last_id(event.path), node_result(node_exit)
                attempt = self._retries.pop((event.path, event.iteration), None)
                self._results[node] = result
                self._steps.append(TraceStep(node, result["status"], event.iteration, attempt))
            case ev.Route() as route if route.target != END:
                self._edges.append(TraceEdge(route.source, route.target, edge_reason(self._outline, route)))
            case _:
                pass

    def view(self) -> ExecutionResult:
        trace = WorkflowTrace(list(self._steps), list(self._edges), dict(self._sources))
        return ExecutionResult(dict(self._results), trace)


def edge_reason(outline: ev.Outline, route: ev.Route) -> str:
    """Return the reason for an edge in a trace: its ``when`` text, or ``only path`` without one."""
    index = edge_index(outline, route)
    return (route.reason if index is None else outline.edges[index].when) or ONLY_PATH


def node_result(node_exit: ev.NodeExit) -> dict[str, Any]:
    """Return the NodeResult of an exit. If the node ended without one (cancelled, internal error), create it."""
    if isinstance(node_exit.result, dict) and "status" in node_exit.result:
        return cast("dict[str, Any]", node_exit.result)
    data = {} if node_exit.error is None else {"error": _text(node_exit.error)}
    return {"status": _STATUS.get(node_exit.outcome, "failed"), "data": data, "toolCalls": []}


def _text(failure: Failure) -> str:
    return failure.message or failure.code


def execution_event(event: Event) -> dict[str, Any] | None:
    """Return the ExecutionEvent that observers of a workflow receive for an event; None if they receive none.

    A failed tool call is reported as ``output: {"error": …}``, so that every ended ``tool:call`` has a
    ``tool:result``.
    """
    payload = known_payload(event)
    shape = _SHAPES.get(type(payload)) if payload is not None else None
    return shape(event, payload) if shape else None


def _exit(event: Event, node_exit: ev.NodeExit) -> dict[str, Any]:
    return {"type": "node:exit", "node": last_id(event.path), "result": node_result(node_exit)}


def _tool_result(_event: Event, result: ev.ToolResult) -> dict[str, Any]:
    output = result.output if result.error is None else {"error": _text(result.error)}
    if result.asks is not None:
        output = {"asks": result.asks}
    return {"type": "tool:result", "node": result.node, "tool": result.tool, "output": output}


def _retry(_event: Event, retry: ev.NodeRetry) -> dict[str, Any]:
    return {
        "type": "node:retry",
        "node": retry.node,
        "attempt": retry.attempt,
        "reason": retry.reason,
        "preamble": retry.preamble or "",
    }


def _shape(name: str, fields: Callable[[Any], dict[str, Any]]) -> Callable[[Event, Any], dict[str, Any]]:
    return lambda _event, payload: {"type": name, **fields(payload)}


_SHAPES: dict[type[Payload], Callable[[Event, Any], dict[str, Any]]] = {
    ev.RunStart: _shape("workflow:start", lambda p: {"workflow": p.workflow}),
    ev.SourcesResolved: _shape("sources:resolved", lambda p: {"sources": p.sources}),
    ev.NodeEnter: lambda event, p: {
        "type": "node:enter",
        "node": p.node or last_id(event.path),
        "instruction": p.instruction or "",
    },
    ev.ToolCall: _shape("tool:call", lambda p: {"node": p.node, "tool": p.tool, "input": p.input}),
    ev.ToolResult: _tool_result,
    ev.NodeProgress: _shape("node:progress", lambda p: {"node": p.node, "message": p.message}),
    ev.NodeExit: _exit,
    ev.NodeRetry: _retry,
    ev.Route: _shape("route", lambda p: {"from": p.source, "to": p.target, "reason": p.reason}),
    ev.NodeWarning: _shape("node:warning", lambda p: {"node": p.node, "reason": p.reason, "fields": p.fields}),
    ev.RunEnd: _shape("workflow:end", lambda p: {"results": p.results or {}}),
}


VIEW = View(WorkflowExecution)
