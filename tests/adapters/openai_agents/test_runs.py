"""Agents of the OpenAI Agents SDK in workflows: turns, calls, handoffs and approvals are effects of a run."""

from collections.abc import Iterator
from typing import Any

import pytest

from callboard.bus.effects import Usage
from callboard.testing import Scenario
from tests.support.late_modules import LateModule

plays = LateModule("tests.support.openai_agents_programs")


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    plays.MADE.clear()
    plays.KEYS.clear()
    with Scenario(own_models=True) as one:
        yield one


def keys(scenario: Scenario, event_type: str) -> list[str]:
    return [event.key for event in scenario.events if event.type == event_type]


def payloads(scenario: Scenario, event_type: str) -> list[Any]:
    return scenario.payloads(event_type)


def test_an_agent_with_parallel_tools_a_handoff_and_an_approval(scenario: Scenario) -> None:
    scenario.start(plays.complaint, input={"text": "I want my money back."})
    assert scenario.result.status == "waiting:human"
    [asked] = payloads(scenario, "human.asked")
    assert asked.question == "May agent Refund clerk call refund?"
    assert asked.request_data["arguments"] == {"order": "ab", "cents": 200}
    assert asked.request_data["conversation"] == {"path": "Refund clerk", "turn": "Refund clerk#1.1!turn.1"}
    scenario.answer(True)
    assert scenario.result.output == {
        "output": "It is paid.",
        "agent": "Refund clerk",
        "same": True,
        "customer": {"name": "Ada", "refunded": 200, "notes": ["refunded ab"]},
        "usage": 48,
        "requests": 4,
        "items": [
            "ReasoningItem",
            *["ToolCallItem"] * 3,
            *["ToolCallOutputItem"] * 3,
            "ReasoningItem",
            "HandoffCallItem",
            "HandoffOutputItem",
            "ReasoningItem",
            "ToolCallItem",
            "ToolCallOutputItem",
            "MessageOutputItem",
        ],
    }
    assert scenario.result.usage == Usage(40, 8)
    assert keys(scenario, "model.call") == [
        "Front desk#1.1!turn.1",
        "Front desk#1.1!turn.2",
        "Refund clerk#1.1!turn.1",
        "Refund clerk#1.1!turn.2",
    ]
    assert keys(scenario, "effect.call") == [
        "Front desk/look_up#1.1!step",
        "Front desk/look_up#2.1!step",
        "Front desk/policy#1.1!step",
        "Refund clerk/refund#1.1!step",
    ]
    assert len(set(plays.KEYS)) == 2
    plays.MADE.clear()
    scenario.crash_everywhere(lambda one: [call.digest for call in payloads(one, "model.call")])


def test_a_turn_is_recorded_as_any_other_and_with_the_message_of_the_sdk(scenario: Scenario) -> None:
    scenario.start(plays.complaint, input={"text": "Hello."}).answer(False)
    first, second, _third, last = payloads(scenario, "model.call")
    assert (first.model, first.system, first.temperature) == ("sdk:PlayedModel", "Help.", 0.5)
    assert [tool.name for tool in first.tools] == ["look_up", "policy", "transfer_to_refund_clerk"]
    assert first.parameters["reasoning"]["effort"] == "low"
    assert (second.base, len(second.messages)) == ("Front desk#1.1!turn.1", 1)  # only what is new
    # The instructions name the context, which is unchanged if the tool was not called.
    assert last.base == "Refund clerk#1.1!turn.1"
    result = payloads(scenario, "model.result")[0]
    assert [use.input for use in result.tool_calls] == [{"order": "ab"}, {"order": "abc"}, {"topic": "refunds"}]
    assert result.native["output"][0]["encrypted_content"] == "sealed"
    final = payloads(scenario, "model.result")[-1]
    assert final.text == "It is paid."
    assert final.native["output"][0]["content"][0]["annotations"][0]["url"] == "https://example.com"


def test_a_streamed_run_has_the_same_events_in_every_replay(scenario: Scenario) -> None:
    plays.EVENTS.clear()
    scenario.start(plays.streamed)
    kinds = ["reasoning_item_created", "tool_called", "tool_output", "message_output_created"]
    assert scenario.result.output == {"output": "done", "said": "done", "kinds": kinds}
    # Live events are those of the model: they are not repeated in a replay, of which this scenario has had several.
    assert plays.EVENTS.count("response.completed") == 2
    assert plays.EVENTS.count("response.output_text.delta") == 1
    scenario.crash_everywhere()


