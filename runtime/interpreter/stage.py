"""The stage: the interface between an interpreter and its run.

The stage turns calls of the interpreter into events (through the ledger, `…interpreter.ledger`), recorded or new, and
delivered events into wakes of the driver (through the waits, `…interpreter.waits`). It performs no I/O and reads no
clock; the run carries effects out.
"""

import datetime as dt
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Event, NodeOutcome, Payload, Problem
from callboard.bus.paths import encode_id, last_id
from callboard.languages.inspection import Inspection
from callboard.languages.language import Cancelled, End, Expired, Instant, Node, Ok, Resumed, RunInfo, Settled, Unwound
from callboard.lib.json_types import JSON
from callboard.runtime.interpreter.asks import Asks, ForkTimes
from callboard.runtime.interpreter.collection import StageCollection
from callboard.runtime.interpreter.computation import Computation
from callboard.runtime.interpreter.driver import Driver, DriverTask, Wait, never_pressed
from callboard.runtime.interpreter.journal import Journal, is_actors_own
from callboard.runtime.interpreter.ledger import Ledger, Sink
from callboard.runtime.interpreter.nodes import StageNode
from callboard.runtime.interpreter.waits import Bound, Waits

T = TypeVar("T")

EXPIRED = Failure(code="expired", message="the time bound ran out", type="cancellation")


