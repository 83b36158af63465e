"""Agents of the Claude Agent SDK in workflows: turns, calls and approvals are effects of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.effects import Usage
from callboard.bus.work import NEEDS_PERSON
from callboard.testing import Scenario
from tests.support.claude_agent_cli import Block, Cli, text, use
from tests.support.late_modules import LateModule

plays = LateModule("tests.support.claude_agent_programs")

LINGER_S = "callboard.adapters.claude_agent.processes.LINGER_S"
TRANSPORT = "claude_agent_sdk._internal.transport.subprocess_cli.SubprocessCLITransport"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    plays.MADE.clear()
    plays.KEYS.clear()
    played = Cli()
    monkeypatch.setattr(TRANSPORT, played.transport)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    return played


@pytest.fixture
def scenario(cli: Cli) -> Iterator[Scenario]:
    with Scenario(own_models=True) as one:
        yield one


def keys(scenario: Scenario, event_type: str) -> list[str]:
    return [event.key for event in scenario.events if event.type == event_type]


def payloads(scenario: Scenario, event_type: str) -> list[Any]:
    return scenario.payloads(event_type)


def results(messages: list[Any]) -> dict[str, Any]:
    """The results of tools in a conversation, by the ids of the calls."""
    return {
        block["tool_use_id"]: block["content"]
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    }


def shop(messages: list[Any]) -> list[Block]:
    """A model that looks two orders up, pays money back, and says so."""
    known = results(messages)
    if "t1" not in known:
        return [text("Let me look."), *(use(f"t{k}", "mcp__shop__price", order=f"a{k}") for k in (1, 2))]
    if "t3" not in known:
        return [use("t3", "mcp__shop__refund", order="a1", cents=500)]
    return [text("It is paid.")]


def test_two_turns_with_tools_and_an_approval(scenario: Scenario, cli: Cli) -> None:
    cli.model = shop
    scenario.start(plays.complaint, input={"text": "It broke."})
    assert scenario.result.status == "waiting:human"
    [asked] = payloads(scenario, "human.asked")
    assert asked.question == "May agent claude call mcp__shop__refund?"
    assert asked.request_data["arguments"] == {"order": "a1", "cents": 500}
    assert asked.request_data["conversation"] == {"path": "claude", "turn": "claude#1.1!turn.2"}
    scenario.answer(True)
    assert scenario.result.output == {
        "texts": ["Let me look.", "It is paid."],
        "results": ["500", "500", "paid 500"],
        "ended": [["success", "It is paid."]],
    }
    assert sorted(plays.MADE) == ["price a1", "price a2", "refund a1 500"]
    assert keys(scenario, "model.call") == [
        "claude#1.1!turn.1",
        "claude#1.1!turn.2",
        "claude#1.1!turn.3",
        "claude/other#1.1!turn.1",
    ]
    assert keys(scenario, "effect.call") == [
        "claude/list_tools#1.1!step",
        "claude/mcp__shop__price#1.1!step",
        "claude/mcp__shop__price#2.1!step",
        "claude/mcp__shop__refund#1.1!step",
    ]
    # Three turns, and what the program has asked on its own.
    assert scenario.result.usage == Usage(307, 60)
    plays.MADE.clear()
    scenario.crash_everywhere(lambda one: [call.digest for call in payloads(one, "model.call")])


def test_a_turn_is_recorded_as_any_other_and_with_the_messages_of_the_sdk(scenario: Scenario, cli: Cli) -> None:
    cli.model = shop
    scenario.start(plays.complaint, input={"text": "It broke."}).answer(True)
    first, second, third, _other = payloads(scenario, "model.call")
    assert (first.model, first.system) == ("anthropic:claude-sonnet-5", "Be fair.")
    assert [(one.name, one.server) for one in first.tools] == [
        ("mcp__shop__price", "shop"),
        ("mcp__shop__refund", "shop"),
    ]
    assert (second.base, len(second.messages)) == ("claude#1.1!turn.1", 1)  # only what is new
    assert [part.output for part in third.messages[0].parts] == ["paid 500"]
    result = payloads(scenario, "model.result")[0]
    assert (result.text, result.stop_reason, result.usage) == ("Let me look.", "tool_use", Usage(100, 20))
    assert [call.id for call in result.tool_calls] == ["t1", "t2"]
    assert [frame["type"] for frame in result.native["frames"]] == ["system", *["assistant"] * 3]
    assert len(set(plays.KEYS)) == 3
    # One process has made all of it, since the decision came soon enough.
    assert len(cli.started) == 1


def test_another_worker_continues_the_session(scenario: Scenario, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LINGER_S, 0)
    cli.model = shop
    scenario.start(plays.complaint, input={"text": "It broke."}).answer(True)
    assert scenario.result.output["ended"] == [["success", "It is paid."]]
    assert len(cli.started) > 1
    assert len(cli.asked) == 3  # no turn was repeated
    assert sorted(plays.MADE) == ["price a1", "price a2", "refund a1 500"]
    continued = cli.asked[-1]
    assert results(continued) == {
        "t1": [text("500")],
        "t2": [text("500")],
        "t3": [text("paid 500")],
    }
    assert continued[-1]["content"][-1] == text("Continue from where you left off.")
    plays.MADE.clear()
    scenario.crash_everywhere()


def build(messages: list[Any]) -> list[Block]:
    """A model that runs a command."""
    known = results(messages)
    if "b1" not in known:
        return [use("b1", "Bash", command="make")]
    return [text(f"Told: {known['b1']}")]


DECISIONS = {
    "approve": (True, ['Bash {"command": "make"}'], "Told: Bash done"),
    "edited": (
        {"decision": "approve", "arguments": {"command": "make -n"}},
        ['Bash {"command": "make -n"}'],
        "Told: Bash done",
    ),
    "rejected": ({"decision": "reject", "reason": "Not now."}, [], "rejected the call of Bash: Not now."),
}


@pytest.mark.parametrize("linger_s", [60, 0], ids=["same process", "other worker"])
@pytest.mark.parametrize("decision", DECISIONS)
def test_the_approval_of_one_call_of_the_programs_own_tools(
    scenario: Scenario, cli: Cli, monkeypatch: pytest.MonkeyPatch, decision: str, linger_s: float
) -> None:
    monkeypatch.setattr(LINGER_S, linger_s)
    answer, made, told = DECISIONS[decision]
    cli.model = build
    scenario.start(plays.complaint, input={"text": "Build it."})
    assert scenario.result.status == "waiting:human"
    assert cli.made == []
    scenario.answer(answer)
    assert scenario.result.status == "completed"
    assert cli.made == made
    assert scenario.result.output["texts"][0].endswith(told)
    assert len(cli.asked) == 2


def test_calls_that_another_process_cannot_make_are_made_again_by_the_model(
    scenario: Scenario, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process makes one call of the latest turn, the only one without a result. The model makes others again, and
    the decision about them holds."""
    monkeypatch.setattr(LINGER_S, 0)

    def model(messages: list[Any]) -> list[Block]:
        known = results(messages)
        if "b1" not in known:
            return [use("b1", "Bash", command="one"), use("b2", "Bash", command="two")]
        return [use("b3", "Bash", command="one")] if "b3" not in known else [text("Done.")]

    cli.model = model
    scenario.start(plays.complaint, input={"text": "Build it."})
    first, second = keys(scenario, "human.asked")
    scenario.answer(True, interaction=first)
    scenario.answer(True, interaction=second)
    assert scenario.result.status == "completed"
    assert len(keys(scenario, "human.asked")) == 2
    assert cli.made == ['Bash {"command": "two"}', 'Bash {"command": "one"}']
    assert results(cli.asked[1])["b1"].endswith('It is approved: make it again, with the input {"command":"one"}')


