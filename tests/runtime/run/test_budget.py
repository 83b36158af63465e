"""Budgets of runs: a run that reaches a limit is paused or cancelled."""

import json
from typing import Any

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.runtime.admission.start_message import examine
from callboard.testing import Scenario
from callboard.testing.plugin import scenario as scenario  # fixture
from tests.support.flows import flow, returned
from tests.support.workflows import document, scripted_skill

STEPS = json.dumps(document({name: {} for name in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")]))
SCRIPT = {"turns": {name: [{"text": name, "usage": {"input_tokens": 10, "output_tokens": 5}}] for name in "abcd"}}


def nodes_left_at_pauses(scenario: Scenario) -> list[str]:
    """For each pause by the budget, the names of the nodes that had ended."""
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
def test_a_run_pauses_at_its_limit_and_each_resume_allows_the_limit_again(
    scenario: Scenario, limits: dict[str, Any], stops: list[str]
) -> None:
    scenario.start(source=STEPS, script=SCRIPT, limits=limits)
    while scenario.result.status == "paused":
        scenario.resume()
    assert scenario.result.status == "completed"
    assert nodes_left_at_pauses(scenario) == stops
    scenario.crash_everywhere()


TOOL_CALL = {"tool_calls": [{"tool": "look", "input": {}}]}
AGENT = json.dumps(document({"a": {"skills": ["desk"]}}))
SKILL = {"skills": [scripted_skill("desk", "look")]}
AGENT_SCRIPT = {"turns": {"a": [*[TOOL_CALL] * 4, {"text": "done"}]}, "tools": {"look": [{"output": 1}] * 4}}


def test_a_model_call_after_the_limit_is_held_until_a_resume(scenario: Scenario) -> None:
    scenario.start(source=AGENT, script=AGENT_SCRIPT, options=SKILL, limits={"turns": 2})
    turns = list[int]()
    while scenario.result.status == "paused":
        turns.append(len(scenario.payloads("model.result")))
        assert len(scenario.payloads("model.call")) == turns[-1] + 1
        assert scenario.events[-1].type == "run.parked", "a held run uses no slot"
        scenario.resume()
    assert scenario.result.status == "completed"
    assert turns == [2, 4]
    scenario.crash_everywhere()


def test_a_held_model_call_is_cancelled_with_the_run(scenario: Scenario) -> None:
    scenario.start(source=AGENT, script=AGENT_SCRIPT, options=SKILL, limits={"turns": 2})
    scenario.cancel()
    assert scenario.result.status == "cancelled"
    assert len(scenario.payloads("model.result")) == 2
    scenario.crash_everywhere()


def test_a_run_is_cancelled_at_its_limit_if_then_is_cancel(scenario: Scenario) -> None:
    scenario.start(source=STEPS, script=SCRIPT, limits={"tokens": 15, "then": "cancel"})
    assert scenario.result.status == "cancelled"
    [requested] = scenario.payloads("cancel.requested")
    assert isinstance(requested, ev.CancelRequested)
    assert (requested.reason, requested.message) == ("budget", "the budget of the run is used up: 15 of 15 tokens")
    assert [event.path for event in scenario.events if event.type == "model.result"] == ["a"]
    scenario.crash_everywhere()


def test_a_limit_of_seconds_applies_to_a_parked_run(scenario: Scenario) -> None:
    steps = {"s": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    scenario.start(source=json.dumps(flow(steps)), limits={"seconds": 60, "then": "cancel"})
    assert scenario.result.status == "waiting:timer"
    assert scenario.advance(seconds=59).result.status == "waiting:timer"
    assert scenario.advance(seconds=2).result.status == "cancelled"
    scenario.crash_everywhere()


def test_a_limit_of_money_reports_the_sums() -> None:
    with Scenario(prices={"scripted": {"input": 1000, "output": 2000}}) as scenario:
        scenario.start(source=STEPS, script=SCRIPT, limits={"usd": 0.03})
        while scenario.result.status == "paused":
            scenario.resume()
        assert nodes_left_at_pauses(scenario) == ["ab", "abc"]
        paused = [payload.message for payload in scenario.payloads("run.paused") if isinstance(payload, ev.RunPaused)]
        assert paused == [
            f"the budget of the run is used up: {sums}" for sums in ("$0.0400 of $0.03", "$0.0600 of $0.06")
        ]
        scenario.crash_everywhere()


def test_a_turn_of_unknown_price_pauses_a_run_with_a_limit_of_money(scenario: Scenario) -> None:
    scenario.start(source=STEPS, script=SCRIPT, limits={"usd": 100})
    assert scenario.result.status == "paused"
    [paused] = scenario.payloads("run.paused")
    assert isinstance(paused, ev.RunPaused)
    assert "$0.00 and 15 tokens of unknown price: the setting `prices` has no price of scripted" in paused.message
    scenario.resume()
    assert nodes_left_at_pauses(scenario) == ["a", "ab"]
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
def test_limits_without_effect_are_refused(limits: dict[str, Any], place: str) -> None:
    message = {"definition": {"source": STEPS}, "limits": limits}
    problems = examine(msgspec.json.encode(message)).problems
    assert [one.where for one in problems if one.code == "start.limit"] == ([place] if place else [])


def test_invalid_limits_are_refused_with_the_known_names() -> None:
    limits = {"tokens": 0, "seconds": "soon", "then": "explode", "wishes": 3}
    message = {"definition": {"source": STEPS}, "limits": limits}
    problems = examine(msgspec.json.encode(message)).problems
    assert [(one.code, one.where) for one in problems] == [("start.limit", f"limits.{name}") for name in limits]
    assert all("tokens, usd, turns, events, seconds, then" in (one.expected or "") for one in problems)
