"""The stage: what an interpreter may ask, answered from the journal where the log knows, stated anew where it does not.

The stage is pure machinery: it turns calls of the interpreter into events (through a `Sink`) and delivered events into
wakes of the driver. It performs no I/O and reads no clock; carrying effects out is the run's affair.
"""

import hmac
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from heapq import heappop, heappush
from typing import Any, Literal, Protocol, TypeVar

from callboard.bus import events as ev
from callboard.bus.effects import JSON, Failure, Usage
from callboard.bus.events import Event, NodeOutcome, Payload
from callboard.bus.paths import encode_id, last_id
from callboard.languages.language import (
    Answered,
    Ask,
    Cancelled,
    End,
    Expired,
    Instant,
    Node,
    Ok,
    Resumed,
    RunInfo,
    Settled,
    Unwound,
)
from callboard.languages.signals import is_meant
from callboard.runtime.driver import Driver, Task, Wait
from callboard.runtime.journal import Journal
from callboard.runtime.stagenode import Bound, Left, OpenEffect, StageNode, StageQuestion

T = TypeVar("T")

EXPIRED = Failure(code="expired", message="the time bound ran out", type="cancellation")


def _never() -> bool:
    return False


class Sink(Protocol):
    """Where the stage's events go when the log does not hold them yet."""

    def seal(self, payload: Payload) -> bytes:
        """Encode a payload in its recorded form: secrets replaced."""
        ...

    def write(self, event_type: str, payload: bytes, path: str, iteration: int, attempt: int, key: str) -> Event:
        """Number an event and queue it for its append."""
        ...

    def clock(self) -> Instant:
        """Read the run's clock, never before the last event's time."""
        ...

    def abandon(self, key: str) -> None:
        """Stop carrying an effect out: its scope was cancelled."""
        ...

    def close_toolbox(self, key: str) -> None:
        """The block of this toolbox has ended; its sessions may go."""
        ...


