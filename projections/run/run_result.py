"""The result of a run, also while it is running: status, output, usage, and the latest execution of each node."""

import datetime as dt
from typing import Self

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, Payload
from callboard.bus.log.damage import MissingEvents
from callboard.bus.model_waits import describe_wait, resume_at, turn_of_call, turn_of_wait
from callboard.bus.prices import Bill, Cost, Prices, list_prices
from callboard.bus.run_ids import child_id
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload
from callboard.projections.run.causes import Cause, Causes
from callboard.projections.run.charges import model_in, usage_in, used_in
from callboard.projections.run.effects import Opened
from callboard.projections.run.failures import FailureFold, RunFailures
from callboard.projections.run.fork_point import ForkPointFold
from callboard.projections.run.span_ids import ids_of
from callboard.projections.run.status import RunStatus, StatusFold
from callboard.projections.run.warnings import WarnedFold


class NodeState(Struct, frozen=True, omit_defaults=True):
    """The latest execution of a node. ``outcome`` is None until it ends. ``result`` is the language's own record."""

    path: str
    iteration: int
    attempt: int
    entered_at: dt.datetime | None = None
    exited_at: dt.datetime | None = None
    outcome: str | None = None
    result: JSON = None
    error: Failure | None = None


class OpenEffect(Struct, frozen=True, omit_defaults=True):
    """An effect that was announced and has no outcome yet. ``run`` is the id of a child run.

    ``until`` is when a timer, question or signal ends the wait, and ``waits_for`` the model, and why, if its provider
    has postponed a turn.
    """

    key: str
    type: str
    path: str
    n: int
    since: dt.datetime
    run: str | None = None
    until: dt.datetime | None = None
    waits_for: str = ""


class RunResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of a run.

    ``cause`` is its error with the failures that led to it, and their places. ``failures`` has the event in which the
    failure arose that ended the run, and counts the steps that failed; None if nothing failed. ``warnings`` are those
    of its admission, its nodes and its child runs, without duplicates, and a warning if the log has lost events.
    ``trace_id`` is the trace of its spans.

    A fork names its ``origin``; ``parted_at`` is the last event that they share. The times of its acceptance and start,
    and its usage, are those after that event. The times of its nodes are those of the run that executed them.

    ``continues`` is the run whose successor this one is; ``continued_as`` is the run that continues this one.
    ``state`` is the last value that the workflow has set as its state.

    ``usage`` sums the tokens of the run's model turns, of its other effects that use a model, and of its child runs.
    ``usage_by_path`` has the sums per node. ``usage_by_model`` has the run's own usage per requested model, or per
    stand-in. The costs are computed with the reader's prices, and are None if nothing was used.
    """

    run: str = ""
    definition: str = ""
    definition_hash: str = ""
    language: str = ""
    trace_id: str = ""
    origin: str = ""
    parted_at: int = 0
    continues: str = ""
    continued_as: str = ""
    status: RunStatus
    state: JSON = None
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    cause: Cause | None = None
    failures: RunFailures | None = None
    warnings: list[ev.Warned] = []
    usage: Usage = Usage()
    usage_by_path: dict[str, Usage] = {}
    usage_by_model: dict[str, Usage] = {}
    cost: Cost | None = None
    cost_by_path: dict[str, Cost] = {}
    cost_by_model: dict[str, Cost] = {}
    accepted_at: dt.datetime | None = None
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    nodes: dict[str, NodeState] = {}
    open: list[OpenEffect] = []
    last_n: int = 0

    def raise_for_status(self) -> Self:
        """Return this result if the run has completed.

        :raises RunNotCompleted: if the run failed, was cancelled, or has not ended
        """
        if self.status != "completed":
            raise RunNotCompleted(self)
        return self


class RunNotCompleted(CallboardError):
    """Raised if a run has failed, was cancelled, or has not ended. ``result`` is its result."""

    def __init__(self, result: RunResult) -> None:
        error = result.error
        why = f": {error.code}: {error.message}" if error else ""
        super().__init__("run.not_completed", f"the run is {result.status}{why}", result.run)
        self.result = result


class Results:
    """Folds one run into a `RunResult`. ``prices`` defaults to the list prices."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._run, self._last_n = "", 0
        self._parting = ForkPointFold()
        self._head = RunResult(status="accepted")
        self._status = StatusFold()
        self._divergence: Failure | None = None
        self._missing = MissingEvents()
        self._nodes: dict[str, NodeState] = {}
        self._usage = Usage()
        self._by_path: dict[str, Usage] = {}
        self._by_model: dict[str, Usage] = {}
        self._bills_by_path: dict[str, Bill] = {}
        self._bills_by_model: dict[str, Bill] = {}
        self._causes = Causes()
        self._failures = FailureFold()
        self._warned = WarnedFold()
        self._postponed: dict[str, str] = {}
        """What postponed turns wait for, by the key of the turn."""

    def apply(self, event: Event) -> None:
        self._run, self._last_n = event.run, event.n
        self._missing.apply(event)
        payload = known_payload(event)
        self._parting.apply(event, payload)
        if payload is None:
            return
        closed = self._status.apply(event, payload)
        self._apply_run(event, payload)
        self._apply_node(event, payload)
        self._causes.apply(event, payload)
        self._failures.apply(event, payload)
        self._warned.apply(event.path, payload, _child_of(closed))
        self._add_usage(event, payload, closed)
        if isinstance(payload, ev.ModelResult):
            self._note_postponed(event.key, payload, closed)

    def view(self) -> RunResult:
        parting = self._parting.parting
        status = self._status.status
        failures = self._failures.view()
        bill = sum(self._bills_by_path.values(), Bill())
        return msgspec.structs.replace(
            self._head,
            run=self._run,
            origin=parting.origin if parting is not None else "",
            parted_at=parting.n if parting is not None else 0,
            accepted_at=self._began(self._head.accepted_at),
            started_at=self._began(self._head.started_at),
            last_n=self._last_n,
            status=status,
            error=self._divergence if status in ("diverged", "waiting:code") else self._head.error,
            cause=self._causes.of(self._head.error) if self._head.error else None,
            failures=failures if failures != RunFailures() else None,
            warnings=[*self._missing.warnings(), *self._warned.view()],
            usage=self._usage,
            usage_by_path=dict(self._by_path),
            usage_by_model=dict(self._by_model),
            cost=bill.cost if self._usage.tokens or bill.unmetered else None,
            cost_by_path=_costs(self._bills_by_path),
            cost_by_model=_costs(self._bills_by_model),
            nodes=dict(self._nodes),
            open=[
                OpenEffect(
                    each.event.key,
                    each.event.type,
                    each.event.path,
                    each.event.n,
                    each.event.time,
                    self._child_run(each),
                    _end_of_wait(each.payload),
                    self._postponed.get(turn_of_wait(each.event.key), ""),
                )
                for each in self._status.open
            ],
        )

    def _began(self, time: dt.datetime | None) -> dt.datetime | None:
        """Return ``time``, or for a fork the time of its first own event."""
        return self._parting.began(time) if time is not None else None

    def _note_postponed(self, key: str, result: ev.ModelResult, closed: Opened | None) -> None:
        turn = turn_of_call(key)
        self._postponed.pop(turn, None)
        if result.error is not None and resume_at(result.error) is not None and closed is not None:
            model = closed.payload.model if isinstance(closed.payload, ev.ModelCall) else ""
            self._postponed[turn] = describe_wait(model, result.error)

    def _child_run(self, opened: Opened) -> str | None:
        """Return the id of an open child run. For an intent shared with the origin, it is the fork's own child."""
        if not isinstance(opened.payload, ev.ChildStart):
            return None
        begun_anew = self._parting.begins_anew(opened.event, self._last_n)
        return child_id(self._run, opened.event.key) if begun_anew else opened.payload.child

    def _apply_run(self, event: Event, payload: Payload) -> None:
        match payload:
            case ev.RunAccepted(definition=ref):
                self._head = msgspec.structs.replace(
                    self._head,
                    definition=event.definition or ref.name or ref.hash[:12],
                    definition_hash=ref.hash,
                    language=ref.language,
                    trace_id=ids_of(payload).trace(event.run),
                    continues=payload.continues.run if payload.continues is not None else "",
                    accepted_at=event.time,
                )
            case ev.RunStart():
                self._head = msgspec.structs.replace(self._head, started_at=event.time)
            case ev.RunQuarantined(code=code, message=message, sequence=sequence, subject=subject):
                error = Failure(code=code, message=message, details={"sequence": sequence, "subject": subject})
                self._head = msgspec.structs.replace(self._head, error=error)
            case ev.NodeProgress(milestone=ev.NodeProgress.STATE, data=data) if not event.path:
                self._head = msgspec.structs.replace(self._head, state=data)
            case ev.RunDiverged():
                self._divergence = _divergence(event, payload)
            case ev.RunFailed(error=error):
                self._head = msgspec.structs.replace(self._head, error=error)
            case ev.RunEnd():
                self._head = msgspec.structs.replace(
                    self._head,
                    output=payload.output,
                    results=payload.results,
                    error=payload.error or self._head.error,
                    continued_as=payload.successor.run if payload.successor is not None else "",
                    ended_at=event.time,
                )
            case _:
                pass

    def _apply_node(self, event: Event, payload: Payload) -> None:
        path = event.path
        match payload:
            case ev.NodeEnter():
                self._nodes[path] = NodeState(path, event.iteration, max(event.attempt, 1), entered_at=event.time)
            case ev.NodeRetry() if path in self._nodes and self._is_newest(event):
                # The path may not be a node's: a middleware around a node also retries.
                self._nodes[path] = msgspec.structs.replace(self._nodes[path], attempt=payload.attempt + 1)
            case ev.NodeExit() if self._is_newest(event):
                before = self._nodes.get(path) or NodeState(path, event.iteration, max(event.attempt, 1))
                self._nodes[path] = msgspec.structs.replace(
                    before,
                    iteration=event.iteration,
                    exited_at=event.time,
                    outcome=payload.outcome,
                    result=payload.result,
                    error=payload.error,
                )
            case _:
                pass

    def _is_newest(self, event: Event) -> bool:
        """Return whether an event belongs to the latest iteration of its path, because iterations may overlap."""
        state = self._nodes.get(event.path)
        return state is None or state.iteration <= event.iteration

    def _add_usage(self, event: Event, payload: Payload, closed: Opened | None) -> None:
        """Add what an event used, unless the origin of a fork has paid for it."""
        usage = usage_in(payload)
        if usage is None or self._parting.is_shared(event):
            return
        bill = self._prices.bill(used_in(payload, closed), event.time)
        self._usage += usage
        self._by_path[event.path] = self._by_path.get(event.path, Usage()) + usage
        self._bills_by_path[event.path] = self._bills_by_path.get(event.path, Bill()) + bill
        if not isinstance(payload, ev.ChildEnd):
            model = model_in(payload, closed)
            self._by_model[model] = self._by_model.get(model, Usage()) + usage
            self._bills_by_model[model] = self._bills_by_model.get(model, Bill()) + bill


def _costs(bills: dict[str, Bill]) -> dict[str, Cost]:
    return {name: bill.cost for name, bill in bills.items() if bill != Bill()}


def _child_of(closed: Opened | None) -> str:
    """Return the child run that an event closes; empty if it does not close one."""
    return closed.payload.child if closed and isinstance(closed.payload, ev.ChildStart) else ""


def _divergence(event: Event, diverged: ev.RunDiverged) -> Failure:
    """Return why no worker continues a run, as its error until a worker does."""
    details = {
        "n": diverged.n,
        "worker": diverged.worker,
        "version": diverged.version,
        "since": event.time.isoformat(),
        "entry": diverged.entry,
        "digest": diverged.digest,
        "performed": diverged.performed,
        "difference": msgspec.to_builtins(diverged.difference),
    }
    kept = ("n", "worker", "version", "since")
    found = {name: value for name, value in details.items() if value or name in kept}
    return Failure(diverged.code, diverged.message, details=found)


def _end_of_wait(intent: Payload) -> dt.datetime | None:
    """Return when an open intent ends by itself, if it does."""
    match intent:
        case ev.TimerSet(due=due) | ev.SignalAwaited(due=due) | ev.HumanAsked(timeout_at=due):
            return due
        case _:
            return None