def test_a_call_without_permission_is_not_made(scenario: Scenario, cli: Cli) -> None:
    cli.model = lambda messages: (
        [text(results(messages)["b1"])] if results(messages) else [use("b1", "Write", file_path="a")]
    )
    scenario.start(plays.complaint, input={"text": "Write."})
    assert scenario.result.output["texts"] == [
        "Claude requested permissions to use Write, but you haven't granted it yet."
    ]
    assert cli.made == []


def test_calls_of_subagents_that_need_a_person_are_refused(scenario: Scenario, cli: Cli) -> None:
    cli.model = lambda messages: (
        [text(results(messages)["b1"])] if results(messages) else [use("b1", "Task", prompt="Build it.")]
    )
    scenario.start(plays.complaint, input={"text": "Build it."})
    assert "which those of subagents cannot" in scenario.result.output["texts"][0]
    assert keys(scenario, "human.asked") == []


def test_a_client_has_several_queries_in_one_session(scenario: Scenario, cli: Cli) -> None:
    cli.model = lambda messages: [text(f"{len(messages)} messages")]
    scenario.start(plays.chat, input={"texts": ["Hello.", "Again."]})
    assert [said["texts"] for said in scenario.result.output] == [["1 messages"], ["3 messages"]]
    assert keys(scenario, "model.call")[:1] == ["clerk#1.1!turn.1"]
    assert payloads(scenario, "model.call")[2].base == "clerk#1.1!turn.1"
    scenario.crash_everywhere()