class RunStage:
    """The stage of one run."""

    def __init__(
        self,
        info: RunInfo,
        journal: Journal,
        sink: Sink,
        *,
        run: str,
        seed: str,
        breakpoints: Sequence[str] = (),
        parting: ForkTimes | None = None,
        pressed: Callable[[], bool] = never_pressed,
    ) -> None:
        self.info = info
        self.driver = Driver(pressed)
        self.ledger = Ledger(journal, sink, self.driver)
        self.waits = Waits(self.ledger, self.driver)
        self.asks = Asks(info, self.ledger, self.waits, self.driver, run, seed, parting)
        self.cancelling = False
        self.killed: Failure | None = None
        self.check_variables: Callable[[Mapping[str, JSON]], list[Problem]] = lambda _variables: []
        """Returns the problems of the variables that a resume sets."""
        self.idle_before = 0
        """How many runs in a row before this one have continued without performing anything."""
        self.has_variables = True
        """Whether the language has variables, which a resume can set."""
        self.main: DriverTask[End] | None = None
        self.inspection: Inspection | None = None
        self._breakpoints = frozenset(breakpoints)
        self._parting = parting
        self._journal = journal
        if parting is not None:
            self.waits.delay = parting.gone_on - parting.then
            self._set = dict(parting.forked.variables)
            self._later_breakpoints = dict(parting.forked.breakpoints)
            journal.on_reached = self._pass_place
        self.kept: dict[str, Any] = {}
        self._spent = Usage()
        self._stops: dict[str, int] = {}
        self._iterations: dict[str, int] = {}
        self._turn = 0
        self.asks.now = sink.clock()
        self._root = StageNode(self.asks, "", 1, "", self.asks.now)

    # -- the run's side ------------------------------------------------------------------------------------------------

    def begin(self, interpreter: Coroutine[Any, Any, End], started: Event) -> None:
        """Start the interpreter; ``started`` is the run's ``run.start``."""
        self.asks.now = self._root.entered_at = started.time
        if self._parting is not None:
            for place in sorted({self._parting.forked.n, *self._set, *self._later_breakpoints}):
                if self._journal.has_reached(place):
                    self._pass_place(place)
        self.main = self.driver.start(interpreter)
        self.driver.run()

    @property
    def is_unfinished(self) -> bool:
        """Whether the interpreter draws breath: call `continue_run` before the next event is delivered."""
        return self.driver.is_unfinished

    @property
    def is_stopped(self) -> bool:
        """Whether the run is paused, or is being cancelled or killed."""
        return self.waits.paused or self.cancelling or self.killed is not None

    @property
    def computation(self) -> Computation | None:
        """The computation that an unfinished interpreter waits for, which may be carried out on another thread."""
        return self.driver.computation

    def continue_run(self) -> None:
        """Continue an interpreter that has drawn breath."""
        self.driver.run()

    def drop(self) -> None:
        """Drop the interpreter, and forget what is open. Every open effect refers to its node, which refers to them
        all: the cycle would keep the run in memory until the next full garbage collection."""
        self.driver.drop()
        self.waits.over()
        self.asks.entered.clear()
        self.kept.clear()
        self.inspection = None

    def note(self, event: Event) -> bool:
        """Note one event of the log. Return whether it is to be delivered by `take`: facts that the interpreter has
        stated itself, and its intents, are not."""
        kind = ev.TYPES.get(event.type)
        if kind is None:
            return False
        if kind.kind == "outcome":
            self.ledger.usage.count(event)
        if is_actors_own(event) or event.type == ev.ChildEnd.type:
            # The interpreter's own warnings were counted when it stated them.
            self.ledger.warned.apply(event.path, ev.decode_payload(event.type, event.payload), self._child_of(event))
        return self.killed is None and (kind.kind == "outcome" or event.type in DELIVERED_FACTS)

    def take(self, event: Event) -> None:
        """Deliver an event and run to quiescence, or until the interpreter draws breath."""
        if ev.TYPES[event.type].kind == "outcome":
            self._journal.note_delivery(event)
        self.asks.now = event.time
        if self._parting is not None and self._journal.has_reached(self._parting.forked.n):
            self._part(self._parting)
        self._turn += 1
        payload = ev.decode_payload(event.type, event.payload)
        if isinstance(payload, ev.ModelResult | ev.EffectResult | ev.ChildEnd):
            self._spent += payload.usage
        if isinstance(payload, ev.CancelRequested):
            self._cancel_run(payload)
        else:
            self.waits.deliver(event, payload)
        if self.killed is None:
            self.driver.run()

    def _pass_place(self, place: int) -> None:
        """The replay of a fork has stated all events of its origin up to ``place``."""
        assert self._parting is not None
        # The next gate returns them.
        self.waits.new_variables |= self._set.pop(place, {})
        if (names := self._later_breakpoints.pop(place, None)) is not None:
            self._breakpoints = frozenset(names)
        if place == self._parting.forked.n:
            self._part(self._parting)

    def _part(self, parting: ForkTimes) -> None:
        """Continue at the current time: the shared part of the fork is complete."""
        self.asks.now = max(self.asks.now, parting.gone_on)
        self.waits.delay = dt.timedelta()

    def _child_of(self, event: Event) -> str:
        """The run id of the child that an event reports on. In the shared part of a fork it is the origin's child."""
        effect = self.waits.effects.get(event.key)
        shared = self._parting is not None and event.n <= self._parting.forked.n
        if shared and effect is not None and isinstance(effect.intent, ev.ChildStart):
            return effect.intent.child
        return self.asks.child_id(event.key)

    def _cancel_run(self, requested: ev.CancelRequested) -> None:
        self.cancelling = True
        self.waits.stepping = False  # clean-up is not stepped through
        cause = Failure(code="cancelled", message=requested.message or requested.reason, type="cancellation")
        if requested.kill:
            self.killed = cause
        elif self.main is not None:
            self.driver.cancel_in_pieces(self.main, cause, self.waits.release)

    def state_of_run(self, payload: Payload) -> Event:
        """State a fact of the run as a whole."""
        return self.ledger.state(payload, "", 0, 0, self._root.alike)

    def abandon_everything(self, cause: Failure, outcome: NodeOutcome) -> None:
        """Close every open intent and leave every open node, without asking the interpreter."""
        for key, effect in list(self.waits.effects.items()):
            self.ledger.cancel(effect.node, key, effect.intent.type, cause)
        for key, question in list(self.waits.questions.items()):
            self.ledger.cancel(question.node, key, ev.HumanAsked.type, cause)
        for node in reversed(list(self.asks.entered.values())):
            self.asks.leave(node, ev.NodeExit(outcome=outcome, error=cause))

    # -- the interpreter's side: `callboard.languages.language.Stage` -------------------------------------------------

    @property
    def root(self) -> StageNode:
        return self._root

    def now(self) -> Instant:
        return self.asks.now

    def turn(self) -> int:
        return self._turn

    def spent(self) -> Usage:
        return self._spent

    def enter(
        self,
        path: str,
        kind: str = "node",
        *,
        node: str = "",
        name: str = "",
        instruction: str | None = None,
        input: JSON = None,
        due: Instant | None = None,
    ) -> StageNode:
        iteration = self._iterations.get(path, 0) + 1
        self._iterations[path] = iteration
        node = node or last_id(path)
        payload = ev.NodeEnter(kind_=kind, node=node, name=name, instruction=instruction, input=input, due=due)
        event = self.ledger.state(payload, path, iteration, 1)
        entered = StageNode(self.asks, path, iteration, node, event.time, kind)
        self.asks.entered[path, iteration] = entered
        return entered

    @property
    def replaying(self) -> bool:
        return self.ledger.replaying or self.ledger.observed

    def place(self, path: str, node: str = "") -> StageNode:
        iteration = self._iterations.get(path, 0) + 1
        self._iterations[path] = iteration
        return StageNode(self.asks, path, iteration, node or last_id(path), self.asks.now, "place")

    async def checkpoint(self) -> None:
        await self.driver.checkpoint()

    async def breathe(self) -> None:
        await self.driver.breathe()

    async def compute(self, work: Callable[[], T]) -> T:
        return await self.driver.compute(work)

    def record_sources(self, sources: dict[str, dict[str, Any]]) -> None:
        self.ledger.state(ev.SourcesResolved(sources=sources), "", 1, 1)

    def pauses_at(self, step: str, path: str = "") -> bool:
        return self._is_marked(step, path) or (self.waits.stepping and step != "")

    def _is_marked(self, step: str, path: str) -> bool:
        return step in self._breakpoints or path in self._breakpoints

    async def gate(
        self,
        node: Node | None,
        step: str,
        when: Literal["before", "after"] = "before",
        *,
        path: str = "",
        due: Instant | None = None,
    ) -> Resumed | None:
        await self.driver.checkpoint()
        holder = node if isinstance(node, StageNode) else self._upcoming_node(path or encode_id(step), step)
        held = self.pauses_at(step, path)
        if held:
            reason = "breakpoint" if self._is_marked(step, path) else "step"
            await self._stop(holder, f"gate.{when}", reason, step, due)
        while self.waits.paused:
            goes_on = await self.waits.at_gate()
            if not (goes_on or held):
                await self._stop(holder, f"gate.{when}", "step", step, due)
            held = True
        brought = self.waits.take_variables()
        return Resumed(brought) if held or brought else None

    async def _stop(
        self, holder: StageNode, slot: str, reason: Literal["breakpoint", "step"], step: str, due: Instant | None
    ) -> None:
        """Wait at a pause of this node until it is resumed."""
        key = holder.key(slot)
        # A node may reach the same gate again without being entered: it was cancelled here and is retried.
        times = self._stops[key] = self._stops.get(key, 0) + 1
        pause = ev.RunPaused(reason=reason, step=step, timeout_at=due)
        outcome: ev.RunResumed = await self.asks.effect(holder, key if times == 1 else f"{key}.{times}", pause)
        self.waits.new_variables |= outcome.variables

    def _upcoming_node(self, path: str, name: str) -> StageNode:
        """The node execution that is about to be entered; it holds the pause of its breakpoint."""
        return StageNode(self.asks, path, self._iterations.get(path, 0) + 1, name, self.asks.now)

    def spawn(self, coro: Coroutine[Any, Any, T]) -> DriverTask[T]:
        return self.driver.spawn(coro)

    async def join(self, *tasks: Any) -> list[Settled[Any]]:
        return await self.driver.join(*tasks)

    async def first(self, *tasks: Any) -> Any:
        return await self.driver.first(*tasks)

    def collecting(self) -> StageCollection:
        self.waits.holds_effects = True
        return StageCollection(self.driver, self.waits)

    def cancel(self, task: Any, cause: Failure, owner: object = None) -> None:
        self.driver.cancel(task, cause, owner)

    def shield(self) -> Any:
        return self.driver.shield()

    async def within(
        self, due: Instant, coro: Coroutine[Any, Any, T], *, node: Node, slot: str, cause: Failure | None = None
    ) -> Ok[T] | Expired[T]:
        key = node.key(slot)
        try:
            await self.driver.checkpoint()
            self.ledger.use(key)
        except BaseException:
            coro.close()
            raise
        task = self.driver.spawn(coro)
        waiting = self.driver.current
        wait = Wait(self.driver, lambda _cause: self._drop_bound(key))
        task.on_settled(lambda: None if self.driver.is_pending(waiting) else wait.wake("settled"))
        self.waits.bind(key, Bound(due, wait.wake, cast(StageNode, node)))
        try:
            came = await wait
            self._drop_bound(key)
            if came == "expired":
                self.driver.cancel(task, cause or EXPIRED, key)
                await self.driver.join(task)
                assert task.settled is not None
                return Expired(task.settled)
        except Cancelled as cancelled:
            # The work has unwound already: raise its cause, which may differ from the one it was given.
            if isinstance(task.settled, Unwound) and task.settled.owner == cancelled.owner:
                raise Cancelled(task.settled.cause, cancelled.owner) from None
            raise
        match task.settled:
            case Ok() as ok:
                return ok
            case Unwound(cause, owner):
                # Another owner cancelled the work; this await is cancelled with it.
                raise Cancelled(cause, owner)
            case None:
                raise AssertionError("a settled task has a result")

    def _drop_bound(self, key: str) -> None:
        self.waits.bounds.pop(key, None)


DELIVERED_FACTS = frozenset({ev.CancelRequested.type, ev.HumanAnswered.type, ev.RunPaused.type})
"""Events that come from outside and are not outcomes."""
