"""The ledger: takes each event that an interpreter states from the journal, or writes it to the sink if it is new.

Everything that is stated both live and in replay passes through the ledger, which verifies it (rule R4) and closes
each intent only once (rule R2).
"""

from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from callboard.bus import events as ev
from callboard.bus.effects import Failure, ToolboxRecord
from callboard.bus.events import Event, Payload
from callboard.languages.language import Alike, Instant
from callboard.projections.run.warnings import WarnedFold
from callboard.runtime.interpreter.computation import call_on_run_thread
from callboard.runtime.interpreter.driver import Driver
from callboard.runtime.interpreter.journal import Journal
from callboard.runtime.interpreter.usage import UsageFold


class Sink(Protocol):
    """Receives the events that are not in the log yet."""

    observes: bool
    """Whether the events are only looked at, and never recorded: the code has been performed before."""

    def seal(self, payload: Payload, /) -> bytes:
        """Encode a payload in its recorded form, with secrets replaced."""
        ...

    def write(
        self, event_type: str, payload: bytes, path: str, iteration: int, attempt: int, key: str, source: str, /
    ) -> Event:
        """Number an event and queue it to be appended."""
        ...

    def clock(self) -> Instant:
        """Read the run's clock, which is never before the time of the last event."""
        ...

    def abandon(self, key: str) -> None:
        """Stop carrying out an effect whose scope was cancelled."""
        ...

    def close_toolbox(self, key: str) -> None:
        """Allow the sessions of a toolbox to be closed: its block has ended."""
        ...


@dataclass(slots=True, eq=False)
class Execution:
    """One node execution, or a place that is not a node: its address and its conversation with models.

    ``calls`` and ``replies`` are its model turns and ``outputs`` its tool results, by effect key; ``toolboxes`` are its
    open toolboxes. ``source`` is the place in the code that requests its next effect, and ``alike`` compares requests
    in a replay.
    """

    path: str
    iteration: int
    name: str
    entered_at: Instant
    kind: str = "node"
    attempt: int = 1
    source: str = ""
    alike: Alike | None = None
    calls: dict[str, ev.ModelCall] = field(default_factory=dict[str, ev.ModelCall])
    replies: dict[str, ev.ModelResult] = field(default_factory=dict[str, ev.ModelResult])
    outputs: dict[str, ev.ToolResult] = field(default_factory=dict[str, ev.ToolResult])
    toolboxes: dict[str, ToolboxRecord] = field(default_factory=dict[str, ToolboxRecord])


