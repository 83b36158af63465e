"""Waits: everything that is open in a run; a delivered event wakes the coroutine that waits for it.

These are effects without an outcome, bounds around work, questions and their answers, signals that have not been
awaited yet, and the gates of a paused run.
"""

import datetime as dt
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct, field

from callboard.bus import events as ev
from callboard.bus.events import Event, Payload
from callboard.bus.work import TurnWork, Work
from callboard.languages.language import Answered, Ask, Instant
from callboard.lib.json_types import JSON
from callboard.runtime.interpreter.driver import Driver, Wait
from callboard.runtime.interpreter.ledger import Execution, Ledger


class PendingEffect(Struct):
    """An intent that has no outcome yet; ``wake`` resumes the coroutine that waits for it.

    ``ordinal`` counts calls of the same kind in the run from 0, ``ordinal_of_id`` those of all nodes whose paths end in
    the same id. ``work`` is the function that a step calls, or that performs a
    model turn.
    """

    event: Event
    intent: Payload
    node: Execution
    wake: Callable[[Any], None]
    ordinal: int = 0
    ordinal_of_id: int = 0
    work: Work | TurnWork | None = None


class Bound(Struct):
    """A time limit around work. Setting one appends no event; if it elapses, ``timer.fired`` is appended."""

    due: Instant
    wake: Callable[[Any], None]
    node: Execution


class OpenQuestion(Struct):
    """A question to a person: answers queue up in log order until the interpreter takes them."""

    event: Event
    node: Execution
    asked: Ask
    closed: bool = False
    count: int = 0
    answers: deque[Answered] = field(default_factory=deque[Answered])
    wait: Wait | None = None

    @property
    def key(self) -> str:
        return self.event.key

    def deliver(self, answered: ev.HumanAnswered) -> None:
        self.count = max(self.count, answered.k)
        self.answers.append(
            Answered(
                answered.k,
                answered.user_response,
                answered.response_data,
                answered.by,
                answered.channel,
                tuple(answered.roles),
                answered.proven,
            )
        )
        wait, self.wait = self.wait, None
        if wait is not None:
            wait.wake()


