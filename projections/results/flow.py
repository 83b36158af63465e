"""A run of a flow in the language's own terms: its Result, and a trace of its frames, step by step.

A frame has the passes of its steps in order. A step has its dispatches (effects of providers and frames of subflows),
the actions of its middleware, and the route that it took. Times are those of the log. The specification does not define
a format for traces.
"""

import datetime as dt
from typing import Any

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import Event, Outline, RunAccepted, RunEnd
from callboard.bus.paths import last_id
from callboard.lib.json_types import JSON
from callboard.projections.drawing.edges import Shown
from callboard.projections.projection import known_payload
from callboard.projections.results import View
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Attempt, Effect, Node, Step


class EffectRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An effect: a provider's request, a timer or a question. ``error`` is the failure's code."""

    kind: str
    name: str
    key: str
    started_at: dt.datetime
    ended_at: dt.datetime | None = None
    outcome: str | None = None
    error: str = ""
    executions: int = 1


class RetryRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A retry by the Retry middleware: the failure and the delay. ``middleware`` is its place in the stack: ``mw0``."""

    middleware: str
    number: int
    at: dt.datetime
    code: str = ""
    delay_s: float | None = None


class RouteRecord(Struct, frozen=True, omit_defaults=True):
    """The route that a step took. ``edge`` is the field that names the target: ``next``, ``case.0``, ``catch.1``."""

    next: str
    edge: str
    caught: str = ""