class Stage:
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
        pressed: Callable[[], bool] = _never,
    ) -> None:
        self.info = info
        self.sink = sink
        self.seed = seed
        self.driver = Driver(pressed)
        self.usage = Usage()
        self.open: dict[str, OpenEffect] = {}
        self.bounds: dict[str, Bound] = {}
        self._due: list[tuple[Instant, str]] = []
        """A heap of all deadlines that there have been; those that are no longer open leave it when they come first."""
        self.questions: dict[str, StageQuestion] = {}
        self.answered: dict[str, str] = {}
        """How what waited for an answer was closed, by key: who comes too late is told."""
        self.exits: dict[str, Left] = {}
        self.told: dict[str, Left] = {}
        self.entered: dict[tuple[str, int], StageNode] = {}
        self.paused = False
        self.paused_at: Instant | None = None
        self.cancelling = False
        self.killed: Failure | None = None
        self._run = run
        self._journal = journal
        self._used: set[str] = set()
        self._counted: set[str] = set()
        self._breakpoints = frozenset(breakpoints)
        self._iterations: dict[str, int] = {}
        self._ordinals: dict[str, int] = {}
        self._signals: dict[str, deque[ev.SignalReceived]] = {}
        self._gates: list[Wait] = []
        self._brought: dict[str, Any] = {}
        """What resumes brought, until a gate hands it on."""
        self._now = sink.clock()
        self._turn = 0
        self.root_node = StageNode(self, "", 1, "", self._now)
        self.main: Task[End] | None = None

    # -- the run's side ------------------------------------------------------------------------------------------------

    def begin(self, interpreter: Coroutine[Any, Any, End], started: Event) -> None:
        """Start the interpreter; ``started`` is the run's ``run.start``."""
        self._now = started.time
        self.root_node.entered_at = started.time
        self.main = self.driver.start(interpreter)
        self.driver.run()

    @property
    def unfinished(self) -> bool:
        """Whether the interpreter draws breath: `go_on` before the next event is delivered."""
        return self.driver.unfinished

    def go_on(self) -> None:
        """Let the interpreter go on where it has drawn breath."""
        self.driver.run()

    def deliver(self, event: Event, payload: Payload | None = None) -> None:
        """Deliver one event of the log and run to quiescence, or until the interpreter draws breath.

        Facts of the run itself change nothing here.
        """
        kind = ev.TYPES.get(event.type)
        self._count(event)
        if self.killed is not None or kind is None or (kind.kind != "outcome" and event.type not in _DELIVERED_FACTS):
            return
        self._now = event.time
        self._turn += 1
        payload = payload if payload is not None else ev.payload_of(event)
        match payload:
            case ev.CancelRequested():
                self.cancelling = True
                cause = Failure(code="cancelled", message=payload.message or payload.reason, type="cancellation")
                if payload.kill:
                    self.killed = cause
                elif self.main is not None:
                    self.driver.cancel(self.main, cause)
            case ev.RunPaused():
                # With a key it is a breakpoint's own intent, which its gate knows of.
                if not event.key and not self.paused:
                    self.paused, self.paused_at = True, event.time
            case ev.RunResumed(variables=variables) if not event.key:
                self.paused = False
                # The next gate has them, also if nothing stood at one when the run was resumed.
                self._brought |= variables
                gates, self._gates = self._gates, []
                for gate in gates:
                    gate.wake(payload)
            case ev.HumanAnswered():
                self._deliver_answer(payload)
            case ev.SignalReceived() if not event.key:
                self._signals.setdefault(payload.name, deque()).append(payload)
            case _:
                self._deliver_outcome(event.key, payload)
        if self.killed is None:
            self.driver.run()

    def _deliver_outcome(self, key: str, payload: Payload) -> None:
        recorded = self._journal.outcome(key)
        self._journal.forget(key)
        if isinstance(payload, ev.EffectCancelled):
            if recorded is not None and (key in self.open or key in self.questions):
                self._journal.diverged(recorded, "no cancellation of it")
            return
        effect = self.open.pop(key, None)
        if effect is not None:
            if isinstance(effect.intent, ev.ToolCall) and effect.intent.via == "caller":
                self.answered[key] = "answered"
            effect.wake(payload)
            return
        bound = self.bounds.pop(key, None)
        if bound is not None:
            if recorded is not None and isinstance(payload, ev.TimerFired) and payload.due != bound.due:
                self._journal.diverged(recorded, f"a bound due {bound.due.isoformat()}")
            bound.wake("expired")

    def _deliver_answer(self, payload: ev.HumanAnswered) -> None:
        question = self.questions.get(payload.interaction)
        if question is not None:
            question.count = max(question.count, payload.k)
            question.deliver(
                Answered(payload.k, payload.user_response, payload.response_data, payload.by, payload.channel)
            )

    def deadlines(self) -> list[tuple[Instant, str]]:
        """All open deadlines, of sleeps and of bounds, earliest first."""
        timers = [
            (effect.intent.due, key) for key, effect in self.open.items() if isinstance(effect.intent, ev.TimerSet)
        ]
        return sorted([*timers, *((bound.due, key) for key, bound in self.bounds.items())])

    def next_deadline(self) -> tuple[Instant, str] | None:
        """The earliest open deadline that has no outcome yet, found without a look at them all."""
        while self._due and not self.is_open(self._due[0][1]):
            heappop(self._due)
        return self._due[0] if self._due else None

    def pauses(self) -> list[str]:
        """Keys of the open pauses; the empty key is the pause by command."""
        keys = [key for key, effect in self.open.items() if isinstance(effect.intent, ev.RunPaused)]
        return [*keys, ""] if self.paused else keys

    def awaits(self) -> list[str]:
        """Keys of everything that could wake the interpreter; ``pause`` stands for a resume by command."""
        return [*self.open, *self.questions, *self.bounds, *(["pause"] if self.held else [])]

    def waits(self) -> bool:
        """Whether anything could wake the interpreter."""
        return bool(self.open or self.questions or self.bounds or self.held)

    @property
    def held(self) -> bool:
        """Whether something stands at a gate because the run is paused."""
        return bool(self._gates)

    def awaits_signal(self, name: str, data: JSON = None) -> str | None:
        """Key of the oldest open wait that a signal of this name, with this data, is for."""
        for key, effect in self.open.items():
            intent = effect.intent
            if isinstance(intent, ev.SignalAwaited) and intent.name == name and is_meant(data, intent.match):
                return key
        return None

    def address_of(self, key: str) -> tuple[str, int, int]:
        """Path, iteration and attempt of the node that something open belongs to; without a key, the run's."""
        holder = self.open.get(key) or self.bounds.get(key) or self.questions.get(key)
        return (holder.node.path, holder.node.iteration, holder.node.attempt) if holder is not None else ("", 0, 0)

    # -- events --------------------------------------------------------------------------------------------------------

    def state(self, payload: Payload, path: str, iteration: int, attempt: int, key: str = "") -> Event:
        """State a fact: the recorded one, verified, or a new one."""
        self.driver.check_alive()
        sealed = self.sink.seal(payload)
        recorded = self._journal.take_fact((payload.type, path, iteration, attempt, key))
        if recorded is None:
            return self.sink.write(payload.type, sealed, path, iteration, attempt, key)
        self._journal.verify(recorded, payload.type, sealed)
        return recorded

    def announce(self, node: StageNode, key: str, payload: Payload) -> Event:
        """Announce an effect: the recorded intent, verified, or a new one."""
        self.driver.check_alive()
        self._use(key)
        sealed = self.sink.seal(payload)
        recorded = self._journal.take_intent(key)
        if recorded is None:
            return self.sink.write(payload.type, sealed, node.path, node.iteration, node.attempt, key)
        self._journal.verify(recorded, payload.type, sealed)
        return recorded

    def _use(self, key: str) -> None:
        if key in self._used:
            raise ValueError(f"effect key used twice: {key}")
        self._used.add(key)

    async def effect(self, node: StageNode, key: str, intent: Payload, ordinal: int = 0) -> Any:
        """Announce an effect and wait for its outcome's payload."""
        await self.driver.checkpoint()
        event = self.announce(node, key, intent)
        wait = Wait(self.driver, lambda cause: self._abandon(key, cause))
        self.open[key] = OpenEffect(event, intent, node, wait.wake, ordinal)
        if isinstance(intent, ev.TimerSet):
            heappush(self._due, (intent.due, key))
        return await wait

    def _abandon(self, key: str, cause: Failure) -> None:
        effect = self.open.pop(key)
        self.close_intent(key, effect.node, effect.intent.type, cause)

    def close_by_runtime(self, key: str, outcome: Event) -> None:
        """Note that the run has numbered an outcome of this key."""
        self._journal.close(key, outcome)
        self._count(outcome)

    def _count(self, event: Event) -> None:
        """Add what a turn or a child run cost, once: when that is numbered, whether or not it is ever delivered."""
        if event.type in (ev.ModelResult.type, ev.ChildEnd.type) and event.key not in self._counted:
            self._counted.add(event.key)
            result = ev.payload_of(event)
            assert isinstance(result, ev.ModelResult | ev.ChildEnd)
            self.usage += result.usage

    def is_open(self, key: str) -> bool:
        """Whether an outcome of this key would still be the first."""
        return (key in self.open or key in self.bounds) and self._journal.outcome(key) is None

    def close_intent(self, key: str, node: StageNode, of: str, cause: Failure) -> None:
        """Close an intent as cancelled, unless it has an outcome already, delivered or not (rule R2)."""
        if self._journal.outcome(key) is None:
            cancelled = ev.EffectCancelled(of=of, cause=cause)
            sealed = self.sink.seal(cancelled)
            written = self.sink.write(cancelled.type, sealed, node.path, node.iteration, node.attempt, key)
            self._journal.close(key, written)
        self.sink.abandon(key)

    def abandon_everything(self, cause: Failure, outcome: NodeOutcome) -> None:
        """Close every open intent and leave every open node, without asking the interpreter."""
        for key, effect in list(self.open.items()):
            self.close_intent(key, effect.node, effect.intent.type, cause)
        for key, question in list(self.questions.items()):
            self.close_intent(key, question.node, ev.HumanAsked.type, cause)
        for node in reversed(list(self.entered.values())):
            node.exit(outcome, error=cause)

    def verify_replayed(self) -> None:
        """Check that the replay has come to everything that the log records.

        :raises ReplayDiverged: if it has not
        """
        self._journal.verify_spent()

    def left_behind(self, node: StageNode, left: Left, *, kept: bool) -> None:
        """Keep what a node execution leaves for later messages; other constructs only what is to be ``kept``."""
        if kept or node.kind == "node":
            self.exits[f"{node.path}#{node.iteration}"] = left
            self.told[node.name] = left
        self.entered.pop((node.path, node.iteration), None)

    def ordinal(self, what: str) -> int:
        """Count like calls in the order in which the interpreter makes them."""
        number = self._ordinals.get(what, 0)
        self._ordinals[what] = number + 1
        return number

    def read_clock(self, node: StageNode, key: str) -> Instant:
        self.driver.check_alive()
        recorded = self._journal.take_fact((ev.ClockRead.type, node.path, node.iteration, node.attempt, key))
        if recorded is None:
            read = ev.ClockRead(value=self.sink.clock())
            self.sink.write(read.type, self.sink.seal(read), node.path, node.iteration, node.attempt, key)
            return read.value
        payload = ev.payload_of(recorded)
        assert isinstance(payload, ev.ClockRead)
        return payload.value

    def child_id(self, key: str) -> str:
        """The run id of a child: a function of this run and the key, so that a second start is the same run."""
        return str(uuid.uuid5(uuid.UUID(hmac.digest(b"callboard", self._run.encode(), "sha256").hex()[:32]), key))

    # -- questions and signals -----------------------------------------------------------------------------------------

    def ask(self, node: StageNode, key: str, ask: Ask) -> StageQuestion:
        intent = ev.HumanAsked(
            question=ask.question,
            interaction_type=ask.type,
            options=ask.options,
            channel_type=ask.channel_type,
            request_data=ask.request_data,
            timeout_at=ask.timeout_at,
            timeout_action=ask.timeout_action,
        )
        question = StageQuestion(
            self, self.announce(node, key, intent), node, key, ask.question, ask.timeout_at, ask.refuses
        )
        self.questions[key] = question
        return question

    def close_question(self, question: StageQuestion, closed: ev.HumanClosed) -> None:
        node = question.node
        del self.questions[question.key]
        self.answered[question.key] = closed.outcome
        self._close_here(node, question.key, closed)

    def _close_here(self, node: StageNode, key: str, outcome: Payload) -> Event:
        """State an outcome that the interpreter itself decides on: the recorded one or a new one."""
        self.driver.check_alive()
        sealed = self.sink.seal(outcome)
        recorded = self._journal.outcome(key)
        if recorded is None:
            return self.sink.write(outcome.type, sealed, node.path, node.iteration, node.attempt, key)
        self._journal.verify(recorded, outcome.type, sealed)
        return recorded

    async def await_signal(self, node: StageNode, key: str, intent: ev.SignalAwaited) -> ev.SignalReceived:
        kept = self._signals.get(intent.name, ())
        received = next((signal for signal in kept if is_meant(signal.data, intent.match)), None)
        if received is None:
            awaited: ev.SignalReceived = await self.effect(node, key, intent)
            return awaited
        await self.driver.checkpoint()
        self.announce(node, key, intent)
        self._signals[intent.name].remove(received)
        self._close_here(node, key, received)
        return received

    # -- the interpreter's side: `callboard.languages.language.Stage` -------------------------------------------------

    @property
    def root(self) -> StageNode:
        return self.root_node

    def now(self) -> Instant:
        return self._now

    def turn(self) -> int:
        return self._turn

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
        event = self.state(payload, path, iteration, 1)
        entered = StageNode(self, path, iteration, node, event.time, kind)
        self.entered[path, iteration] = entered
        return entered

    def place(self, path: str, node: str = "") -> StageNode:
        iteration = self._iterations.get(path, 0) + 1
        self._iterations[path] = iteration
        return StageNode(self, path, iteration, node or last_id(path), self._now, "place")

    async def checkpoint(self) -> None:
        await self.driver.checkpoint()

    async def breathe(self) -> None:
        await self.driver.breathe()

    def resolved(self, sources: dict[str, dict[str, Any]]) -> None:
        self.state(ev.SourcesResolved(sources=sources), "", 1, 1)

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
        held = False
        if step in self._breakpoints or path in self._breakpoints:
            holder = node if isinstance(node, StageNode) else self._coming(path or encode_id(step), step)
            pause = ev.RunPaused(reason="breakpoint", step=step, timeout_at=due)
            outcome: ev.RunResumed = await self.effect(holder, holder.key(f"gate.{when}"), pause)
            self._brought |= outcome.variables
            held = True
        while self.paused:
            wait = Wait(self.driver)
            self._gates.append(wait)
            await wait
            held = True
        brought, self._brought = self._brought, {}
        return Resumed(brought) if held or brought else None

    def _coming(self, path: str, name: str) -> StageNode:
        """The node execution that is about to be entered, as the holder of its breakpoint's pause."""
        return StageNode(self, path, self._iterations.get(path, 0) + 1, name, self._now)

    def spawn(self, coro: Coroutine[Any, Any, T]) -> Task[T]:
        return self.driver.spawn(coro)

    async def join(self, *tasks: Any) -> list[Settled[Any]]:
        return await self.driver.join(*tasks)

    async def first(self, *tasks: Any) -> Any:
        return await self.driver.first(*tasks)

    def cancel(self, task: Any, cause: Failure, owner: object = None) -> None:
        self.driver.cancel(task, cause, owner)

    def shield(self) -> Any:
        return self.driver.shield()

    async def within(
        self, due: Instant, coro: Coroutine[Any, Any, T], *, node: Node, slot: str, cause: Failure | None = None
    ) -> Ok[T] | Expired[T]:
        assert isinstance(node, StageNode)
        key = node.key(slot)
        try:
            await self.driver.checkpoint()
            self._use(key)
        except BaseException:
            coro.close()
            raise
        task = self.driver.spawn(coro)
        waiting = self.driver.current
        wait = Wait(self.driver, lambda _cause: self._drop_bound(key))
        task.on_settled(lambda: None if self.driver.is_pending(waiting) else wait.wake("settled"))
        self.bounds[key] = Bound(due, wait.wake, node)
        heappush(self._due, (due, key))
        try:
            came = await wait
            self._drop_bound(key)
            if came == "expired":
                self.driver.cancel(task, cause or EXPIRED, key)
                await self.driver.join(task)
                assert task.settled is not None
                return Expired(task.settled)
        except Cancelled as cancelled:
            # The work unwound first; what it came to meanwhile is what goes on.
            if isinstance(task.settled, Unwound) and task.settled.owner == cancelled.owner:
                raise Cancelled(task.settled.cause, cancelled.owner) from None
            raise
        match task.settled:
            case Ok() as ok:
                return ok
            case Unwound(cause, owner):
                # The work was cancelled by somebody else: that is this await's fate too.
                raise Cancelled(cause, owner)
            case None:
                raise AssertionError("a settled task has a result")

    def _drop_bound(self, key: str) -> None:
        self.bounds.pop(key, None)


_DELIVERED_FACTS = frozenset({ev.CancelRequested.type, ev.HumanAnswered.type, ev.RunPaused.type})
"""Events that are no outcomes and come from outside."""
