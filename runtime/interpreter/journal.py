"""The journal: a run's recorded events, indexed by address, so that a replay states nothing twice.

Facts are found by type and node execution, in the order in which they were stated; intents and outcomes by effect key.
Events are matched by address, not by position (rule R4), because a crash may have cut a turn off anywhere.
"""

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable
from typing import Any, NoReturn

from callboard.bus.errors import ReplayDiverged
from callboard.bus.events import TYPES, Difference, Event, RunEnd, RunFailed
from callboard.bus.subjects import RunRef
from callboard.languages.language import Alike
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.text import without_addresses, without_order

RUNTIME_FACTS = frozenset(
    {
        "run.accepted",
        "run.adopted",
        "run.claimed",
        "run.diverged",
        "run.parked",
        "run.quarantined",
        "run.released",
        "run.start",
        "cancel.requested",
        "child.usage",
        "command.refused",
        "human.answered",
    }
)
"""Facts that the runtime states from outside the interpreter; a replay does not request them again."""

_SHOWN_BYTES_MAX = 2_000

FactAddress = tuple[str, str, int, int, str]


class Journal:
    """The recorded events of one run that its replay has not requested yet."""

    def __init__(self, ref: RunRef, events: Iterable[Event] = (), places: Collection[int] = ()) -> None:
        """``places`` are event numbers. `on_reached` is called when the replay has requested all events up to one."""
        self._ref = ref
        self._left = dict.fromkeys(places, 0)
        self.on_reached: Callable[[int], None] = _nothing
        """Called with each of those places when the replay reaches it."""
        self._facts: dict[FactAddress, deque[Event]] = {}
        self._intents: dict[str, Event] = {}
        self._outcomes: dict[str, Event] = {}
        self._diverged: ReplayDiverged | None = None
        self._new: Event | None = None
        self._ahead: list[tuple[Event, str]] = []
        """Recorded intents that the replay has requested before their place in the log, with the places in the code."""
        self._missed: ReplayDiverged | None = None
        for event in events:
            self._index(event)

    def _index(self, event: Event) -> None:
        payload = TYPES.get(event.type)
        if payload is None:
            return
        if payload.kind == "intent" and event.key:
            self._intents[event.key] = event
            self._count(event, 1)
        elif payload.kind == "outcome" and event.key:
            self._outcomes[event.key] = event
        elif payload.kind == "fact" and event.type not in RUNTIME_FACTS and not is_actors_own(event):
            self._facts.setdefault(_address(event), deque()).append(event)
            self._count(event, 1)

    def close(self, key: str, outcome: Event) -> None:
        """Record that an outcome of this key has been numbered: no other may follow (rule R2)."""
        self._outcomes[key] = outcome

    def outcome(self, key: str) -> Event | None:
        """The outcome of a key that is in the log or has been numbered, whether delivered or not."""
        return self._outcomes.get(key)

    def forget(self, key: str) -> None:
        """Drop an outcome that is not needed again."""
        self._outcomes.pop(key, None)

    def take_fact(self, address: FactAddress) -> Event | None:
        """Return, and remove, the next recorded fact of an address."""
        facts = self._facts.get(address)
        if not facts:
            return None
        event = facts.popleft()
        if not facts:
            del self._facts[address]
        self._note_requested(event)
        return event

    def intent(self, key: str) -> Event | None:
        """The recorded intent of a key, if the replay has not requested it yet."""
        return self._intents.get(key)

    def take_intent(self, key: str, source: str = "") -> Event | None:
        """Return, and remove, the recorded intent of a key; ``source`` is the place in the code that requests it."""
        event = self._intents.pop(key, None)
        if event is not None:
            self._ahead.append((event, source))
            self._note_requested(event)
        return event

    def note_delivery(self, outcome: Event) -> None:
        """Note that an outcome is delivered, whose intent the replay must have requested by now.

        If it has not, its requests are in another order, and this is the first difference.
        """
        self._ahead = [(event, source) for event, source in self._ahead if event.n > outcome.n]
        missed = self._intents.get(outcome.key) if outcome.key else None
        if missed is None or self._missed is not None or self._diverged is not None:
            return
        new = [] if self._new is None else [(self._new, self._new.source)]
        for event, source in [*new, *self._ahead]:
            requested = show_request(event.type, bytes(event.payload), event.key or event.path)
            self._missed = ReplayDiverged(self._ref, missed.n, _difference(missed, requested, source))
            return
        self._missed = ReplayDiverged(self._ref, missed.n, _difference(missed))

    def has_reached(self, place: int) -> bool:
        """Whether the replay has requested every event up to a place."""
        return not self._left[place]

    def _note_requested(self, event: Event) -> None:
        for place in self._count(event, -1):
            if not self._left[place]:
                self.on_reached(place)

    def _count(self, event: Event, more: int) -> list[int]:
        """Adjust the number of events left up to each place; return the places at or after the event."""
        if not self._left:
            return []
        places = [place for place in self._left if event.n <= place]
        for place in places:
            self._left[place] += more
        return places

    def note_new(self, event: Event) -> Event:
        """Note a request that is not in the log, and return it.

        The first one in a replay shows which event the definition requests in place of the recorded one.
        """
        if self._new is None and (self._intents or self._facts) and TYPES[event.type].kind != "outcome":
            self._new = event
        return event

    def verify(
        self, recorded: Event, event_type: str, payload: bytes, source: str = "", alike: Alike | None = None
    ) -> None:
        """Check that the requested event, at ``source`` in the code if known, equals the recorded one, or is ``alike``.

        :raises ReplayDiverged: if type or payload differ; its message shows both events
        """
        same = bytes(recorded.payload) == payload or _ends_alike(recorded, payload)
        if not same and recorded.type == event_type:
            # The members of an object have no order. Code may add them in that of a set.
            before, now = decode_json(bytes(recorded.payload)), decode_json(payload)
            same = canonical(before) == canonical(now) or (alike is not None and alike(before, now))
        if recorded.type != event_type or not same:
            stated = payload if recorded.type == event_type else None
            self.raise_divergence(
                recorded, show_request(event_type, payload, recorded.key or recorded.path), source, stated
            )

    def raise_divergence(
        self, recorded: Event, requested: str, source: str = "", stated: bytes | None = None
    ) -> NoReturn:
        """Raise a divergence and remember it, so that an interpreter that catches exceptions cannot hide it.

        :raises ReplayDiverged: always
        """
        error = ReplayDiverged(self._ref, recorded.n, _difference(recorded, requested, source), stated)
        self._diverged = self._diverged or error
        raise error

    def unrequested_intents(self) -> list[Event]:
        """Return the recorded intents without an outcome that the replay has not requested."""
        return [event for key, event in self._intents.items() if key not in self._outcomes]

    def verify_spent(self, besides: Container[str] = ()) -> None:
        """Check, at the end of a replay, that it has requested every recorded event, ``besides`` those of some types.

        :raises ReplayDiverged: if the log holds a fact or intent that the replay did not reach
        """
        if self._diverged is not None:
            raise self._diverged
        left = [*self._intents.values(), *(event for facts in self._facts.values() for event in facts)]
        left = [event for event in left if event.type not in besides]
        first = min(left, key=lambda event: event.n, default=None)
        if self._missed is not None and (first is None or self._missed.n <= first.n):
            raise self._missed
        if first is not None:
            if self._new is None:
                raise ReplayDiverged(self._ref, first.n, _difference(first))
            requested = show_request(self._new.type, bytes(self._new.payload), self._new.key or self._new.path)
            raise ReplayDiverged(self._ref, first.n, _difference(first, requested, self._new.source))


