"""A run of a graph in the design document's own shape: the Execution with its NodeExecutions, also while it is running.

The shape is in section 3 of the document. Times are milliseconds since the epoch. The result includes the rows of
people in the loop (`callboard.projections.results.graph_people`).
"""

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Event, Payload
from callboard.bus.paths import activation_id, last_id
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload
from callboard.projections.results import View
from callboard.projections.results.graph_people import ExecutionPause, HilInteraction, People
from callboard.projections.run.effects import Opened
from callboard.projections.run.fork_point import ForkPointFold
from callboard.projections.run.status import RunStatus, StatusFold

_STATUS: dict[RunStatus, str] = {
    "accepted": "NEW",
    "waiting:human": "WAITING_FOR_HUMAN",
    "waiting:timer": "WAITING",
    "waiting:signal": "WAITING",
    "paused": "PAUSED",
    "cancelling": "CANCELED",
    "cancelled": "CANCELED",
    "completed": "SUCCESS",
    "failed": "ERROR",
    "expired": "TIMEOUT",
}
"""The document's word for each status of a run. Other statuses are RUNNING."""

_NODE_STATUS = {"ok": "COMPLETED", "failed": "FAILED", "cancelled": "FAILED", "skipped": "SKIPPED"}


class GraphExecutionRecord(Struct, frozen=True, kw_only=True):
    """An execution as the design document defines it. ``next_nodes`` is internal to the interpreter, and null.

    The execution of a fork has the fork's run id. Its start and its usage are those after the parting.
    """

    id: str
    execution_id: str
    workflow_id: str
    workflow_version: str
    status: str
    start_time: int | None
    end_time: int | None
    duration_ms: int | None
    trigger_info: dict[str, JSON] | None
    node_executions: dict[str, dict[str, JSON]]
    node_runs: dict[str, list[dict[str, JSON]]]
    execution_sequence: list[str]
    current_node_id: str | None
    next_nodes: None
    error: JSON
    tokens_used: JSON
    credits_consumed: int
    run_data: dict[str, JSON]
    hil_interactions: list[HilInteraction]
    workflow_execution_pauses: list[ExecutionPause]


@dataclass
class _Run:
    """One run of a node, with its progress so far."""

    node: ev.OutlineNode
    path: str = ""
    iteration: int = 0
    parent: str | None = None
    status: str = "PENDING"
    started: dt.datetime | None = None
    ended: dt.datetime | None = None
    input_data: JSON = field(default_factory=dict[str, JSON])
    exited: dict[str, Any] = field(default_factory=dict[str, Any])
    error: Failure | None = None
    retries: int = 0
    waits: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """What it waits for, by type and key; other effects may run beside it, such as a message to the person it asks."""

    def as_node_execution(self, run: str) -> dict[str, JSON]:
        """Return it as a NodeExecution."""
        return {
            "node_id": self.node.id,
            "node_name": self.node.name,
            "node_type": self.node.type,
            "node_subtype": self.node.subtype,
            "status": self.status,
            **_span(self.started, self.ended),
            "input_data": self.input_data,
            "output_data": self.exited.get("output_data", {}),
            "error": _error(self.error, self.ended),
            "execution_details": self.exited.get("execution_details", {}),
            "activation_id": activation_id(run, self.path, self.iteration) if self.iteration else None,
            "parent_activation_id": self.parent,
            "credits_consumed": self.exited.get("credits_consumed", 0),
            "retry_count": self.retries,
            "max_retries": self.exited.get("max_retries", 0),
        }


