"""The place where a candidate parts from a record: after the event whose delivery leads to the first other request."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from callboard.bus import events as ev
from callboard.bus.errors import ReplayDiverged
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.features.evaluation.parting import CaseParting, find_parting
from callboard.languages.registry import language
from callboard.runtime.interpreter.replay import Admitted, build_stage, read_admission, replay
from callboard.runtime.run.replay_observer import Observer
from callboard.testing import Scenario
from tests.maintenance.record_golden import golden_lines, golden_names
from tests.support.worker_processes import TENANT

CHAIN = """\
id: chain
name: Chain
entry: a
nodes:
  a: {name: A, instruction: First.}
  b: {name: B, instruction: Second.}
  c: {name: C, instruction: Third.}
edges:
  - {from: a, to: b}
  - {from: b, to: c}
"""

SCRIPT = {"turns": {name: [{"text": name}] for name in "abc"}}

REF = RunRef("default", "record")


@pytest.fixture(scope="module")
def record() -> list[Event]:
    with Scenario() as scenario:
        return scenario.start(source=CHAIN, script=SCRIPT).events


def candidate(record: Sequence[Event], source: str) -> tuple[list[Event], Admitted]:
    """Return the record as a run of another definition, and that as it is admitted."""
    first = ev.payload_of(record[0])
    assert isinstance(first, ev.RunAccepted)
    definition = msgspec.structs.replace(first.definition, source=source)
    payload = Raw(ev.encode_payload(msgspec.structs.replace(first, definition=definition)))
    begun = msgspec.structs.replace(record[0], payload=payload)
    return [begun, *record[1:]], read_admission(begun, language)


def parting(record: Sequence[Event], source: str, *, fresh: bool = False) -> CaseParting | None:
    events, admission = candidate(record, source)
    return find_parting(REF, events, admission, {}, fresh=fresh)


def result_of(record: Sequence[Event], node: str) -> int:
    """Return the number of the result of a node's turn."""
    return next(event.n for event in record if event.type == "model.result" and event.path == node)


def started(record: Sequence[Event]) -> int:
    return next(event.n for event in record if event.type == "run.start")


LAST = "{from: b, to: c}"
AGAIN = "{from: b, to: c}\n  - {from: c, to: a, max_iterations: 1}"

CHANGES: dict[str, tuple[str, str, str]] = {
    "the first prompt": ("First.", "Other.", ""),
    "the second prompt": ("Second.", "Other.", "a"),
    "the last prompt": ("Third.", "Other.", "b"),
    "the end of the run": (LAST, AGAIN, "c"),
    "the order of nodes": ("to: b}\n  - {from: b, to: c}", "to: c}\n  - {from: c, to: b}", "a"),
    "a model": ("{name: B,", "{name: B, model: 'other:one',", "a"),
}


@pytest.mark.parametrize(("old", "new", "node"), CHANGES.values(), ids=CHANGES)
def test_a_candidate_parts_after_the_event_before_its_first_other_request(
    record: list[Event], old: str, new: str, node: str
) -> None:
    found = parting(record, CHAIN.replace(old, new))
    assert found is not None
    assert found.at == (result_of(record, node) if node else started(record))


def difference(shared: Sequence[Event], admission: Admitted) -> ReplayDiverged | None:
    """Replay the events that a fork shares, as admission does; return the first difference."""
    stage, begun = build_stage(admission, REF, shared, Observer(REF, shared[-1]))
    try:
        replay(stage, admission, begun, shared)
        stage.ledger.verify_replayed()
    except ReplayDiverged as error:
        return error
    else:
        return None
    finally:
        stage.drop()


@pytest.mark.parametrize(("old", "new", "_node"), CHANGES.values(), ids=CHANGES)
def test_a_fork_at_the_place_agrees_with_the_events_that_it_shares(
    record: list[Event], old: str, new: str, _node: str
) -> None:
    events, admission = candidate(record, CHAIN.replace(old, new))
    found = find_parting(REF, events, admission, {}, fresh=False)
    assert found is not None
    shared = events[: found.at]
    while (other := difference(shared, admission)) is not None:
        # A fork has its own sources, and nothing else of its own.
        assert shared[other.n - 1].type == "sources.resolved"
        shared[other.n - 1] = msgspec.structs.replace(shared[other.n - 1], payload=Raw(other.stated or b""))


@pytest.mark.parametrize(
    ("old", "new"), [("", ""), ("name: Chain", "name: Another chain"), ("id: chain\n", "# A comment.\nid: chain\n")]
)
def test_a_candidate_that_requests_the_same_does_not_part(record: list[Event], old: str, new: str) -> None:
    assert parting(record, CHAIN.replace(old, new)) is None


def test_a_fresh_candidate_parts_at_the_latest_before_its_first_turn(record: list[Event]) -> None:
    for source in (CHAIN, CHAIN.replace("Third.", "Other.")):
        found: Any = parting(record, source, fresh=True)
        assert found.at == started(record)


def test_a_record_without_turns_is_the_same_for_a_fresh_candidate() -> None:
    document = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a"}
    flow = json.dumps({**document, "steps": {"a": {"action": "Return"}}})
    with Scenario() as scenario:
        events = scenario.start(source=flow).events
    assert parting(events, flow, fresh=True) is None


def golden(name: str) -> list[Event]:
    return [ev.decode_event(line) for line in golden_lines(name)]


def place_in(events: Sequence[Event]) -> CaseParting | None:
    ref = RunRef(TENANT, events[0].run)
    return find_parting(ref, events, read_admission(events[0], language), {}, fresh=False)


@pytest.mark.parametrize("name", golden_names())
def test_recorded_runs_of_all_languages_do_not_part_from_themselves(name: str) -> None:
    assert place_in(golden(name)) is None


DELIVERED = ("human.answered", "cancel.requested", "run.paused", "run.start")


@pytest.mark.parametrize("name", golden_names())
def test_a_run_parts_before_any_intent_that_was_recorded_otherwise(name: str) -> None:
    events = golden(name)
    intents = [event for event in events if event.type in ("model.call", "tool.call", "effect.call")]
    for other in intents[:: max(1, len(intents) // 4)]:
        members: dict[str, Any] = {**msgspec.json.decode(other.payload), "node": "other", "digest": "other"}
        changed = msgspec.structs.replace(other, payload=Raw(msgspec.json.encode(members)))
        found = place_in([changed if event is other else event for event in events])
        assert found is not None
        before = [one.n for one in events if one.n < other.n and (one.type in DELIVERED or is_outcome(one))]
        assert found.at == before[-1]


def is_outcome(event: Event) -> bool:
    return event.type in ev.TYPES and ev.TYPES[event.type].kind == "outcome"
