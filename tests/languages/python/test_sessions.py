"""Sessions are conversations of several runs. Each change is made and recorded once."""

from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from callboard import Runtime, session
from callboard.bus.effects import Text
from callboard.languages.python.runs import RunOnly
from callboard.testing import Scenario
from tests.support import session_workflows as workflows
from tests.support.workdir import Workdir


def test_items_are_appended_once_whatever_crashes(scenario: Scenario) -> None:
    scenario.start(workflows.keeping, input={"key": "ada/1", "texts": ["a", "b", "c", "d", "e", "f"]})
    # The session keeps four items.
    assert scenario.result.output == {"before": [], "latest": ["f"], "popped": "f", "after": ["c", "d", "e"]}
    first: Any = scenario.payloads("effect.call")[1]
    assert (first.request["run"], first.request["items"][:2]) == ("run-1", ["a", "b"])
    scenario.crash_everywhere()


def test_a_session_can_be_forgotten(scenario: Scenario) -> None:
    scenario.start(workflows.keeping, input={"key": "ada", "texts": ["a", "b"], "drop": True})
    assert scenario.result.output["after"] == []
    scenario.crash_everywhere()


def test_an_agent_continues_a_conversation(scenario: Scenario) -> None:
    script = {"turns": {"clerk": [{"text": "Hello."}, {"text": "Again."}]}}
    scenario.start(workflows.chatting, input={"key": "ada", "texts": ["Hi.", "Hi again."]}, script=script)
    assert scenario.result.output == ["Hello.", "Again."]
    said = [
        [part.text for part in one.parts if isinstance(part, Text)]
        for one in scenario.turns["clerk#2.1!turn.1"].messages
    ]
    assert said == [["Hi."], ["Hello."], ["Hi again."]]
    scenario.crash_everywhere()


def test_an_item_that_is_too_large_is_refused(scenario: Scenario) -> None:
    scenario.start(workflows.overfull, input={"key": "ada"})
    assert scenario.result.output == "memory.too_large"


async def test_wrong_arguments_of_a_session_are_refused() -> None:
    for wrong in (lambda: session(""), lambda: session("x" * 1_001), lambda: session("a", items_max=0)):
        with pytest.raises(ValueError, match="it has to"):
            wrong()
    with pytest.raises(RunOnly, match="session a needs a run"):
        await session("a").items()
    with pytest.raises(ValueError, match="limit is 0"):
        await session("a").items(0)


async def test_runs_share_a_session_that_commands_show_and_forget(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    async with Runtime(data_dir=workdir.folder / ".callboard", code=[workflows]) as runtime:

        async def perform(**given: Any) -> Any:
            run = await runtime.start(registered="keeping", input=given)
            result = await run.result()
            assert result.error is None
            return result.output

        assert (await perform(key="ada/ü 1", texts=["a", "b"]))["after"] == ["a"]
        assert (await perform(key="ada/ü 1", texts=["c", "d"]))["after"] == ["a", "c"]

    def look() -> None:
        (listed,) = workdir.run_json("sessions", "list")
        assert (listed["key"], listed["items"]) == ("ada/ü 1", 2)
        assert listed["expires_at"] > listed["changed_at"]
        assert [one["item"] for one in workdir.run_json("sessions", "show", "ada/ü 1")] == ["a", "c"]
        assert "ada/ü 1  2 items  changed" in workdir.run("sessions", "list").output
        assert workdir.run_json("sessions", "forget", "ada/ü 1") == {"forgotten": "ada/ü 1"}
        assert workdir.run_json("sessions", "list") == []
        for verb in ("show", "forget"):
            gone = workdir.run("sessions", verb, "ada/ü 1")
            assert (gone.exit_code, "there is no session" in gone.output) == (2, True)

    await to_thread.run_sync(look)