def test_a_task_takes_the_messages_of_all_queries(scenario: Scenario, cli: Cli) -> None:
    cli.model = lambda messages: [text(f"{len(messages)} messages")]
    scenario.start(plays.listened, input={"texts": ["Hello.", "Again."]})
    scenario.advance(seconds=61)
    refused = "interrupt is an operation on the process of one worker, which a workflow does not have"
    assert scenario.result.output == ["1 messages", "3 messages", refused]


def test_an_agent_that_is_not_durable_is_refused_in_a_workflow() -> None:
    with Scenario(own_models=True) as scenario:
        scenario.start(plays.plain)
        assert scenario.result.error is not None
        assert scenario.result.error.code == "python.io_in_workflow"


def test_a_session_of_the_run_is_resumed(scenario: Scenario, cli: Cli) -> None:
    cli.model = lambda messages: [text(f"{len(messages)} messages")]
    scenario.start(plays.resumed, input={"first": "Hello.", "second": "Again."})
    assert scenario.result.output == ["1 messages", "3 messages"]


def test_a_session_that_the_run_does_not_have_is_refused(scenario: Scenario) -> None:
    scenario.start(plays.stranger)
    assert scenario.result.error is not None
    assert "continues a session that this run does not have" in scenario.result.error.message


def test_a_turn_whose_process_ends_is_tried_again_by_another_one(scenario: Scenario, cli: Cli) -> None:
    cli.model = shop
    cli.stop_after = 2
    scenario.start(plays.complaint, input={"text": "It broke."})
    scenario.advance(seconds=60)
    scenario.answer(True)
    assert scenario.result.output["ended"] == [["success", "It is paid."]]
    assert payloads(scenario, "model.result")[1].tries == 2
    assert sorted(plays.MADE) == ["price a1", "price a2", "refund a1 500"]


def test_a_script_replaces_the_program(cli: Cli) -> None:
    said: dict[str, Any] = {
        "claude": [
            {"tool_calls": [{"tool": "mcp__shop__price", "input": {"order": "a1"}}, {"tool": "Read", "input": {}}]},
            {"text": "Scripted."},
        ]
    }
    with Scenario(call_steps=True) as scripted:
        scripted.start(plays.complaint, input={"text": "?"}, script={"turns": said})
        assert scripted.result.output == {
            "texts": ["Scripted."],
            "results": ["500", "This tool is not called for a script: only tools of SDK MCP servers are."],
            "ended": [["success", "Scripted."]],
        }
    assert cli.started == []


@pytest.mark.parametrize("how", ["query", "client"])
def test_an_agent_with_approvals_is_refused_in_a_tool_of_another(scenario: Scenario, cli: Cli, how: str) -> None:
    plays.INNER[:] = [how]
    cli.model = lambda messages: [text("Done.")] if results(messages) else [use("d1", "mcp__office__delegate")]
    scenario.start(plays.delegating)
    error = scenario.result.error
    assert error is not None
    assert (scenario.result.status, error.code) == ("failed", NEEDS_PERSON)
    assert "agent clerk has tools that need approval in the step mcp__office__delegate" in error.message
    assert len(cli.started) == 1


@pytest.mark.parametrize("name", ["mcp__shop", "mcp__shop__*", "Bash(rm:*)"])
def test_an_approval_that_names_no_tool_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="has to be names of tools"):
        plays.ClaudeSDKClient(approve=[name])
