"""Golden logs: recorded runs that are never changed. Each folds to the same views byte for byte, and replays.

A change that breaks one of these tests breaks recorded runs of users. `tests.maintenance.record_golden` records logs.
"""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from callboard.bus import events as ev
from callboard.bus.errors import ReplayDiverged
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.projections.lists.runs import Runs
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.runtime.interpreter.replay import build_stage, read_admission, replay
from callboard.runtime.interpreter.run_end import conclude
from callboard.runtime.run.replay_observer import Observer
from callboard.testing.checks import check_log
from tests.maintenance.record_golden import GOLDEN, SCENARIOS, VIEWS, Spans, golden_lines, golden_names, views_of
from tests.support.event_logs import known_payload
from tests.support.graphs import timeless
from tests.support.worker_processes import TENANT

NAMES = golden_names()


def events_of(name: str) -> list[Event]:
    return [ev.decode_event(line) for line in golden_lines(name)]


def replayed(events: Sequence[Event]) -> list[Event]:
    """Replay a log without executing effects; return the events that the replay states beyond the log.

    :raises ReplayDiverged: if it does not follow the log
    """
    ref = RunRef(TENANT, events[0].run)
    observer = Observer(ref, events[-1])
    admission = read_admission(events[0], language)
    stage, started = build_stage(admission, ref, events, observer)
    try:
        replay(stage, admission, started, events)
        conclude(stage)
        stage.ledger.verify_replayed()
    finally:
        stage.driver.drop()
    return observer.beyond


def test_every_scenario_has_its_log() -> None:
    assert set(SCENARIOS) <= set(NAMES)
    ends = {name: events_of(name)[-1] for name in NAMES}
    statuses = {msgspec.json.decode(end.payload)["status"] for end in ends.values()}
    assert {"completed", "failed", "cancelled"} <= statuses
    assert max(end.epoch for end in ends.values()) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_decoded_events_are_encoded_to_the_same_bytes(name: str) -> None:
    """A field that is decoded as another type, or not decoded, would be encoded differently."""
    lines = golden_lines(name)
    events = [ev.decode_event(line) for line in lines]
    assert [ev.encode_event(event) for event in events] == lines
    assert [ev.encode_payload(known_payload(event)) for event in events] == [bytes(event.payload) for event in events]
    check_log(events)


@pytest.mark.parametrize("name", NAMES)
def test_the_views_are_the_same_byte_for_byte(name: str) -> None:
    assert views_of(events_of(name)).decode() == (GOLDEN / f"{name}.views.json").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_states_exactly_the_events_of_the_log(name: str) -> None:
    assert replayed(events_of(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_log_that_is_cut_after_any_event_folds_and_replays(name: str) -> None:
    """Like a worker that takes over after that event: it states only events that the whole log has later."""
    events = events_of(name)
    folds = [make() for make in (*VIEWS.values(), Runs)]
    started = next(event.n for event in events if event.type == ev.RunStart.type)
    for n, event in enumerate(events, 1):
        for folding in folds:
            folding.apply(event)
            msgspec.json.encode(folding.view())
        if n >= started:
            following = [_content_of(one) for one in events[n:]]
            unexpected = [one for one in map(_content_of, replayed(events[:n])) if one not in following]
            assert unexpected == [], f"after event {n}"


def _content_of(event: Event) -> tuple[str, str, bytes]:
    """The content of an event. The end of a graph has times, which differ if its log is cut."""
    payload = bytes(event.payload)
    if event.type == ev.RunEnd.type and event.run in ("golden-graph", "golden-stepped"):
        payload = msgspec.json.encode(timeless(msgspec.json.decode(payload)))
    return event.type, event.key or f"{event.path}#{event.iteration}", payload


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_payload_makes_the_replay_diverge(name: str) -> None:
    """The divergence names the changed event, for every kind of fact and intent."""
    events = events_of(name)
    changed = 0
    for i, event in enumerate(events):
        if event.type not in (ev.NodeEnter.type, ev.ModelCall.type, ev.ToolCall.type, ev.Route.type, ev.RunEnd.type):
            continue
        payload: dict[str, Any] = msgspec.json.decode(event.payload)
        other = msgspec.structs.replace(event, payload=Raw(msgspec.json.encode({**payload, "usage": {}, "node": "?"})))
        with pytest.raises(ReplayDiverged) as diverged:
            replayed([*events[:i], other, *events[i + 1 :]])
        assert diverged.value.n == event.n
        changed += 1
    assert changed > 2


@pytest.mark.parametrize("name", NAMES)
def test_the_results_projection_equals_the_end_of_the_run(name: str) -> None:
    events = events_of(name)
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    view = fold(Results(), events)
    assert (view.status, view.output, view.results, view.usage) == (end.status, end.output, end.results, end.usage)


def test_every_log_folds_to_spans_with_content() -> None:
    for name in NAMES:
        fold(Spans(content=True), events_of(name))


def test_a_golden_log_is_never_overwritten() -> None:
    before = {path.name: path.read_bytes() for path in GOLDEN.iterdir()}
    command = [sys.executable, "-m", "tests.maintenance.record_golden", NAMES[0]]
    done = subprocess.run(command, cwd=GOLDEN.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--as" in done.stderr
    assert {path.name: path.read_bytes() for path in GOLDEN.iterdir()} == before