class GraphExecution:
    """Folds one run of a graph into its `GraphExecutionRecord`."""

    def __init__(self) -> None:
        self._run = ""
        self._accepted: ev.RunAccepted | None = None
        self._start: ev.RunStart | None = None
        self._end: ev.RunEnd | None = None
        self._started: dt.datetime | None = None
        self._ended: dt.datetime | None = None
        self._parting = ForkPointFold()
        self._status = StatusFold()
        self._people = People()
        self._latest: dict[str, _Run] = {}
        self._runs: dict[str, list[_Run]] = {}
        self._by_address: dict[tuple[str, int], _Run] = {}
        self._iterations: dict[str, int] = {}
        self._sequence: list[str] = []
        self._usage: Usage | None = None
        self._credits = 0

    def apply(self, event: Event) -> None:
        payload = known_payload(event)
        self._parting.apply(event, payload)
        if payload is None:
            return
        self._run = event.run
        closed = self._status.apply(event, payload)
        match payload:
            case ev.RunAccepted():
                self._accepted = payload
                self._latest = {node.id: _Run(node) for node in payload.outline.nodes}
            case ev.RunStart():
                self._start, self._started = payload, event.time
            case ev.RunEnd():
                self._end, self._ended = payload, event.time
            case ev.ModelResult(usage=usage, error=None) if not self._parting.is_shared(event):
                self._usage = usage if self._usage is None else self._usage + usage
            case ev.EffectResult(usage=usage, model=model) if model and not self._parting.is_shared(event):
                self._usage = usage if self._usage is None else self._usage + usage
            case _:
                self._apply_node(event, payload, closed)
        self._people.apply(event, payload, self._workflow_id, self._execution_id)

    def view(self) -> GraphExecutionRecord:
        nodes = {name: run.as_node_execution(self._execution_id) for name, run in self._latest.items()}
        status = _STATUS.get(self._status.status, "RUNNING")
        began = self._parting.began(self._started) if self._started is not None else None
        sequence, current = self._end_member("execution_sequence", list(self._sequence)), self._current()
        return GraphExecutionRecord(
            id=self._run,
            execution_id=self._run,
            workflow_id=self._workflow_id,
            workflow_version=self._option("workflow_version", "1.0"),
            status=status,
            **_span(began, self._ended),
            trigger_info=self._trigger_info(),
            node_executions=nodes,
            node_runs={
                name: [run.as_node_execution(self._execution_id) for run in runs] for name, runs in self._runs.items()
            },
            execution_sequence=sequence,
            current_node_id=current,
            next_nodes=None,
            error=self._end_member("error", None),
            tokens_used=_tokens(self._usage),
            credits_consumed=self._credits,
            run_data={
                "node_results": {name: _node_result(told) for name, told in nodes.items()},
                "execution_sequence": sequence,
                "current_node_id": current,
                "next_nodes": None,
            },
            hil_interactions=self._people.interactions(),
            workflow_execution_pauses=self._people.pauses(),
        )

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _apply_node(self, event: Event, payload: Payload, closed: Opened | None) -> None:
        run = self._by_address.get((event.path, event.iteration))
        match payload:
            case ev.NodeEnter():
                self._enter(event, payload)
            case ev.NodeRetry(attempt=attempt) if run:
                run.status, run.retries = "RETRYING", attempt
            case ev.NodeExit() if run:
                self._exit(run, event, payload)
            case _ if run and _is_awaited(payload):
                run.waits.add((payload.type, event.key))
                run.status = "WAITING_INPUT"
            case _ if run and closed is not None and _is_awaited(closed.payload):
                run.waits.discard((closed.payload.type, event.key))
                if not run.waits and run.status == "WAITING_INPUT":
                    run.status = "RUNNING"
            case ev.TimerSet():
                pass
            case _ if run and run.status == "RETRYING" and payload.kind == "intent":
                run.status = "RUNNING"
            case _:
                pass

    def _enter(self, event: Event, entered: ev.NodeEnter) -> None:
        before = self._latest.get(entered.node)
        node = before.node if before else ev.OutlineNode(entered.node, entered.name)
        run = _Run(
            node,
            event.path,
            event.iteration,
            self._parent_of(event.path),
            "RUNNING",
            event.time,
            input_data={} if entered.input is None else entered.input,
        )
        self._iterations[event.path] = event.iteration
        self._by_address[event.path, event.iteration] = self._latest[entered.node] = run
        if run.parent is not None:
            self._runs.setdefault(entered.node, []).append(run)

    def _exit(self, run: _Run, event: Event, left: ev.NodeExit) -> None:
        run.status, run.ended, run.error = _NODE_STATUS[left.outcome], event.time, left.error
        run.exited = left.result if isinstance(left.result, dict) else {}
        if left.outcome == "ok":
            self._sequence.append(run.node.id)
            self._credits += 0 if self._parting.is_shared(event) else run.exited.get("credits_consumed", 0)
        elif left.outcome == "cancelled":
            run.error = Failure("CANCELED", left.error.message if left.error else "")

    def _parent_of(self, path: str) -> str | None:
        """Return the activation that a run below a fan-out belongs to."""
        above, slash, _ = path.rpartition("/")
        if not slash or not above.endswith("]"):
            return None
        source = above.rpartition("[")[0]
        return activation_id(self._execution_id, source, self._iterations.get(source, 1))

    def _current(self) -> str | None:
        """The node that the execution is paused before, or that it waits at; None if it does neither.

        An execution that was paused by command is at the node that is running, else at the last one that has run.
        """
        opened = list(self._status.open)
        paused = next((one for one in opened if isinstance(one.payload, ev.RunPaused)), None)
        if paused is not None and paused.event.path:
            return last_id(paused.event.path)
        for one in opened:
            run = self._by_address.get((one.event.path, one.event.iteration))
            if run is not None and _is_awaited(one.payload):
                return run.node.id
        if paused is None:
            return None
        running = [run.node.id for run in self._by_address.values() if run.status in ("RUNNING", "RETRYING")]
        return next(iter(running), self._sequence[-1] if self._sequence else None)

    # -- the whole -----------------------------------------------------------------------------------------------------

    @property
    def _execution_id(self) -> str:
        """Return the execution id that the definition sees: for a fork, that of its origin."""
        return (self._start.execution_id if self._start else "") or self._run

    @property
    def _workflow_id(self) -> str:
        return self._accepted.definition.name if self._accepted else ""

    def _option(self, name: str, default: Any) -> Any:
        return self._start.options.get(name, default) if self._start else default

    def _trigger_info(self) -> dict[str, JSON] | None:
        if self._start is None or self._started is None:
            return None
        given: dict[str, JSON] = self._option("trigger", {})
        timestamp = given.get("timestamp")
        return {**given, "trigger_data": self._start.input, "timestamp": timestamp or _ms(self._started)}

    def _end_member(self, name: str, otherwise: Any) -> Any:
        """Return a member of the end's results, in which nodes that overlapped have their final order."""
        results = self._end.results if self._end else None
        return results.get(name, otherwise) if isinstance(results, dict) else otherwise