class _Execution(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The times of an execution, and its outcome: ok, failed, cancelled, or None while it is running."""

    entered_at: dt.datetime | None = None
    exited_at: dt.datetime | None = None
    outcome: str | None = None
    error: Failure | None = None


class PhaseRecord(_Execution, frozen=True, omit_defaults=True, kw_only=True):
    """A phase in which a middleware acted: its place in the stack and the phase, ``mw1.onAlways``."""

    phase: str
    middleware: str
    dispatches: list["DispatchRecord"] = []


class DispatchRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The execution of a call's target: the effects of a provider, or the frames of a flow, one per execution.

    ``index`` is the index of a Gather's dispatch.
    """

    index: int | None = None
    work: list[EffectRecord] = []
    frames: list["FrameRecord"] = []


class StepPass(_Execution, frozen=True, omit_defaults=True, kw_only=True):
    """One pass of a step. ``result`` is its Result; for a Gather, its results. ``iteration`` counts passes from 1."""

    step: str
    iteration: int
    action: str = ""
    result: JSON = None
    work: list[EffectRecord] = []
    retries: list[RetryRecord] = []
    phases: list[PhaseRecord] = []
    dispatches: list[DispatchRecord] = []
    ways: list[RouteRecord] = []


class FrameRecord(_Execution, frozen=True, omit_defaults=True, kw_only=True):
    """An execution of a flow, by its path. ``flow`` is the flow's name, ``"flow"`` if it is unnamed."""

    path: str
    iteration: int
    flow: str
    result: JSON = None
    retries: list[RetryRecord] = []
    phases: list[PhaseRecord] = []
    work: list[EffectRecord] = []
    steps: list[StepPass] = []


class FlowExecution(Struct, frozen=True, omit_defaults=True):
    """The root frame's Result, null until it ends, and the root frame."""

    result: dict[str, Any] | None
    trace: FrameRecord | None = None


class FlowTrace:
    """Folds one run of a flow into its `FlowExecution`, also while it is running."""

    def __init__(self) -> None:
        self._trace = TraceFold()
        self._outline = Outline()
        self._result: dict[str, Any] | None = None

    def apply(self, event: Event) -> None:
        self._trace.apply(event)
        match known_payload(event):
            case RunAccepted(outline=outline):
                self._outline = outline
            case RunEnd(results=dict(results)):
                self._result = results
            case _:
                pass

    def view(self) -> FlowExecution:
        told = _Telling(self._outline)
        roots = [node for node in self._trace.view().root.children if node.kind == "frame"]
        return FlowExecution(self._result, told.frame(roots[0]) if roots else None)


class _Telling:
    """Converts a tree of nodes into frames, steps and phases."""

    def __init__(self, outline: Outline) -> None:
        self._shown = Shown([node.id for node in outline.nodes])
        self._actions = {node.id: node.type for node in outline.nodes}

    def frame(self, node: Node) -> FrameRecord:
        return FrameRecord(
            path=node.path,
            iteration=node.iteration,
            flow=node.node,
            result=node.result,
            **_execution(node),
            retries=[_retry(attempt) for attempt in node.attempts],
            phases=self._phases(node),
            work=[_work(effect) for effect in node.effects],
            steps=[self._step(child) for child in node.children if child.kind == "step"],
        )

    def _step(self, node: Node) -> StepPass:
        own = [effect for effect in node.effects if not _of_call(node, _path(effect))]
        return StepPass(
            step=node.node,
            iteration=node.iteration,
            action=self._actions.get(self._shown.id_of(node.path) or "", ""),
            result=node.result,
            **_execution(node),
            work=[_work(effect) for effect in own],
            retries=[_retry(attempt) for attempt in node.attempts],
            phases=self._phases(node),
            dispatches=self._dispatches(node),
            ways=[_way(step) for step in node.routes],
        )

    def _phases(self, node: Node) -> list[PhaseRecord]:
        return [
            PhaseRecord(
                phase=child.path.rpartition(":")[2],
                middleware=child.node,
                **_execution(child),
                dispatches=self._dispatches(child),
            )
            for child in node.children
            if child.kind == "phase"
        ]

    def _dispatches(self, node: Node) -> list[DispatchRecord]:
        """Collect the executions of the calls of a step or a clean-up, by the index of the dispatch, if any."""
        found: dict[int | None, DispatchRecord] = {}
        for effect in node.effects:
            path = _path(effect)
            if _of_call(node, path):
                found.setdefault(index := _index(path), DispatchRecord(index=index, work=[], frames=[]))
                found[index].work.append(_work(effect))
        for child in node.children:
            if child.kind in ("step", "phase"):
                continue
            found.setdefault(index := _index(child.path), DispatchRecord(index=index, work=[], frames=[]))
            if child.kind == "frame":
                found[index].frames.append(self.frame(child))
            else:
                # A provider that is composed of several effects: list all of them.
                found[index].work.extend(_work(effect) for effect in child.effects)
        return [found[index] for index in sorted(found, key=lambda index: -1 if index is None else index)]


def _execution(node: Node) -> dict[str, Any]:
    return {
        "entered_at": node.entered_at,
        "exited_at": node.exited_at,
        "outcome": node.outcome,
        "error": node.error,
    }


def _path(effect: Effect) -> str:
    return effect.key.partition("#")[0]


def _of_call(node: Node, path: str) -> bool:
    """Return whether an effect of a node belongs to its call, and not to the node, as a pause or a retry's delay."""
    behind = path[len(node.path) :]
    return behind.startswith("[") or behind in (":call", ".call")


def _index(path: str) -> int | None:
    segment = path.rpartition("/")[2].partition(":")[0]
    _, bracket, index = segment.rpartition("[")
    return int(index.rstrip("]")) if bracket else None


def _work(effect: Effect) -> EffectRecord:
    return EffectRecord(
        kind=effect.kind,
        name=effect.name,
        key=effect.key,
        started_at=effect.started_at,
        ended_at=effect.ended_at,
        outcome=effect.outcome,
        error=effect.error.code if effect.error else "",
        executions=effect.executions,
    )


def _retry(attempt: Attempt) -> RetryRecord:
    return RetryRecord(
        middleware=attempt.path.rpartition(":")[2].rpartition(".")[2] or last_id(attempt.path),
        number=attempt.number,
        at=attempt.at,
        code=attempt.error.code if attempt.error else attempt.reason,
        delay_s=attempt.delay,
    )


def _way(step: Step) -> RouteRecord:
    return RouteRecord(
        step.target, str(step.edge), step.reason.removeprefix("caught ") if "caught " in step.reason else ""
    )


VIEW = View(FlowTrace)
