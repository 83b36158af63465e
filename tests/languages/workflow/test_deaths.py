"""Workflows and what befalls them: a death after every event, a cancellation, a breakpoint."""

import json
from typing import Any

from callboard.bus import events as ev
from callboard.projections.results.workflow import WorkflowExecution
from callboard.testing import Scenario
from callboard.testing.plugin import scenario as scenario  # the fixture
from tests.support.workflows import document, run, scripted_skill

NEEDS_URL = {"name": "url_there", "kind": "value", "rule": {"output_required": ["url"]}}
JUDGE = {"name": "good", "kind": "judge", "rubric": "Is it good?"}
OUTPUT = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
LONG = {"notes": "word " * 60}

BUSY = document(
    {
        "gather": {"skills": ["s"], "eval": [NEEDS_URL, JUDGE], "retry": {"max": 1, "instruction": {"auto": True}}},
        "think": {"output": OUTPUT},
        "act": {"skills": ["s"], "requires": {"output_required": ["gather.url"]}},
        "rest": {"requires": {"output_required": ["input.never"], "on_fail": "skip"}},
    },
    [
        ("gather", "think"),
        {"from": "think", "to": "gather", "when": "not sure", "max_iterations": 1},
        ("think", "act", "sure"),
        ("act", "rest"),
    ],
    rules=["Be kind."],
)


def wish(*inputs: int) -> dict[str, Any]:
    return {"tool_calls": [{"tool": "look", "input": {"i": i}} for i in inputs]}


SCRIPT: dict[str, Any] = {
    "turns": {
        "gather": [wish(1, 2), {"data": LONG}, {"data": {"url": "u"}}, wish(3), {"data": {"url": "v", **LONG}}],
        "think": [{"data": {"sure": False}}, {"data": {"sure": True}}],
        "act": [wish(4), {"data": {"done": True}}],
    },
    "asks": {"gather": ["Look at the URL."]},
    "judges": {"gather/good": ["yes", "yes", "yes"]},
    "routes": {"think": ["gather", "act"]},
    "tools": {"look": [{"output": {"hit": 1}}, {"error": "slow"}, {"output": {"hit": 3}}, {"output": {"hit": 4}}]},
}
OPTIONS = {"skills": [scripted_skill("s", "look")]}


def started(scenario: Scenario, **start: Any) -> Scenario:
    return scenario.start(source=json.dumps(BUSY), script=SCRIPT, options=OPTIONS, **start)


def end_of(scenario: Scenario) -> ev.RunEnd:
    [end] = scenario.payloads(ev.RunEnd.type)
    assert isinstance(end, ev.RunEnd)
    return end


def steps(scenario: Scenario) -> list[tuple[str, str, int, int | None]]:
    trace = scenario.view(WorkflowExecution()).trace
    return [(step.node, step.status, step.iteration, step.retry_attempt) for step in trace.steps]


def test_a_run_and_its_trace(scenario: Scenario) -> None:
    """Checklist 63 and 76: every attempt is a step; results and trace are those of the specification."""
    end = end_of(started(scenario))
    assert (end.status, end.error) == ("completed", None)
    assert steps(scenario) == [
        ("gather", "failed", 1, 0),
        ("gather", "success", 1, 1),
        ("think", "success", 1, None),
        ("gather", "success", 2, None),
        ("think", "success", 2, None),
        ("act", "success", 1, None),
        ("rest", "skipped", 1, None),
    ]
    execution = scenario.view(WorkflowExecution())
    assert execution.results == end.results
    assert next(iter(execution.trace.sources)) == "workflow.rules[0]"
    assert end.output["skipped_reason"].startswith("requires not met:")
    assert end.results["act"] == {
        "status": "success",
        "data": {"done": True},
        "toolCalls": [{"tool": "look", "input": {"i": 4}, "output": {"hit": 4}}],
        "evals": [],
    }


def test_what_was_said_before_stands_in_the_log_once(scenario: Scenario) -> None:
    calls = [one for one in started(scenario).events if one.type == "model.call" and one.path == "act"]
    assert calls
    assert all(LONG["notes"].encode() not in bytes(event.payload) for event in calls)
    assert LONG["notes"] in str(scenario.turns["act#1.1!turn.1"].messages)


def test_cut_after_every_event_the_run_comes_to_the_same_end(scenario: Scenario) -> None:
    started(scenario).crash_everywhere(lambda one: (end_of(one), steps(one)))


def test_a_cancelled_workflow_closes_what_is_open_and_ends_cancelled() -> None:
    script = {"turns": {"a": [{"text": "a"}]}}
    ran = run(document({"a": {}, "b": {}}, [("a", "b")]), script, cancel_at="b#1.1!turn.1")
    assert ran.end.status == "cancelled"
    assert ran.end.results == {"a": {"status": "success", "data": {"summary": "a"}, "toolCalls": [], "evals": []}}
    assert [left.outcome for left in ran.of(ev.NodeExit)] == ["ok", "cancelled"]


def test_a_breakpoint_holds_the_run_before_its_node(scenario: Scenario) -> None:
    started(scenario, breakpoints=["think"])
    assert scenario.result.status == "paused"
    assert len(scenario.payloads(ev.NodeEnter.type)) == 1
    assert scenario.resume().resume().result.status == "completed"
    assert len(scenario.payloads(ev.RunResumed.type)) == 2
