"""Agents of workflows in Python: turns and calls are recorded, approved calls wait, and failures reach the model."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent, McpTools, Runtime
from callboard.bus.effects import ToolSpec
from callboard.testing import Scenario
from tests.support import python_workflows as workflows
from tests.support.scenarios import find_failure, find_keys


def make_script(*replies: dict[str, Any]) -> dict[str, Any]:
    return {"turns": {"clerk": list(replies)}}


def make_turn(*uses: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"tool": tool, "input": given} for tool, given in uses]}


VERDICT = {"data": {"restart": False, "why": "paid"}}


def read_tool_results(scenario: Scenario, turn: str) -> list[Any]:
    """Return the results of its calls that the model reads in a turn: each output, or the code of the failure."""
    parts = scenario.turns[turn].messages[-1].parts
    return [part.output if part.error is None else part.error.code for part in parts]  # pyright: ignore


def test_parallel_calls_are_steps_and_an_approved_call_is_made(scenario: Scenario) -> None:
    turn = make_turn(("look_up", {"order": "ab"}), ("refund", {"order": "ab", "cents": 200}))
    scenario.start(workflows.serving, input={"text": "I want my money back."}, script=make_script(turn, VERDICT))
    assert scenario.result.status == "waiting:human"
    scenario.answer(True)
    assert scenario.result.output == {"verdict": {"restart": False, "why": "paid"}, "turns": 2}
    assert read_tool_results(scenario, "clerk#1.1!turn.2") == [{"cents": 200}, "ab: 200"]
    steps = find_keys(scenario, "effect.call")
    assert steps == ["task[1]/look_up#1.1!step", "task[2]/refund#1.1!step"]
    scenario.crash_everywhere()


def test_a_denied_call_is_not_made_and_the_model_reads_it(scenario: Scenario) -> None:
    turn = make_turn(("refund", {"order": "ab", "cents": 200}))
    scenario.start(workflows.serving, input={"text": "x"}, script=make_script(turn, VERDICT)).answer(False)
    assert read_tool_results(scenario, "clerk#1.1!turn.2") == ["tool.denied"]
    assert [event.type for event in scenario.events].count("effect.call") == 0
    assert scenario.result.status == "completed"


def test_the_model_reads_the_failures_of_its_calls(scenario: Scenario) -> None:
    turn = make_turn(("nothing", {}), ("look_up", {"number": 1}), ("look_up", {"order": "lost"}))
    scenario.start(workflows.serving, input={"text": "x"}, script=make_script(turn, VERDICT))
    assert read_tool_results(scenario, "clerk#1.1!turn.2") == ["tool.unknown", "tool.invalid_input", "step.failed"]
    assert scenario.result.status == "completed"


def test_the_model_corrects_an_answer_that_does_not_fit(scenario: Scenario) -> None:
    scenario.start(workflows.serving, input={"text": "x"}, script=make_script({"data": {"why": "?"}}, VERDICT))
    assert scenario.result.output["turns"] == 2
    scenario.crash_everywhere()


@pytest.mark.parametrize(
    ("reply", "code"), [({"data": {"why": "?"}}, "model.bad_output"), (make_turn(("nothing", {})), "agent.max_turns")]
)
def test_an_agent_without_an_answer_fails_the_workflow(reply: dict[str, Any], code: str, scenario: Scenario) -> None:
    scenario.start(workflows.serving, input={"text": "x"}, script={"default": reply})
    assert find_failure(scenario).code == code


SERVER_TOOLS = [ToolSpec("weather", "Say what the weather is."), ToolSpec("refuse", "Answer with an error.")]
SERVER_CALLS = make_turn(("weather", {"city": "Bonn"}), ("look_up", {"order": "ab"}), ("refuse", {"reason": "closed"}))
GUIDE_SCRIPT = {"turns": {"guide": [SERVER_CALLS, {"text": "21 degrees"}]}}


def test_tools_of_a_server_are_called_beside_steps() -> None:
    answers = {"weather": [{"output": {"degrees": 21}}], "refuse": [{"error": "closed"}]}
    with Scenario(call_steps=True, servers={"desk": SERVER_TOOLS}) as scenario:
        scenario.start(workflows.guiding, input={"text": "How is it?"}, script={**GUIDE_SCRIPT, "tools": answers})
        assert scenario.result.status == "waiting:human"
        scenario.answer(True)
        assert scenario.result.output == "21 degrees"
        weather, found, refused = scenario.turns["guide#1.1!turn.2"].messages[-1].parts
        assert (weather.output, found.output) == ({"degrees": 21}, {"cents": 200})  # pyright: ignore
        assert refused.error.message == "closed"  # pyright: ignore
        offered = scenario.turns["guide#1.1!turn.1"].tools
        assert [(tool.name, tool.server) for tool in offered] == [
            ("look_up", ""),
            ("weather", "desk"),
            ("refuse", "desk"),
        ]
        called = find_keys(scenario, "tool.call")
        assert called == ["guide#1.1!tool.1.0", "guide#1.1!tool.1.2"]
        scenario.crash_everywhere()


async def test_a_server_that_does_not_open_fails_its_agent(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[workflows], allow_scripts=True) as runtime:
        run = await runtime.start(registered="guiding", input={"text": "x"}, script=GUIDE_SCRIPT)
        async with aclosing(run.events()) as events:
            asked = await anext(event async for event in events if event.type == "human.asked")
        await run.answer(True, interaction=asked.key)
        assert (await run.result()).output == "21 degrees"
        run = await runtime.start(registered="unguided", input={"text": "x"}, script={"default": {"text": "?"}})
        assert (await run.result()).output == "tool.unavailable"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tools": [workflows.refund, workflows.refund]}, "several tools of the name refund"),
        ({"servers": [McpTools("b")]}, "needs either command or url"),
        ({"tools": [workflows.refund], "approve": ["gift"]}, "no tool gift"),
    ],
)
def test_an_agent_with_wrong_options_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Agent("a", **options)
