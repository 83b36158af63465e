"""Agents of Pydantic AI in workflows: unchanged but for one line, each effect recorded once, whatever crashes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard import Runtime
from callboard.bus.effects import Usage
from callboard.testing import Scenario
from tests.support.late_modules import LateModule, module_of

plays = LateModule("tests.support.pydantic_agents")
sdk = LateModule("pydantic_ai")
adapter = LateModule("callboard.adapters.pydantic_ai")


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    plays.CALLED.clear()
    plays.HEARD.clear()
    with Scenario(own_models=True) as one:
        yield one


def payloads(scenario: Scenario, event_type: str) -> list[Any]:
    return scenario.payloads(event_type)


def keys(scenario: Scenario, *types: str) -> list[str]:
    return [event.key for event in scenario.events if event.type in types]


def test_parallel_tools_a_delegation_and_an_approval_survive_every_crash(scenario: Scenario) -> None:
    scenario.start(plays.serving)
    assert scenario.result.status == "waiting:human"
    # The calls of one turn begin together, and so does the question about one; the agent in a tool makes its own turns.
    assert keys(scenario, "effect.call", "model.call", "human.asked") == [
        "desk#1.1!turn.1",
        "desk/look_up#1.1!step",
        "desk/weigh#1.1!step",
        "desk#1.1!approve.1.1",
        "desk/joke/joker#1.1!turn.1",
    ]
    scenario.answer({"decision": "approve", "arguments": {"order": "a1", "cents": 300}})
    assert scenario.result.output == {
        "output": "joke=A cat. look_up={'cents': 500} refund=300 for a1 weigh=7",
        "requests": 4,
        "tokens": [scenario.result.usage.input_tokens, scenario.result.usage.output_tokens],
    }
    assert plays.CALLED == {"model": 3, "joker-model": 1, "look_up": 1, "weigh": 2, "refund": 1}
    scenario.crash_everywhere()


def test_a_rejected_call_is_not_made_and_the_model_reads_why(scenario: Scenario) -> None:
    scenario.start(plays.serving).answer({"decision": "reject", "reason": "too late"})
    assert plays.CALLED["refund"] == 0
    assert "rejected the call of refund: too late" in scenario.result.output["output"]


def test_turns_are_those_of_callboard_with_the_response_of_the_sdk(scenario: Scenario) -> None:
    scenario.start(plays.advising, input={"id": 7})
    first, second = payloads(scenario, "model.call")
    assert (first.model, first.provider) == ("function:model", "function")
    assert first.system == "You advise customers of a bank.\n\nThe customer is number 7."
    assert [one.name for one in first.tools] == ["balance", "final_result"]
    assert second.base == "agent#1.1!turn.1"
    assert [len(second.messages), second.system, second.tools] == [1, "", []]
    result = payloads(scenario, "model.result")[0]
    assert result.native["parts"][0]["tool_name"] == "balance"
    assert scenario.result.output == {"text": "$101.00", "block": False, "risk": 1}


@pytest.mark.parametrize(
    ("play", "output"),
    [
        ("planning", {"sql": "SELECT 1"}),
        ("querying", {"sql": "SELECT 2"}),
        ("limited", "limited"),
        ("thinking_aloud", ["ThinkingPart", "TextPart", "s1"]),
        ("testing", "tested"),
        ("serving_twice", ["A cat.", "A cat."]),
    ],
)
def test_an_agent_in_a_workflow_works_as_outside(play: str, output: Any, scenario: Scenario) -> None:
    scenario.start(getattr(plays, play))
    assert (scenario.result.error, scenario.result.output) == (None, output)


async def test_outside_of_a_workflow_nothing_changes() -> None:
    assert (await plays.planning()).sql == "SELECT 1"
    assert (await plays.support.run("?", deps=plays.Customer(1, plays.Bank()))).output.text == "$101.00"
    plays.CALLED.clear()
    assert "refund=500 for a1" in (await plays.desk.run("x")).output  # no question is asked
    assert (await plays.streaming())[-3:] == ["final_result", "part_delta", "part_end"]


def test_an_agent_keeps_its_history_and_can_be_iterated(scenario: Scenario) -> None:
    scenario.start(plays.chat)
    nodes = ["UserPromptNode", "ModelRequestNode", "CallToolsNode", "End"]
    assert scenario.result.output == ["1 messages", "1 messages", "1 messages", *nodes]
    assert keys(scenario, "model.call") == ["chat#1.1!turn.1", "chat#2.1!turn.1", "chat#3.1!turn.1"]


def test_an_agent_in_an_output_function_is_below_the_agent_that_hands_over(scenario: Scenario) -> None:
    scenario.start(plays.hosting)
    assert scenario.result.output == "A cat. A cat."
    assert keys(scenario, "model.call") == ["host#1.1!turn.1", "host/joker#1.1!turn.1", "joker#1.1!turn.1"]


def test_streams_and_their_handlers_work_in_a_workflow(scenario: Scenario) -> None:
    scenario.start(plays.streaming)
    assert scenario.result.output[:2] == ["Hello world", "Hello world"]
    assert scenario.result.output[-3:] == ["part_start", "final_result", "part_end"]
    # The handler of the capability has heard the pieces of both runs in the worker, once.
    once = ["part_start", "part_end", "function_tool_call", "function_tool_result"]
    assert [*once, "part_start", "final_result", "part_delta", "part_end"] * 2 == plays.HEARD
    assert plays.CALLED["streamed"] == 4


def test_events_of_a_stream_and_partial_answers_are_visible_to_watchers(scenario: Scenario) -> None:
    scenario.start(plays.streaming_events)
    assert scenario.result.output[-3:] == ["final_result", "part_end", "agent_run_result"]
    with Scenario(own_models=True) as other:
        other.start(plays.telling)
        assert other.result.output == "Hello world"
        assert payloads(other, "model.result")[1].first_chunk_ms is not None


def test_every_kind_of_toolset_works_in_a_workflow(scenario: Scenario) -> None:
    scenario.start(plays.crafting)
    assert scenario.result.output is None  # the pause before the second attempt
    scenario.advance(seconds=2)
    assert scenario.result.output == "add=3 double=8 here=9 look_up={'cents': 500}"
    tools = [key for key in keys(scenario, "effect.call") if "list_tools" not in key]
    assert tools == [
        *("crafts/double#1.1!step", "crafts/look_up#1.1!step", "crafts/add#1.1!step"),
        "crafts/add#1.1!step.2",
    ]


def test_each_run_has_its_own_toolset() -> None:
    plays.CALLED.clear()
    # In the same process; after a takeover the toolset is made again.
    with Scenario(own_models=True) as scenario:
        scenario.start(plays.doubling)
        assert scenario.result.output == ["double=4", "double=4"]
    assert plays.CALLED["most"] <= 2


async def test_a_worker_calls_tools_of_a_server_and_a_recorded_run_repeats_the_model(tmp_path: Path) -> None:
    plays.CALLED.clear()
    async with Runtime(data_dir=tmp_path / "state", code=[module_of(plays)], allow_scripts=True) as runtime:
        run = await runtime.start(registered="guiding")
        result = await run.result()
        assert (result.error, result.output) == (None, "weather={'city': 'Bonn', 'degrees': 21}")
        assert plays.CALLED["model"] == 2
        again = await runtime.start(registered="guiding", model=f"recorded:{run.id}")
        assert (await again.result()).output == result.output
        assert plays.CALLED["model"] == 2
        asked = [event async for event in again.events() if event.type == "effect.call"]
        assert {event.path for event in asked} == {"guide/list_tools", "guide/weather"}


def test_deferred_calls_and_calls_that_their_tools_want_approved(scenario: Scenario) -> None:
    scenario.start(plays.waiting)
    questions = keys(scenario, "human.asked")
    assert questions == ["deferring#1.1!approve.1.1", "deferring#1.1!approve.1.2"]
    scenario.answer(True, interaction=questions[0]).answer("approve", interaction=questions[1])
    assert scenario.result.output == "['fetched', 'deleted z', 'kept z']"


def test_calls_whose_tools_require_approval_are_asked_about_while_others_are_made(scenario: Scenario) -> None:
    scenario.start(plays.clearing_up)
    # The question is asked with the first other call of the turn, and not about a call with invalid arguments.
    started = keys(scenario, "effect.call", "human.asked", "effect.result")
    assert started == [
        "clearing/look_up#1.1!step",
        "clearing/keep#1.1!step",
        "clearing#1.1!approve.1.0",
        "clearing/look_up#1.1!step",
        "clearing/keep#1.1!step",
        "clearing#1.1!approve.1.2",
    ]
    assert plays.CALLED == {"model": 1, "look_up": 1}
    scenario.answer(True, interaction=started[2]).answer(True, interaction=started[-1])
    assert scenario.result.output.endswith("keep=kept z look_up={'cents': 500}")
    assert keys(scenario, "effect.call").count("clearing/delete#1.1!step") == 1
    scenario.crash_everywhere()


def test_calls_that_the_agent_approves_are_not_questions(scenario: Scenario) -> None:
    scenario.start(plays.checking)
    assert keys(scenario, "human.asked") == []
    assert scenario.result.output == "delete=deleted z look_up={'cents': 500}"


def test_files_and_failures_of_tools_reach_the_model(scenario: Scenario) -> None:
    scenario.start(plays.reporting)
    output, *kinds = scenario.result.output
    assert output == "fail=out of order report=see below"
    assert kinds.count("UserPromptPart") == 2
    [first, second] = payloads(scenario, "model.call")
    assert first.messages[0].parts[0].text == "What is it?\n[image/png, 3 bytes]"
    assert second.messages[0].parts[1].error.message == "out of order"


def test_a_script_answers_for_models_without_a_key() -> None:
    advice = {"text": "no", "block": True, "risk": 3}
    turns = {
        "named": [{"tool_calls": [{"tool": "look_up", "input": {"order": "a"}}]}, {"text": "found"}],
        "typed": [{"data": advice}],
    }
    with Scenario(call_steps=True) as scenario:
        scenario.start(plays.scripted, script={"turns": turns})
        assert scenario.result.output == ["found", "no"]
        first, _second, typed = payloads(scenario, "model.call")
        assert (first.model, first.temperature) == ("openai:gpt-4.1", 0.2)
        assert typed.model == "anthropic:claude-sonnet-4-5"


def test_a_failed_turn_raises_what_the_sdk_raises(scenario: Scenario) -> None:
    scenario.start(plays.failing, input={"caught": True})
    assert scenario.result.output == "400 broken {'error': 'no'} second"
    assert plays.CALLED["refused"] == 2
    with Scenario(own_models=True) as other:
        other.start(plays.failing, input={"caught": False})
        assert other.result.error is not None
        assert other.result.error.code == "model.bad_request"


def test_each_call_of_a_tool_has_a_key_of_its_own(scenario: Scenario) -> None:
    scenario.start(plays.keys)
    first, second = scenario.result.output
    assert first != second


@pytest.mark.parametrize("together", [False, True])
def test_changes_of_dependencies_are_recorded_with_the_call(scenario: Scenario, together: bool) -> None:
    scenario.start(plays.packing, input={"together": together})
    assert scenario.result.output == ["count=3 pack=a2", ["a0", "a1", "a2"]]
    if together:
        scenario.crash_everywhere()


def test_a_question_is_withdrawn_when_another_call_fails_the_agent(scenario: Scenario) -> None:
    scenario.start(plays.exploding)
    assert scenario.result.output == "it broke"
    assert keys(scenario, "human.asked") == ["fragile#1.1!approve.1.0"]
    scenario.crash_everywhere()


def test_usage_counts_once(scenario: Scenario) -> None:
    scenario.start(plays.planning)
    used = [Usage(one.usage.input_tokens, one.usage.output_tokens) for one in payloads(scenario, "model.result")]
    assert scenario.result.usage == sum(used, Usage())


@pytest.mark.parametrize("given", [{"retry": 1}, 5, {"timeout": "soon"}])
def test_settings_of_a_tool_are_checked(given: Any) -> None:
    with pytest.raises(sdk.UserError, match="callboard"):
        adapter.operations.read_settings("add", given)


def test_an_agent_without_a_model_or_a_name_is_made_durable() -> None:
    durable = adapter.Durable
    assert durable.from_agent(sdk.Agent(capabilities=[durable()])) is not None
    assert adapter.durable(sdk.Agent("test")).durability.name == ""


def test_the_limit_of_an_agent_bounds_its_requests(scenario: Scenario) -> None:
    plays.AT_ONCE[:] = [0, 0]
    scenario.start(plays.gathered)
    scenario.advance(seconds=10)
    assert scenario.result.output == 4
    assert plays.AT_ONCE == [0, 2]


def test_runs_that_share_the_limit_of_an_agent_do_not_wait_for_each_other(scenario: Scenario) -> None:
    scenario.start(plays.limited_payment)
    with Scenario(own_models=True) as other:
        other.start(plays.limited_payment)
        assert (scenario.result.status, other.result.status) == ("waiting:human", "waiting:human")
        other.answer(True)
        assert other.result.status == "completed"
    scenario.answer(True)
    assert scenario.result.status == "completed"


def test_hooks_of_the_sdk_get_the_exception_of_a_tool(scenario: Scenario) -> None:
    said = '{"get_document":"Could not fetch: 404"}'
    assert asyncio.run(plays.fetched()) == said
    scenario.start(plays.fetched)
    assert scenario.result.output == said


def test_an_agent_that_is_not_durable_is_refused_with_the_line_that_makes_it_durable(scenario: Scenario) -> None:
    scenario.start(plays.not_durable)
    error = scenario.result.error
    assert error is not None
    assert error.code == "python.io_in_workflow"
    assert "capabilities=[Durable()]" in error.message
