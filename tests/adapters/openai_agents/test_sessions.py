"""Sessions and MCP servers of the SDK in workflows."""

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from callboard import Runtime
from callboard.bus.effects import ToolSpec
from callboard.languages.python.runs import RunOnly
from callboard.testing import Scenario
from tests.support.late_modules import LateModule, module_of

plays = LateModule("tests.support.openai_agents_programs")
adapter = LateModule("callboard.adapters.openai_agents")


async def test_a_session_lasts_from_run_to_run(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[module_of(plays)]) as runtime:
        first = await (await runtime.start(registered="chat", input={"text": "Hi."})).result()
        assert (first.output["output"], first.output["items"]) == ("one", 2)
        second = await (await runtime.start(registered="chat", input={"text": "And?"})).result()
        assert (second.output["output"], second.output["items"]) == ("two", 4)
        assert second.output["last"][0]["content"][0]["text"] == "two"
        third = await (await runtime.start(registered="chat", input={"text": "New.", "forget": True})).result()
        assert (third.output["output"], third.output["items"]) == ("one", 2)


def test_operations_of_a_session_are_effects() -> None:
    with Scenario(own_models=True) as scenario:
        scenario.start(plays.chat, input={"text": "Hi.", "forget": True})
        calls: list[Any] = list(scenario.payloads("effect.call"))
        operations = [one.request["operation"] for one in calls]
        assert operations == ["pop", "forget", "items", "append", "append", "items", "items"]
        assert calls[0].request["memory"]["configurations"] == {"expires_s": 30 * 86_400.0}
        assert {event.path for event in scenario.events if event.type == "effect.call"} == {"session"}


def test_a_session_of_the_sdk_is_used_in_steps(tmp_path: Path) -> None:
    with Scenario(own_models=True) as scenario:
        scenario.start(plays.chat_in, input={"file": str(tmp_path / "chat.db")})
        # Each operation was performed once, though the run was replayed.
        assert scenario.result.output == ["one", "two"]
        steps = [one.request["step"] for one in scenario.payloads("effect.call")]  # pyright: ignore
        assert set(steps) == {"session.get_items", "session.add_items"}


async def test_a_session_needs_a_run() -> None:
    with pytest.raises(RunOnly, match="session ada"):
        await adapter.CallboardSession("ada").get_items()


DESK = [ToolSpec("weather", "Say what the weather is."), ToolSpec("refuse", "Answer with an error.")]


@pytest.fixture
def desk() -> Iterator[Scenario]:
    with Scenario(own_models=True, servers={"desk": DESK}) as scenario:
        yield scenario


def test_tools_of_a_server_are_recorded_and_wait_for_consent(desk: Scenario) -> None:
    answers = {"weather": [{"output": {"degrees": 21}}], "refuse": [{"error": "closed"}]}
    desk.start(plays.guided, script={"tools": answers})
    assert desk.result.status == "waiting:human"
    desk.answer(True)
    weather, refused = desk.result.output
    assert "21" in weather
    assert "closed" in refused
    called = [event.key for event in desk.events if event.type == "tool.call"]
    assert called == ["desk#1.1!tool.1", "desk#1.1!tool.2"]
    desk.crash_everywhere()


async def test_a_real_server_in_a_workflow_and_outside(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[module_of(plays)]) as runtime:
        run = await runtime.start(registered="guided")
        async with aclosing(run.events()) as events:
            asked = await anext(event async for event in events if event.type == "human.asked")
        await run.answer(True, interaction=asked.key)
        weather, _refused = (await run.result()).output
        assert "21" in weather
    async with adapter.CallboardMCPServer(plays.DESK) as server:
        assert "weather" in [tool.name for tool in await server.list_tools()]
        result = await server.call_tool("weather", {"city": "Bonn"})
        assert "21" in result.content[0].text  # pyright: ignore


def test_a_session_that_the_sdk_compacts_is_compacted_in_a_step(tmp_path: Path) -> None:
    plays.CompactedSession.compacted = 0
    with Scenario(own_models=True) as scenario:
        scenario.start(plays.compacted, input={"file": str(tmp_path / "chat.db")})
        assert scenario.result.status == "completed"
        steps = [one.request["step"] for one in scenario.payloads("effect.call")]  # pyright: ignore
        assert steps[-1] == "session.run_compaction"
        assert plays.CompactedSession.compacted == 1


def test_a_server_of_the_sdk_is_refused_in_a_workflow_with_the_one_to_use() -> None:
    with Scenario(own_models=True) as scenario:
        scenario.start(plays.with_own_server)
        error = scenario.result.error
        assert error is not None
        assert error.code == "python.io_in_workflow"
        assert 'use CallboardMCPServer(McpTools("issues", command=["npx", …]))' in error.message
