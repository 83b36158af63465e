"""Turns that code of a workflow performs: recorded and counted like any other, tried again, and not made twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard import Runtime
from callboard.bus import events as ev
from callboard.bus.effects import ModelRequest, Usage, user
from callboard.languages.python.model_turns import ModelTurns
from callboard.languages.python.runs import RunOnly
from callboard.testing import Scenario
from tests.support import python_turns as workflows


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    workflows.ASKED.clear()
    workflows.FAILURES.clear()
    with Scenario(own_models=True) as one:
        yield one


def read_payloads(scenario: Scenario, event_type: str) -> list[Any]:
    return scenario.payloads(event_type)


def test_turns_are_recorded_with_the_message_of_the_library(scenario: Scenario) -> None:
    scenario.start(workflows.conversation)
    assert scenario.result.output == {
        "native": [{"thinking": "hm", "id": "r1"}, {"id": "r2"}],
        "texts": ["Let me see.", "Paid.", "Paid."],
    }
    first, second, third = read_payloads(scenario, "model.call")
    assert (first.model, first.provider, first.system, first.temperature) == (
        workflows.MODEL,
        "openai",
        "Be fair.",
        0.5,
    )
    # A turn that continues another records only what is new.
    assert (second.base, second.system, len(second.messages), second.tools) == ("clerk#1.1!turn.1", "", 1, [])
    assert third.base is None
    assert len(scenario.turns["clerk#1.1!turn.2"].messages) == 3
    results = read_payloads(scenario, "model.result")
    assert [one.model for one in results] == [workflows.MODEL] * 3
    assert results[0].response_model == "gpt-4.1-2025"
    assert results[0].first_chunk_ms is not None
    assert scenario.result.usage == Usage(50, 8)
    assert len(workflows.ASKED) == len(set(workflows.ASKED)) == 3
    scenario.crash_everywhere(lambda one: [call.digest for call in read_payloads(one, "model.call")])


def test_a_script_answers_instead_of_the_library(scenario: Scenario) -> None:
    with Scenario(call_steps=True) as scripted:
        scripted.start(workflows.conversation, script={"default": {"text": "scripted"}})
        assert scripted.result.output == {"native": [None, None], "texts": ["scripted"] * 3}
        assert workflows.ASKED == []


@pytest.mark.parametrize(
    "error", [workflows.Refused(503), workflows.Refused(429), TimeoutError("slow"), ConnectionError("x")]
)
def test_a_passing_failure_is_tried_again(error: Exception, scenario: Scenario) -> None:
    workflows.FAILURES.append(error)
    scenario.start(workflows.failing)
    assert scenario.result.output == "Paid."
    [result] = read_payloads(scenario, "model.result")
    assert result.tries == 2
    assert len(set(workflows.ASKED)) == 1  # one idempotency key


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (workflows.Refused(401, "no key"), "model.auth"),
        (workflows.Refused(400, "bad"), "model.bad_request"),
        (ValueError("odd"), "model.raised"),
    ],
)
def test_other_failures_fail_the_turn(error: Exception, code: str, scenario: Scenario) -> None:
    workflows.FAILURES.append(error)
    scenario.start(workflows.failing)
    failed = scenario.result.error
    assert failed is not None
    assert (failed.code, failed.previous and failed.previous.code) == (code, code)
    [result] = read_payloads(scenario, "model.result")
    assert result.error.message == str(error)
    assert result.error.details["native"] == {"said": str(error)}
    assert result.error.details["type"] == type(error).__name__
    assert result.tries == 1
    assert len(workflows.ASKED) == 1


def test_code_that_calls_exit_fails_the_turn_and_not_the_worker(scenario: Scenario) -> None:
    workflows.FAILURES.append(SystemExit("bye"))
    scenario.start(workflows.failing)
    [result] = read_payloads(scenario, "model.result")
    assert (result.error.code, result.error.message) == ("model.raised", "the code has called exit: bye")
    assert len(workflows.ASKED) == 1


def test_the_status_of_a_failure_is_that_of_its_cause(scenario: Scenario) -> None:
    outer = RuntimeError("the SDK gave up")
    outer.__cause__ = workflows.Refused(403, "not yours")
    workflows.FAILURES.append(outer)
    scenario.start(workflows.failing)
    [result] = read_payloads(scenario, "model.result")
    assert (result.error.code, result.error.message) == ("model.auth", "the SDK gave up")
    assert result.error.details == {
        "type": "RuntimeError",
        "status": 403,
        "tries": 1,
        "native": {"said": "the SDK gave up"},
    }


async def test_a_recorded_run_repeats_the_turns_of_a_worker(tmp_path: Path) -> None:
    workflows.ASKED.clear()
    async with Runtime(data_dir=tmp_path / "state", code=[workflows], allow_scripts=True) as runtime:
        run = await runtime.start(registered="conversation")
        output = (await run.result()).output
        assert output["texts"] == ["Let me see.", "Paid.", "Paid."]
        again = await runtime.start(registered="conversation", model=f"recorded:{run.id}")
        assert (await again.result()).output == output
    assert len(workflows.ASKED) == 3


def test_turns_outside_of_a_workflow_are_refused() -> None:
    with pytest.raises(RunOnly, match="clerk"):
        ModelTurns("clerk")


def test_an_event_keeps_the_message_of_the_library() -> None:
    line = ev.encode_payload(ev.ModelResult(native={"id": "r1"}))
    assert ev.decode_payload("model.result", line).native == {"id": "r1"}  # pyright: ignore
    assert ModelRequest(messages=[user("x")]).model is None
