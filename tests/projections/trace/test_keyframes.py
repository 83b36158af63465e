"""The state of a run after any event, columns of events, and requests to models, over the golden logs."""

import random
from itertools import accumulate
from typing import Any

import msgspec
import pytest

from callboard.bus.events import Event, ModelCall, ModelResult, payload_of
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.projections.drawing.state_at import Standings
from callboard.projections.projection import fold
from callboard.projections.trace import keyframes
from callboard.projections.trace.columns import EventRow, columns
from callboard.projections.trace.keyframes import Keyframes
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.service.operations.model_requests import Seen, reconstruct_request
from tests.runtime.interpreter.test_golden import NAMES, events_of
from tests.support.event_logs import Log, everything


@pytest.mark.parametrize("name", NAMES)
def test_the_state_after_any_event_is_that_of_the_folded_events(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyframes, "EVERY_EVENTS", 2)
    monkeypatch.setattr(keyframes, "KEPT_MAX", 5)
    events = events_of(name)
    frames = Keyframes(Standings)
    places = list(range(1, len(events) + 1))
    random.Random(name).shuffle(places)
    for n in (len(events), *places, *places[:9]):
        assert frames.at(events, n).view() == fold(Standings(), events[:n]), n


def rows(log: Log) -> list[EventRow]:
    return [EventRow(10 * event.n, len(event.payload), event) for event in log.events]


def read_columns(found: Any, after: int) -> list[tuple[Any, ...]]:
    """Read number, sequence, time, type, path and key of each event from columns."""
    numbers = list(accumulate(found.n, initial=after))[1:]
    keys = []
    for place, n in enumerate(numbers):
        slot, path = found.slots[found.slot[place]], found.paths[found.path[place]]
        key = f"{path}#{found.iteration[place]}.{found.attempt[place]}!{slot}" if slot else ""
        keys.append(found.keys.get(n, key))
    types, paths = [found.types[at] for at in found.type], [found.paths[at] for at in found.path]
    return list(zip(numbers, accumulate(found.sequence), accumulate(found.time), types, paths, keys, strict=True))


@pytest.mark.parametrize("after", [0, 7])
def test_columns_contain_the_events(after: int) -> None:
    log = everything()
    log.add_raw("tool.call", b'{"node":"a","tool":"t"}', "a", 1, 1, "odd key")
    found = columns(rows(log)[after:], after)
    assert read_columns(found, after) == [
        (event.n, 10 * event.n, int(event.time.timestamp() * 1000), event.type, event.path, event.key)
        for event in log.events[after:]
    ]
    assert {len(column) for column in (found.name, found.outcome, found.tokens, found.size)} == {len(found.n)}


def test_columns_contain_names_outcomes_and_tokens() -> None:
    log = everything()
    found = columns(rows(log), 0)
    seen = {
        (found.types[kind], found.names[name], found.outcomes[outcome])
        for kind, name, outcome in zip(found.type, found.name, found.outcome, strict=True)
    }
    assert {("run.claimed", "w1", ""), ("human.asked", "really?", ""), ("run.end", "", "cancelled")} <= seen
    assert sum(found.tokens) > 0


def model_calls(events: list[Event]) -> list[Event]:
    return [event for event in events if event.type == ModelCall.type]


def request_of(events: list[Event], admission: Admitted, event: Event) -> Seen | None:
    reply = next(one for one in events if one.key == event.key and one.type == ModelResult.type)
    return reconstruct_request(RunRef("default", event.run), events[: event.n], admission, {}, reply)


def test_the_request_to_a_model_grows_turn_by_turn() -> None:
    events = events_of("incident-triage")
    admission = read_admission(events[0], language)
    turns = 0
    for event in model_calls(events):
        call = payload_of(event)
        assert isinstance(call, ModelCall)
        found = request_of(events, admission, event)
        assert found is not None
        new = [one for one in found.messages if one.new]
        assert found.result is not None
        assert new[-len(call.messages) :] == found.messages[-len(call.messages) :]
        assert {one.n for one in new[-len(call.messages) :]} == {event.n}
        if call.base is None:
            assert new == found.messages
            continue
        turns += 1
        before = next(one for one in model_calls(events) if one.key == call.base)
        seen_before = request_of(events, admission, before)
        assert seen_before is not None
        old = [one for one in found.messages if not one.new]
        assert [one.message for one in old] == [one.message for one in seen_before.messages]
        assert "output" in msgspec.json.encode(new).decode()
    assert turns
