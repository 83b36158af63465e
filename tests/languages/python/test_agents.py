"""Agents of workflows in Python: turns and calls are recorded, approved calls wait, and failures reach the model."""

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent, McpTools, Runtime
from callboard.bus.effects import ToolSpec
from callboard.testing import Scenario
from tests.support import python_workflows as plays


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with Scenario(call_steps=True) as one:
        yield one


def turns(*replies: dict[str, Any]) -> dict[str, Any]:
    return {"turns": {"clerk": list(replies)}}


def calls(*uses: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"tool": tool, "input": given} for tool, given in uses]}


PAID = {"data": {"restart": False, "why": "paid"}}


def tool_answers(scenario: Scenario, turn: str) -> list[Any]:
    """Return the results of its calls that the model reads in a turn: each output, or the code of the failure."""
    parts = scenario.turns[turn].messages[-1].parts
    return [part.output if part.error is None else part.error.code for part in parts]  # pyright: ignore


def test_parallel_calls_are_steps_and_an_approved_call_is_made(scenario: Scenario) -> None:
    wanted = calls(("look_up", {"order": "ab"}), ("refund", {"order": "ab", "cents": 200}))
    scenario.start(plays.serving, input={"text": "I want my money back."}, script=turns(wanted, PAID))
    assert scenario.result.status == "waiting:human"
    scenario.answer(True)
    assert scenario.result.output == {"verdict": {"restart": False, "why": "paid"}, "turns": 2}
    assert tool_answers(scenario, "clerk#1.1!turn.2") == [{"cents": 200}, "ab: 200"]
    steps = [event.key for event in scenario.events if event.type == "effect.call"]
    assert steps == ["task[1]/look_up#1.1!step", "task[2]/refund#1.1!step"]
    scenario.crash_everywhere()


def test_a_denied_call_is_not_made_and_the_model_reads_it(scenario: Scenario) -> None:
    wanted = calls(("refund", {"order": "ab", "cents": 200}))
    scenario.start(plays.serving, input={"text": "x"}, script=turns(wanted, PAID)).answer(False)
    assert tool_answers(scenario, "clerk#1.1!turn.2") == ["tool.denied"]
    assert [event.type for event in scenario.events].count("effect.call") == 0
    assert scenario.result.status == "completed"


def test_what_cannot_be_called_or_fails_is_told_to_the_model(scenario: Scenario) -> None:
    wanted = calls(("nothing", {}), ("look_up", {"number": 1}), ("look_up", {"order": "lost"}))
    scenario.start(plays.serving, input={"text": "x"}, script=turns(wanted, PAID))
    assert tool_answers(scenario, "clerk#1.1!turn.2") == ["tool.unknown", "tool.invalid_input", "step.failed"]
    assert scenario.result.status == "completed"


def test_an_answer_that_does_not_fit_is_corrected(scenario: Scenario) -> None:
    scenario.start(plays.serving, input={"text": "x"}, script=turns({"data": {"why": "?"}}, PAID))
    assert scenario.result.output["turns"] == 2
    scenario.crash_everywhere()


@pytest.mark.parametrize(
    ("reply", "code"), [({"data": {"why": "?"}}, "model.bad_output"), (calls(("nothing", {})), "agent.max_turns")]
)
def test_an_agent_without_an_answer_fails_the_workflow(reply: dict[str, Any], code: str, scenario: Scenario) -> None:
    scenario.start(plays.serving, input={"text": "x"}, script={"default": reply})
    assert scenario.result.error is not None
    assert scenario.result.error.code == code


DESK = [ToolSpec("weather", "Say what the weather is."), ToolSpec("refuse", "Answer with an error.")]
WANTED = calls(("weather", {"city": "Bonn"}), ("look_up", {"order": "ab"}), ("refuse", {"reason": "closed"}))
GUIDED = {"turns": {"guide": [WANTED, {"text": "21 degrees"}]}}


def test_tools_of_a_server_are_called_beside_steps() -> None:
    answers = {"weather": [{"output": {"degrees": 21}}], "refuse": [{"error": "closed"}]}
    with Scenario(call_steps=True, servers={"desk": DESK}) as scenario:
        scenario.start(plays.guiding, input={"text": "How is it?"}, script={**GUIDED, "tools": answers})
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
        called = [event.key for event in scenario.events if event.type == "tool.call"]
        assert called == ["guide#1.1!tool.1.0", "guide#1.1!tool.1.2"]
        scenario.crash_everywhere()


async def test_a_real_server_answers_and_one_that_does_not_open_fails_the_agent(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[plays], allow_scripts=True) as runtime:
        run = await runtime.start(registered="guiding", input={"text": "x"}, script=GUIDED)
        async with aclosing(run.events()) as events:
            asked = await anext(event async for event in events if event.type == "human.asked")
        await run.answer(True, interaction=asked.key)
        assert (await run.result()).output == "21 degrees"
        run = await runtime.start(registered="unguided", input={"text": "x"}, script={"default": {"text": "?"}})
        assert (await run.result()).output == "tool.unavailable"


def test_mistakes_are_found_when_an_agent_is_made() -> None:
    with pytest.raises(ValueError, match="several tools of the name refund"):
        Agent("a", tools=[plays.refund, plays.refund])
    with pytest.raises(ValueError, match="needs either command or url"):
        Agent("a", servers=[McpTools("b")])
    with pytest.raises(ValueError, match="no tool gift"):
        Agent("a", tools=[plays.refund], approve=["gift"])
