"""Workflows under crashes after every event, with a cancellation, and with a breakpoint."""

import json
from typing import Any

from callboard.bus import events as ev
from callboard.projections.results.workflow import WorkflowExecution
from callboard.testing import Scenario
from tests.support.scenarios import find_payload
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


def look(*inputs: int) -> dict[str, Any]:
    return {"tool_calls": [{"tool": "look", "input": {"i": i}} for i in inputs]}


SCRIPT: dict[str, Any] = {
    "turns": {
        "gather": [look(1, 2), {"data": LONG}, {"data": {"url": "u"}}, look(3), {"data": {"url": "v", **LONG}}],
        "think": [{"data": {"sure": False}}, {"data": {"sure": True}}],
        "act": [look(4), {"data": {"done": True}}],
    },
    "asks": {"gather": ["Look at the URL."]},
    "judges": {"gather/good": ["yes", "yes", "yes"]},
    "routes": {"think": ["gather", "act"]},
    "tools": {"look": [{"output": {"hit": 1}}, {"error": "slow"}, {"output": {"hit": 3}}, {"output": {"hit": 4}}]},
}
OPTIONS = {"skills": [scripted_skill("s", "look")]}


def start(scenario: Scenario, **start: Any) -> Scenario:
    return scenario.start(source=json.dumps(BUSY), script=SCRIPT, options=OPTIONS, **start)


def find_end(scenario: Scenario) -> ev.RunEnd:
    return find_payload(scenario, ev.RunEnd)


def find_steps(scenario: Scenario) -> list[tuple[str, str, int, int | None]]:
    trace = scenario.view(WorkflowExecution()).trace
    return [(step.node, step.status, step.iteration, step.retry_attempt) for step in trace.steps]


def test_every_attempt_is_a_step_of_the_trace(scenario: Scenario) -> None:
    """Checklist 63 and 76."""
    end = find_end(start(scenario))
    assert (end.status, end.error) == ("completed", None)
    assert find_steps(scenario) == [
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


def test_a_former_result_is_in_the_log_once(scenario: Scenario) -> None:
    calls = [one for one in start(scenario).events if one.type == "model.call" and one.path == "act"]
    assert calls
    assert all(LONG["notes"].encode() not in bytes(event.payload) for event in calls)
    assert LONG["notes"] in str(scenario.turns["act#1.1!turn.1"].messages)


def test_a_run_ends_alike_after_a_crash_at_any_event(scenario: Scenario) -> None:
    start(scenario).crash_everywhere(lambda one: (find_end(one), find_steps(one)))


def test_a_cancelled_workflow_leaves_its_active_node() -> None:
    script = {"turns": {"a": [{"text": "a"}]}}
    ran = run(document({"a": {}, "b": {}}, [("a", "b")]), script, cancel_at="b#1.1!turn.1")
    assert ran.end.status == "cancelled"
    assert ran.end.results == {"a": {"status": "success", "data": {"summary": "a"}, "toolCalls": [], "evals": []}}
    assert [left.outcome for left in ran.of(ev.NodeExit)] == ["ok", "cancelled"]


def test_a_breakpoint_pauses_the_run_before_its_node(scenario: Scenario) -> None:
    start(scenario, breakpoints=["think"])
    assert scenario.result.status == "paused"
    assert len(scenario.payloads(ev.NodeEnter.type)) == 1
    assert scenario.resume().resume().result.status == "completed"
    assert len(scenario.payloads(ev.RunResumed.type)) == 2
