"""Budgets: what a run may use, and what becomes of it when it has."""

import json
from typing import Any

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.runtime.admission.start_message import examine
from callboard.testing import Scenario
from callboard.testing.plugin import scenario as scenario  # the fixture
from tests.support.flows import flow, returned
from tests.support.workflows import document, scripted_skill

STEPS = json.dumps(document({name: {} for name in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")]))
SCRIPT = {"turns": {name: [{"text": name, "usage": {"input_tokens": 10, "output_tokens": 5}}] for name in "abcd"}}


def paused(scenario: Scenario) -> list[str]:
    """The nodes that had been left when the budget paused the run, time by time."""
    left, found = "", list[str]()
    for event in scenario.events:
        left += event.path if event.type == "node.exit" else ""
        payload = ev.payload_of(event)
        if isinstance(payload, ev.RunPaused):
            assert payload.reason == "budget"
            assert "budget of the run" in payload.message
            found.append(left)
    return found


@pytest.mark.parametrize(("limits", "stops"), [({"tokens": 30}, ["ab"]), ({"turns": 1}, ["a", "ab", "abc"])])
def test_it_is_paused_and_may_use_as_much_again(scenario: Scenario, limits: dict[str, Any], stops: list[str]) -> None:
    scenario.start(source=STEPS, script=SCRIPT, limits=limits)
    while scenario.result.status == "paused":
        scenario.resume()
    assert scenario.result.status == "completed"
    assert paused(scenario) == stops
    scenario.crash_everywhere()


LOOKS = {"tool_calls": [{"tool": "look", "input": {}}]}
AGENT = json.dumps(document({"a": {"skills": ["desk"]}}))
DESK = {"skills": [scripted_skill("desk", "look")]}
TALK = {"turns": {"a": [*[LOOKS] * 4, {"text": "done"}]}, "tools": {"look": [{"output": 1}] * 4}}


def test_a_turn_that_is_announced_when_the_budget_is_used_up_is_held_until_the_run_goes_on(scenario: Scenario) -> None:
    scenario.start(source=AGENT, script=TALK, options=DESK, limits={"turns": 2})
    made = list[int]()
    while scenario.result.status == "paused":
        made.append(len(scenario.payloads("model.result")))
        assert len(scenario.payloads("model.call")) == made[-1] + 1
        assert scenario.events[-1].type == "run.parked", "it costs nothing meanwhile"
        scenario.resume()
    assert scenario.result.status == "completed"
    assert made == [2, 4]
    scenario.crash_everywhere()


def test_what_is_held_is_cancelled_with_the_run(scenario: Scenario) -> None:
    scenario.start(source=AGENT, script=TALK, options=DESK, limits={"turns": 2})
    scenario.cancel()
    assert scenario.result.status == "cancelled"
    assert len(scenario.payloads("model.result")) == 2
    scenario.crash_everywhere()


def test_it_is_cancelled_if_that_is_wanted(scenario: Scenario) -> None:
    scenario.start(source=STEPS, script=SCRIPT, limits={"tokens": 15, "then": "cancel"})
    assert scenario.result.status == "cancelled"
    [requested] = scenario.payloads("cancel.requested")
    assert isinstance(requested, ev.CancelRequested)
    assert (requested.reason, requested.message) == ("budget", "the budget of the run is used up: 15 of 15 tokens")
    assert [event.path for event in scenario.events if event.type == "model.result"] == ["a"]
    scenario.crash_everywhere()


def test_time_is_a_budget_too_also_of_a_run_that_is_parked(scenario: Scenario) -> None:
    steps = {"s": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    scenario.start(source=json.dumps(flow(steps)), limits={"seconds": 60, "then": "cancel"})
    assert scenario.result.status == "waiting:timer"
    assert scenario.advance(seconds=59).result.status == "waiting:timer"
    assert scenario.advance(seconds=2).result.status == "cancelled"
    scenario.crash_everywhere()


def test_money_is_a_budget_and_says_the_sums() -> None:
    with Scenario(prices={"scripted": {"input": 1000, "output": 2000}}) as scenario:
        scenario.start(source=STEPS, script=SCRIPT, limits={"usd": 0.03})
        while scenario.result.status == "paused":
            scenario.resume()
        assert paused(scenario) == ["ab", "abc"]
        told = [payload.message for payload in scenario.payloads("run.paused") if isinstance(payload, ev.RunPaused)]
        assert told == [
            f"the budget of the run is used up: {sums}" for sums in ("$0.0400 of $0.03", "$0.0600 of $0.06")
        ]
        scenario.crash_everywhere()


def test_under_a_limit_of_money_no_turn_of_unknown_price_goes_unnoticed(scenario: Scenario) -> None:
    scenario.start(source=STEPS, script=SCRIPT, limits={"usd": 100})
    assert scenario.result.status == "paused"
    [told] = scenario.payloads("run.paused")
    assert isinstance(told, ev.RunPaused)
    assert "$0.00 and 15 tokens of unknown price: the setting `prices` has no price of scripted" in told.message
    scenario.resume()
    assert paused(scenario) == ["a", "ab"]
    scenario.crash_everywhere()


@pytest.mark.parametrize(
    ("limits", "place"),
    [
        ({"then": "cancel"}, "limits"),
        ({"usd": None, "then": "pause"}, "limits"),
        ({"seconds": 1e300}, "limits.seconds"),
        ({"seconds": 3e9}, ""),
        ({}, ""),
    ],
)
def test_limits_that_limit_nothing_are_refused(limits: dict[str, Any], place: str) -> None:
    message = {"definition": {"source": STEPS}, "limits": limits}
    problems = examine(msgspec.json.encode(message)).problems
    assert [one.where for one in problems if one.code == "start.limit"] == ([place] if place else [])


def test_what_nobody_would_keep_is_refused() -> None:
    limits = {"tokens": 0, "seconds": "soon", "then": "explode", "wishes": 3}
    message = {"definition": {"source": STEPS}, "limits": limits}
    problems = examine(msgspec.json.encode(message)).problems
    assert [(one.code, one.where) for one in problems] == [("start.limit", f"limits.{name}") for name in limits]
    assert all("tokens, usd, turns, events, seconds, then" in (one.expected or "") for one in problems)