class Ledger:
    """Turns the statements of one run's interpreter into events.

    Each statement returns the recorded event, after verifying it, or writes a new one.
    """

    def __init__(self, journal: Journal, sink: Sink, driver: Driver) -> None:
        self._journal = journal
        self._sink = sink
        self._driver = driver
        self._used: set[str] = set()
        self.seal = sink.seal
        self.observed = sink.observes
        self.usage = UsageFold()
        self.replaying = False
        """Whether the log holds later events than the one that is being delivered."""
        self.warned = WarnedFold()

    def state(self, payload: Payload, path: str, iteration: int, attempt: int, alike: Alike | None = None) -> Event:
        """State a fact; return its event, recorded and verified or new."""
        self._driver.check_alive()
        self.warned.apply(path, payload)
        sealed = self._sink.seal(payload)
        recorded = self._journal.take_fact((payload.type, path, iteration, attempt, ""))
        if recorded is None:
            return self._journal.note_new(self._sink.write(payload.type, sealed, path, iteration, attempt, "", ""))
        self._journal.verify(recorded, payload.type, sealed, alike=alike)
        return recorded

    def announce(self, node: Execution, key: str, intent: Payload) -> Event:
        """Announce an effect; return its intent, recorded and verified or new."""
        self._driver.check_alive()
        self.use(key)
        sealed = self._sink.seal(intent)
        recorded = self._journal.intent(key)
        if recorded is not None:
            # A diverging intent stays in the journal, so that `close_unrequested` can close it when the run ends.
            self._journal.verify(recorded, intent.type, sealed, node.source, node.alike)
            return self._journal.take_intent(key, node.source) or recorded
        return self._recorded_or_new(None, node, key, intent.type, sealed)

    def recorded_intent(self, key: str) -> Event | None:
        """Return the recorded intent of a key that the interpreter has not announced again."""
        return self._journal.intent(key)

    def close(self, node: Execution, key: str, outcome: Payload) -> Event:
        """State an outcome that the interpreter itself decides; return its event, recorded and verified or new."""
        self._driver.check_alive()
        sealed = self._sink.seal(outcome)
        return self._recorded_or_new(self._journal.outcome(key), node, key, outcome.type, sealed)

    def _recorded_or_new(
        self, recorded: Event | None, node: Execution, key: str, event_type: str, sealed: bytes
    ) -> Event:
        if recorded is None:
            at = (node.path, node.iteration, node.attempt, key, node.source)
            return self._journal.note_new(self._sink.write(event_type, sealed, *at))
        self._journal.verify(recorded, event_type, sealed, node.source)
        return recorded

    def cancel(self, node: Execution, key: str, of: str, cause: Failure) -> None:
        """Close an intent as cancelled, unless it has an outcome already, delivered or not (rule R2)."""
        if self._journal.outcome(key) is None:
            cancelled = ev.EffectCancelled(of=of, cause=cause)
            sealed = self._sink.seal(cancelled)
            written = self._sink.write(cancelled.type, sealed, node.path, node.iteration, node.attempt, key, "")
            self._journal.close(key, written)
        self._sink.abandon(key)

    def read_clock(self, node: Execution, key: str) -> Instant:
        """Return the recorded time, or read the clock now. A computation on another thread may call this too."""
        return call_on_run_thread(lambda: self._read_clock(node, key))

    def _read_clock(self, node: Execution, key: str) -> Instant:
        self._driver.check_alive()
        recorded = self._journal.take_fact((ev.ClockRead.type, node.path, node.iteration, node.attempt, key))
        if recorded is None:
            read = ev.ClockRead(value=self._sink.clock())
            self._sink.write(read.type, self._sink.seal(read), node.path, node.iteration, node.attempt, key, "")
            return read.value
        payload = ev.payload_of(recorded)
        assert isinstance(payload, ev.ClockRead)
        return payload.value

    def mark(self, node: Execution, id: str) -> bool:
        """Return whether the run passes a marker of changed code: if the log has it, or nothing recorded follows."""
        self._driver.check_alive()
        recorded = self._journal.take_fact((ev.CodeMarked.type, node.path, node.iteration, node.attempt, id))
        if recorded is None and not self.replaying:
            marked = ev.CodeMarked(id)
            at = (node.path, node.iteration, node.attempt, id, node.source)
            self._sink.write(marked.type, self._sink.seal(marked), *at)
        return recorded is not None or not self.replaying

    @property
    def has_effects(self) -> bool:
        """Whether the interpreter has announced any effect."""
        return bool(self._used)

    def use(self, key: str) -> None:
        """Use an effect key, once.

        :raises ValueError: if it has been used
        """
        if key in self._used:
            raise ValueError(f"effect key used twice: {key}")
        self._used.add(key)

    def record_outcome(self, key: str, outcome: Event) -> None:
        """Record that an outcome of this key has been numbered from outside: no other may follow."""
        self._journal.close(key, outcome)
        self.usage.count(outcome)

    def has_outcome(self, key: str) -> bool:
        """Whether an outcome of this key is in the log or has been numbered, delivered or not."""
        return self._journal.outcome(key) is not None

    def take_outcome(self, key: str) -> Event | None:
        """Return, and forget, the outcome of a key that is being delivered."""
        recorded = self._journal.outcome(key)
        self._journal.forget(key)
        return recorded

    def raise_divergence(self, recorded: Event, asked: str) -> NoReturn:
        """:raises ReplayDiverged: always"""
        self._journal.raise_divergence(recorded, asked)

    def close_toolbox(self, key: str) -> None:
        """Allow the sessions of a toolbox to be closed: its block has ended."""
        self._driver.check_alive()
        self._sink.close_toolbox(key)

    def close_unrequested(self, cause: Failure) -> None:
        """Close the recorded intents that this replay has not reached."""
        for event in self._journal.unrequested_intents():
            cancelled = ev.EffectCancelled(of=event.type, cause=cause)
            sealed = self._sink.seal(cancelled)
            at = (event.path, event.iteration, event.attempt, event.key)
            self._journal.close(event.key, self._sink.write(cancelled.type, sealed, *at, ""))
            self._sink.abandon(event.key)

    def verify_replayed(self, *, ends: bool = False) -> None:
        """Check that a replay has reached every recorded event. If it ``ends``, its last events are not stated yet.

        :raises ReplayDiverged: if it has not
        """
        self._journal.verify_spent((ev.RunFailed.type, ev.RunEnd.type) if ends else ())