def test_calls_that_need_consent_are_questions_and_others_continue(scenario: Scenario) -> None:
    scenario.start(plays.careful_work)
    assert plays.MADE == ["pay 100"]
    large, closing = (event.key for event in scenario.events if event.type == "human.asked")
    scenario.answer({"decision": "reject", "reason": "Too much."}, interaction=large)
    scenario.answer({"decision": "approve", "arguments": {"order": "xy"}}, interaction=closing)
    paid, rejected, closed = scenario.result.output["outputs"]
    assert (paid, closed) == ("paid 100", "closed xy")
    assert rejected.endswith("rejected the call of pay: Too much.")
    assert scenario.result.output["interruptions"] == 0


def test_guardrails_trip_in_workflows(scenario: Scenario) -> None:
    scenario.start(plays.guarded)
    assert scenario.result.output == ["input", "output"]


def test_agents_as_tools_run_in_the_workflow(scenario: Scenario) -> None:
    scenario.start(plays.translated)
    scenario.answer(True)
    assert scenario.result.output == "hola, salut"
    assert sorted(keys(scenario, "model.call")) == [
        "Translator#1.1!turn.1",
        "Translator#1.1!turn.2",
        "Translator/to_french/French#1.1!turn.1",
        "Translator/to_spanish/Spanish#1.1!turn.1",
        "Translator/to_spanish/Spanish#1.1!turn.2",
    ]
    assert keys(scenario, "effect.call") == ["Translator/to_spanish/Spanish/policy#1.1!step"]


def test_concurrent_runs_structured_output_and_hooks(scenario: Scenario) -> None:
    scenario.start(plays.planned)
    output = scenario.result.output
    assert (output["steps"], output["done"]) == (["a", "b"], ["done", "done"])
    assert output["hooks"][1:4] == ["agent Worker", *["end look_up Order(id='w', cents=100)"] * 2]
    [planned] = [call for call in payloads(scenario, "model.call") if call.schema]
    assert planned.schema["title"] == "Plan"
    assert payloads(scenario, "model.result")[0].data == {"steps": ["a", "b"]}


def test_failures_of_tools_reach_the_model_as_outside(scenario: Scenario) -> None:
    scenario.start(plays.failures)
    scenario.advance(seconds=10)
    broken, slow, unreadable, abandoned = scenario.result.output
    assert broken == "An error occurred while running the tool. Please try again."
    assert "timed out after 5 seconds" in slow
    assert (unreadable, abandoned) == (broken, broken)


def test_a_tool_whose_failure_is_not_for_the_model_fails_the_run(scenario: Scenario) -> None:
    scenario.start(plays.death)
    assert scenario.result.status == "failed"
    assert scenario.result.error is not None
    assert "no such order" in scenario.result.error.message


def test_a_run_that_is_not_durable_is_refused_in_a_workflow(scenario: Scenario) -> None:
    scenario.start(plays.forgotten)
    assert scenario.result.error is not None
    assert scenario.result.error.code == "python.io_in_workflow"
    assert "run_config=callboard_run_config()" in scenario.result.error.message


def test_outputs_of_tools_keep_their_types(scenario: Scenario) -> None:
    scenario.start(plays.outputs)
    assert scenario.result.output == ["(1, 2)", "{3}", "t", "(1, 2)", "id='o' cents=1", "None", "id='x' cents=100"]


def test_an_output_that_ends_the_run_is_the_value_of_the_tool(scenario: Scenario) -> None:
    scenario.start(plays.stopped)
    assert scenario.result.output == "id='x' cents=100"


def test_a_request_that_fails_is_tried_again_by_the_worker_only(scenario: Scenario) -> None:
    plays.FAILING.failures.append(TimeoutError("slow"))
    scenario.start(plays.failures)
    scenario.advance(seconds=10)
    assert payloads(scenario, "model.result")[0].tries == 2
    assert scenario.result.status == "completed"


def test_a_script_replaces_the_models_of_the_sdk() -> None:
    said: dict[str, Any] = {
        "Front desk": [
            {"tool_calls": [{"tool": "policy", "input": {"topic": "x"}}]},
            {"tool_calls": [{"tool": "transfer_to_refund_clerk", "input": {}}]},
        ],
        "Refund clerk": [{"text": "Scripted."}],
        "Planner": [{"data": {"steps": ["c"]}}],
        "Worker": [{"text": "Worked."}],
    }
    asked = len(plays.FRONT.asked)
    with Scenario(call_steps=True) as scripted:
        scripted.start(plays.complaint, input={"text": "?"}, script={"turns": said})
        assert scripted.result.output["output"] == "Scripted."
    with Scenario(call_steps=True) as scripted:
        scripted.start(plays.planned, script={"turns": said})
        assert scripted.result.output == {"steps": ["c"], "done": ["Worked."], "hooks": ["agent Worker"]}
    assert len(plays.FRONT.asked) == asked


def test_the_exception_of_a_tool_reaches_the_sdk(scenario: Scenario) -> None:
    scenario.start(plays.cause_of_death)
    assert scenario.result.output == "UserError from Closed: no such order"
