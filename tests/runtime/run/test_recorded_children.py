"""Recorded children: which child runs get a recorded end, and how the others are performed."""

from callboard.bus import events as ev
from callboard.bus.commands import Recording
from callboard.bus.effects import Usage
from callboard.runtime.run.recorded_children import recorded_child
from tests.projections.comparison.test_behaviour import log

KEY = "a#1.1!run"
STARTED = ev.ChildStart({"name": "pay"}, "child-of-the-record", {"amount": 1})
ENDED = ev.ChildEnd("completed", {"paid": 1}, usage=Usage(10, 5))
RECORD = log((STARTED, KEY), (ENDED, KEY))
RECORDING = Recording("record", {"pay": "live"})


def test_a_child_that_is_started_in_the_same_way_has_the_recorded_end_without_its_usage() -> None:
    wanted = ev.ChildStart({"name": "pay"}, "child-of-the-case", {"amount": 1})
    for key in (KEY, "b#1.1!run"):
        found = recorded_child(RECORD, RECORDING, key, wanted)
        assert found == ev.ChildEnd("completed", {"paid": 1})


def test_another_child_is_performed_with_the_record_of_the_child_in_its_place() -> None:
    other = ev.ChildStart({"name": "pay"}, "child-of-the-case", {"amount": 2})
    assert recorded_child(RECORD, RECORDING, KEY, other) == Recording("child-of-the-record", {"pay": "live"})
    assert recorded_child(RECORD, RECORDING, "b#1.1!run", other) == RECORDING
    unfinished = recorded_child(log((STARTED, KEY)), RECORDING, KEY, STARTED)
    assert unfinished == Recording("child-of-the-record", {"pay": "live"})