def _nothing(_place: int) -> None:
    """The ``on_reached`` of a run that is not a fork."""


def is_actors_own(event: Event) -> bool:
    """Whether an event is progress or a warning of an effect, which has a key, and not of the interpreter."""
    return bool(event.key) and event.type in ("node.progress", "node.warning")


def _ends_alike(recorded: Event, payload: bytes) -> bool:
    """Whether two ends of a run differ only in what depends on the process or on an edit that has moved lines.

    These are the lines of code at which the run failed, its traceback, and in the message the addresses of objects and
    the order of sets.
    """
    if recorded.type not in (RunFailed.type, RunEnd.type):
        return False
    before, now = decode_json(bytes(recorded.payload)), decode_json(payload)
    if not isinstance(before, dict) or not isinstance(now, dict) or not before.get("error") or not now.get("error"):
        return False
    return {**before, "error": comparable_failure(before["error"])} == {
        **now,
        "error": comparable_failure(now["error"]),
    }


def comparable_failure(failure: Any) -> Any:
    """Return the record of a failure without the places in its code, which are in `details.at`, `details.traceback` and
    at the end of the message, without addresses, and with sorted sets."""
    if not isinstance(failure, dict):
        return failure
    kept = {**failure}
    details = kept.get("details")
    message = str(kept.get("message", ""))
    if isinstance(details, dict):
        places = details["at"] if isinstance(details.get("at"), list) else []
        for place in places:
            message = message.removesuffix(f" ({place})")
        left_out = ("at", "traceback") if places else ("traceback",)
        kept["details"] = {name: value for name, value in details.items() if name not in left_out}
    previous = comparable_failure(kept.get("previous"))
    return {**kept, "message": without_order(without_addresses(message)), "previous": previous}


def _address(event: Event) -> FactAddress:
    return event.type, event.path, event.iteration, event.attempt, event.key


def _difference(recorded: Event, requested: str = "", source: str = "") -> Difference:
    """Compare a recorded event with what a replay requests in its place."""
    address = recorded.key or recorded.path
    return Difference(
        address=address,
        recorded=show_request(recorded.type, bytes(recorded.payload), address),
        recorded_at=recorded.source,
        requested=requested,
        requested_at=source,
    )


def show_request(event_type: str, payload: bytes, address: str) -> str:
    """Show a request in one line, shortened if its payload is long."""
    text = payload.decode()
    return f"{event_type} at {address}: {text if len(text) <= _SHOWN_BYTES_MAX else text[:_SHOWN_BYTES_MAX] + '…'}"