class Waits:
    """Everything that is open in one run."""

    def __init__(self, ledger: Ledger, driver: Driver) -> None:
        self.effects: dict[str, PendingEffect] = {}
        self.bounds: dict[str, Bound] = {}
        self.questions: dict[str, OpenQuestion] = {}
        self.answered: dict[str, str] = {}
        """How each question or call that takes no more answers was closed, by key; used to refuse later answers."""
        self.paused = False
        self.paused_at: Instant | None = None
        self.stepping = False
        """Whether the run stops at every node: it was last resumed for a step."""
        self.holds_effects = False
        """Whether a pause by command holds the announcement of every effect, and not only the nodes at their gates."""
        self.delay = dt.timedelta()
        """How much later the bounds that are set now elapse: the time between a fork's origin and its continuation."""
        self.new_variables: dict[str, Any] = {}
        """Variables set by resumes or by a fork; the next gate returns them to the interpreter."""
        self._ledger = ledger
        self._driver = driver
        self._due: list[tuple[Instant, str]] = []
        """A heap of all deadlines so far; one that is no longer open is removed when it reaches the top."""
        self._signals: dict[str, deque[ev.SignalReceived]] = {}
        self._gates: list[Wait] = []

    def __bool__(self) -> bool:
        """Whether anything could wake the interpreter."""
        return bool(self.effects or self.questions or self.bounds or self.is_held)

    def over(self) -> None:
        """Forget everything that is open."""
        self.effects.clear()
        self.bounds.clear()
        self.questions.clear()
        self._gates.clear()

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, key: str, effect: PendingEffect) -> None:
        self.effects[key] = effect
        if isinstance(effect.intent, ev.TimerSet):
            heappush(self._due, (effect.intent.due, key))

    def bind(self, key: str, bound: Bound) -> None:
        self.bounds[key] = bound
        heappush(self._due, (bound.due + self.delay, key))

    async def at_gate(self) -> bool:
        """Wait until a command resumes the run; return whether this gate opens. A step opens only one gate."""
        wait = Wait(self._driver, lambda _cause: self._gates.remove(wait))
        self._gates.append(wait)
        return await wait

    async def until_released(self) -> None:
        """Wait at a gate as long as a pause holds every effect; a step, too, ends such a pause."""
        while self.is_holding:
            await self.at_gate()

    def release(self) -> None:
        """Let effects begin although the run is paused, because it is being cancelled and cleans up."""
        if self.holds_effects:
            self.holds_effects = False
            self._wake_gates()

    def take_variables(self) -> dict[str, Any]:
        """Return, and forget, the variables that resumes have set."""
        brought, self.new_variables = self.new_variables, {}
        return brought

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether anything waits at a gate because the run is paused."""
        return bool(self._gates)

    @property
    def is_holding(self) -> bool:
        """Whether a pause holds every effect now."""
        return self.paused and self.holds_effects

    def is_open(self, key: str) -> bool:
        """Whether an outcome of this key would still be the first."""
        return (key in self.effects or key in self.bounds) and not self._ledger.has_outcome(key)

    def is_open_child(self, key: str) -> bool:
        """Whether the run waits for the end of the child run that this effect has started."""
        effect = self.effects.get(key)
        return effect is not None and isinstance(effect.intent, ev.ChildStart) and self.is_open(key)

    def keys(self) -> list[str]:
        """Keys of everything that could wake the interpreter; ``pause`` is the key of a resume by command."""
        return [*self.effects, *self.questions, *self.bounds, *(["pause"] if self.is_held else [])]

    def intents(self) -> list[Payload]:
        """The intents without an outcome: effects and questions."""
        asked = [ev.decode_payload(one.event.type, one.event.payload) for one in self.questions.values()]
        return [*(effect.intent for effect in self.effects.values()), *asked]

    def pauses(self) -> list[str]:
        """Keys of the open pauses; the empty key is the pause by command."""
        keys = [key for key, effect in self.effects.items() if isinstance(effect.intent, ev.RunPaused)]
        return [*keys, ""] if self.paused else keys

    def step(self) -> list[str]:
        """Keys of the pauses that a step ends, so that the node that has been paused longest continues.

        A pause by command holds all nodes, so it ends first. If nothing waits at its gates, ending it alone would move
        no node, so a breakpoint ends with it.
        """
        held = [key for key in self.pauses() if key][:1]
        if not self.paused:
            return held
        return [""] if self._gates else ["", *held]

    def deadlines(self) -> list[tuple[Instant, str]]:
        """All open deadlines of sleeps and bounds, earliest first."""
        timers = [
            (effect.intent.due, key) for key, effect in self.effects.items() if isinstance(effect.intent, ev.TimerSet)
        ]
        return sorted([*timers, *((bound.due, key) for key, bound in self.bounds.items())])

    def deadline_of(self, key: str) -> Instant:
        """The deadline of an open timer or bound, as it was set."""
        bound = self.bounds.get(key)
        if bound is not None:
            return bound.due
        intent = self.effects[key].intent
        assert isinstance(intent, ev.TimerSet)
        return intent.due

    def next_deadline(self) -> tuple[Instant, str] | None:
        """The earliest open deadline without an outcome, found without scanning all of them."""
        while self._due and not self.is_open(self._due[0][1]):
            heappop(self._due)
        return self._due[0] if self._due else None

    def find_signal_wait(self, name: str, data: JSON = None) -> str | None:
        """Key of the oldest open wait that matches a signal of this name with this data."""
        for key, effect in self.effects.items():
            intent = effect.intent
            if isinstance(intent, ev.SignalAwaited) and intent.name == name and matches_signal(data, intent.match):
                return key
        return None

    def address_of(self, key: str) -> tuple[str, int, int]:
        """Path, iteration and attempt of the node that an open key belongs to; the run's own if the key is not open."""
        holder = self.effects.get(key) or self.bounds.get(key) or self.questions.get(key)
        return (holder.node.path, holder.node.iteration, holder.node.attempt) if holder is not None else ("", 0, 0)

    # -- delivery -----------------------------------------------------------------------------------------------------

    def deliver(self, event: Event, payload: Payload) -> None:
        """Wake the coroutine that waits for an event of the log."""
        match payload:
            case ev.RunPaused():
                # With a key it is the intent of a breakpoint, which its gate has announced.
                if not event.key and not self.paused:
                    self.paused, self.paused_at = True, event.time
            case ev.RunResumed():
                self.stepping = payload.step
                if event.key:
                    self._settle(event.key, payload)
                else:
                    self._open_gates(payload)
            case ev.HumanAnswered():
                question = self.questions.get(payload.interaction)
                if question is not None:
                    question.deliver(payload)
            case ev.SignalReceived() if not event.key:
                self._signals.setdefault(payload.name, deque()).append(payload)
            case _:
                self._settle(event.key, payload)

    def _open_gates(self, resumed: ev.RunResumed) -> None:
        self.paused = False
        # The next gate returns them, even if nothing waited at a gate when the run was resumed.
        self.new_variables |= resumed.variables
        self._wake_gates(all_open=not resumed.step)

    def _wake_gates(self, *, all_open: bool = True) -> None:
        gates, self._gates = self._gates, []
        for place, gate in enumerate(gates):
            gate.wake(place == 0 or all_open)

    def take_signal(self, name: str, match: JSON) -> ev.SignalReceived | None:
        """Return, and remove, the oldest matching signal that arrived before it was awaited."""
        kept = self._signals.get(name, ())
        received = next((signal for signal in kept if matches_signal(signal.data, match)), None)
        if received is not None:
            self._signals[name].remove(received)
        return received

    def keep_signals(self, signals: Sequence[ev.CarriedSignal]) -> None:
        """Keep signals that arrived at the run that this one continues."""
        for one in signals:
            self._signals.setdefault(one.name, deque()).append(ev.SignalReceived(one.name, one.data, one.by))

    def kept_signals(self) -> list[ev.SignalReceived]:
        """Return the signals that have not been awaited; those of one name in the order of their arrival."""
        return [signal for kept in self._signals.values() for signal in kept]

    def _settle(self, key: str, outcome: Payload) -> None:
        recorded = self._ledger.take_outcome(key)
        if isinstance(outcome, ev.EffectCancelled):
            if recorded is not None and (key in self.effects or key in self.questions):
                self._ledger.raise_divergence(recorded, "no cancellation of it")
            return
        effect = self.effects.pop(key, None)
        if effect is not None:
            if isinstance(effect.intent, ev.ToolCall) and effect.intent.via == "caller":
                self.answered[key] = "answered"
            effect.wake(outcome)
            return
        bound = self.bounds.pop(key, None)
        if bound is not None:
            if recorded is not None and isinstance(outcome, ev.TimerFired) and outcome.due != bound.due:
                self._ledger.raise_divergence(recorded, f"a bound due {bound.due.isoformat()}")
            bound.wake("expired")


def matches_signal(data: JSON, match: JSON) -> bool:
    """Return whether a signal with this data satisfies ``match``; None matches any signal."""
    return match is None or has_members(data, match)


def has_members(data: JSON, wanted: JSON) -> bool:
    """Return whether an object has all wanted members, recursively; whether any other value equals the wanted one."""
    match wanted, data:
        case dict(), dict():
            return all(name in data and has_members(data[name], value) for name, value in wanted.items())
        case (bool(), _) | (_, bool()):
            return wanted is data
        case _:
            return wanted == data