def _is_awaited(intent: Payload) -> bool:
    """Whether a node that has announced this waits for the world outside."""
    match intent:
        case ev.HumanAsked() | ev.SignalAwaited() | ev.TimerSet(purpose="delay" | "wait"):
            return True
        case _:
            return False


def _ms(instant: dt.datetime) -> int:
    return int(instant.timestamp() * 1000)


def _span(started: dt.datetime | None, ended: dt.datetime | None) -> dict[str, Any]:
    start, end = _ms(started) if started else None, _ms(ended) if ended else None
    duration = end - start if start is not None and end is not None else None
    return {"start_time": start, "end_time": end, "duration_ms": duration}


def _error(error: Failure | None, at: dt.datetime | None) -> JSON:
    if error is None:
        return None
    return {
        "error_code": error.code,
        "error_message": error.message,
        "error_details": error.details,
        "is_retryable": bool(error.retryable),
        "timestamp": _ms(at) if at else None,
    }


def _tokens(usage: Usage | None) -> JSON:
    if usage is None:
        return None
    total = usage.input_tokens + usage.output_tokens
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": total}


_RESULT = (
    "status",
    "start_time",
    "end_time",
    "duration_ms",
    "input_data",
    "output_data",
    "execution_details",
    "error",
    "retry_count",
)


def _node_result(told: dict[str, JSON]) -> JSON:
    """Return the members of a node that the snapshot for user interfaces has."""
    return {**{name: told[name] for name in _RESULT}, "logs": []}


VIEW = View(GraphExecution)
