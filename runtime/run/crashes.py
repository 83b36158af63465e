"""Crashes: how often workers have ended in the middle of a run, counted from the run's log alone.

An activation begins with ``run.claimed``. It ends properly with ``run.parked``, ``run.released`` or ``run.diverged``.
If the next claim follows without one of these, the worker was killed, has failed, or has lost the run. An effect that
was open each time may be what kills the workers, so it fails by name after `EFFECT_CRASHES_MAX` of them. A run whose
workers crash without recording anything is quarantined after `FRUITLESS_MAX` activations.

The failed tries of an open effect are counted too, so that a worker that takes a run over continues the count.
"""

import datetime as dt
from collections.abc import Iterable, Mapping

import anyio
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, Payload, payload_of
from callboard.bus.subjects import RunRef

CODE = "worker.crashed"
TOOL_CODE = "tool.crashed"

EFFECT_CRASHES_MAX = 5
"""Crashes during one execution of an effect, after which the effect fails instead of being executed again."""

FRUITLESS_MAX = 6
"""Activations in a row that recorded nothing, after which a run is quarantined. One more than `EFFECT_CRASHES_MAX`, so
that one activation is left after its effects have failed."""

PROBATION_CRASHES = 2
"""From this number of crashes on, a worker performs only one such run at a time, so that other runs are not blamed."""

PROBATION_RETRY_S = 2.0
"""Pause before a run is tried again while another run is on probation at this worker."""

PAUSE_S = 1.0
PAUSE_FACTOR = 4.0
PAUSE_MAX_S = 60.0
"""Pause between a crash and the next claim: none after the first crash, then growing by the factor."""

_CLEAN_ENDS = frozenset({ev.RunParked.type, ev.RunReleased.type, ev.RunDiverged.type})
_EXECUTED = frozenset({ev.ModelCall.type, ev.ToolCall.type, ev.EffectCall.type})


class Crashes(Struct, frozen=True):
    """The crashes of a run that has not ended, as recorded in its log.

    ``fruitless`` counts the activations in a row that crashed and recorded nothing but their claim. ``effects`` counts
    by effect key the crashes since the intent of each effect that is still open. ``claimed_at`` is the time of the last
    claim.
    """

    fruitless: int = 0
    effects: Mapping[str, int] = {}
    claimed_at: dt.datetime | None = None

    @property
    def worst(self) -> int:
        """The largest of the counts."""
        return max((self.fruitless, *self.effects.values()))

    def pause_s(self, now: dt.datetime) -> float:
        """Return how many seconds the run still has to wait before it is claimed again."""
        if self.worst < PROBATION_CRASHES or self.claimed_at is None:
            return 0.0
        if max(self.effects.values(), default=0) >= EFFECT_CRASHES_MAX:
            # The effect fails now; it is not executed again.
            return 0.0
        pause_s = min(PAUSE_S * PAUSE_FACTOR ** (self.worst - PROBATION_CRASHES), PAUSE_MAX_S)
        return max(0.0, pause_s - (now - self.claimed_at).total_seconds())


class NotYet(CallboardError):
    """The run is not claimed now, because workers crashed while they performed it. Try again after ``delay_s``."""

    def __init__(self, ref: RunRef, crashes: int, delay_s: float) -> None:
        message = f"{crashes} workers in a row have ended while they performed the run; next try in {delay_s:.1f} s"
        super().__init__(CODE, message, ref.run)
        self.delay_s = delay_s


class KeepsCrashing(CallboardError):
    """The run is not claimed again: every worker that claimed it ended before it recorded anything."""

    def __init__(self, ref: RunRef, crashes: int) -> None:
        message = f"{crashes} workers in a row have ended before they recorded anything of the run"
        super().__init__(CODE, message, ref.run, "End it with `callboard kill`, or fork it before its last event.")


def crashes_of(events: Iterable[Event], shared: int = 0) -> Crashes:
    """Count the crashes of a run that is about to be claimed.

    In a fork, events up to the number ``shared`` belong to its origin, so their claims do not count.
    """
    count = _Count()
    for event in events:
        count.take(event, own=event.n > shared)
    count.end_activation()
    return Crashes(count.fruitless, count.effects, count.claimed_at)


class _Count:
    """The counts after some of a run's events."""

    def __init__(self) -> None:
        self.fruitless = 0
        self.effects: dict[str, int] = {}
        self.claimed_at: dt.datetime | None = None
        self._active = False
        self._recorded = False

    def take(self, event: Event, *, own: bool) -> None:
        kind = ev.TYPES.get(event.type)
        if event.type in _EXECUTED:
            self.effects[event.key] = 0
        elif kind is not None and kind.kind == "outcome":
            self.effects.pop(event.key, None)
        if not own:
            return
        if kind is ev.RunClaimed:
            self.end_activation()
            self.claimed_at, self._active, self._recorded = event.time, True, False
        elif event.type in _CLEAN_ENDS:
            self.fruitless, self._active = 0, False
        else:
            self._recorded = True

    def end_activation(self) -> None:
        """Count the last activation as crashed, unless it has ended properly."""
        if not self._active:
            return
        self.fruitless = 0 if self._recorded else self.fruitless + 1
        self.effects = {key: count + 1 for key, count in self.effects.items()}


def failure_of(intent: Payload, crashes: int) -> Failure:
    """Return the failure of an effect during which workers have crashed."""
    message = f"{crashes} workers in a row have ended while this was being executed; it is not tried again"
    return Failure(code=TOOL_CODE if isinstance(intent, ev.ToolCall) else CODE, message=message)


class Probation:
    """Limits a worker to one run at a time of those whose workers keep crashing."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)

    def enter(self, run: object) -> bool:
        """Take the place for a run; False if another run has it."""
        try:
            self._limiter.acquire_on_behalf_of_nowait(run)
        except anyio.WouldBlock:
            return False
        return True

    def leave(self, run: object) -> None:
        """Give up the place that a run has."""
        self._limiter.release_on_behalf_of(run)


_MEMBER = b'"tries"'


def count_failed_tries(events: Iterable[Event], after: int = 0) -> dict[str, int]:
    """Return how many tries of each effect have failed, by effect key, as far as they are recorded as progress.

    ``after`` is the last event that a fork shares with its origin. The fork repeats the effects that were open there.
    """
    found: dict[str, int] = {}
    for event in events:
        if event.type != ev.NodeProgress.type or event.n <= after or _MEMBER not in bytes(event.payload):
            continue
        match payload_of(event):
            case ev.NodeProgress(data={"tries": int(tries)}) if event.key:
                found[event.key] = max(tries, found.get(event.key, 0))
            case _:
                continue
    return found
