"""Waiting for a provider: the turns of a key learn from its refusals together, and a run waits on a timer."""

import datetime as dt
import json
from collections import Counter, deque
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from callboard.actors.models.anthropic import AnthropicModel
from callboard.actors.models.model import ModelTurn, ModelTurnFailed, Retrying
from callboard.actors.models.request_retries import RetryPolicy
from callboard.actors.models.turn_limits import ModelLimit, ProviderLimit, ProviderLimits
from callboard.actors.models.waits import WaitPolicy
from callboard.bus import events as ev
from callboard.bus.effects import Failure, ToolSpec, user
from callboard.bus.model_waits import resume_at
from callboard.languages.patience import WAITS_MAX
from callboard.projections.lists.runs import Runs
from callboard.service.operations.narration import local
from callboard.surfaces.cli.runs import run_cells
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import open_line
from callboard.testing import Scenario
from callboard.testing.plugin import scenario as scenario  # the fixture
from callboard.testing.virtual_time import VirtualLoop
from tests.support.messages_api import failing, saying
from tests.support.model_api import Answer, model_api
from tests.support.workflows import document

TURN = ModelTurn(model="m", path="n", key="k", ordinal=0, idempotency_key="i", messages=[user("hi")])

# -- the gate ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Time jumps from timer to timer."""
    return "asyncio", {"loop_factory": VirtualLoop}


async def test_turns_that_wait_for_a_closed_gate_start_one_after_the_other() -> None:
    gate, times = ModelLimit(), list[float]()

    async def refused() -> None:
        async with gate.pass_limits():
            await anyio.sleep(1.0)
            gate.close(8.0)

    async def turn() -> None:
        async with gate.pass_limits():
            times.append(anyio.current_time())
            await anyio.sleep(10.0)

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(refused)
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(turn)
    assert all(8.0 <= time - began <= 10.0 for time in times)
    assert len(set(times)) == 5


async def test_a_refusal_halves_the_concurrent_turns_and_each_answer_raises_them() -> None:
    gate, under_way, most = ModelLimit(), 0, Counter[str]()

    async def turn(phase: str, *, refused: bool) -> None:
        nonlocal under_way
        async with gate.pass_limits():
            under_way += 1
            most[phase] = max(most[phase], under_way)
            await anyio.sleep(1.0)
            under_way -= 1
            if refused:
                gate.close(5.0)
        if not refused:
            gate.widen()

    for phase, refused in (("first", True), ("second", False), ("third", False)):
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(lambda phase=phase, refused=refused: turn(phase, refused=refused))
    assert most["first"] == 8
    assert most["second"] < 8
    assert most["third"] == 8


async def test_the_concurrent_turns_of_a_lane_are_limited() -> None:
    lanes = ProviderLimits({"anthropic": 2})
    lane, under_way, most = lanes.lane("anthropic", "", "key"), 0, 0

    async def turn() -> None:
        nonlocal under_way, most
        async with lane.place():
            under_way += 1
            most = max(most, under_way)
            await anyio.sleep(1.0)
            under_way -= 1

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(turn)
    assert most == 2


def test_providers_with_the_same_address_and_key_share_a_limit() -> None:
    lanes = ProviderLimits()
    one, same, other = (lanes.lane(name, "http://x", key) for name, key in (("a", "k"), ("b", "k"), ("c", "l")))
    assert one.gate("m") is same.gate("m")
    assert one.gate("m") is not other.gate("m")
    assert one.gate("m") is not one.gate("n")
    assert lanes.lane("a", "http://x", "k") is one


# -- a turn -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_refusals_with_a_requested_wait_do_not_use_up_the_tries() -> None:
    limited = failing(429, "rate_limit_error", "slow down", {"retry-after": "0.06"})
    told: list[Retrying] = []
    async with model_api() as server:
        server.will(*[limited] * 8, saying("At last."))
        model = AnthropicModel(api_key="k", base_url=server.url, retry=RetryPolicy(tries_max=3))
        reply = await model.turn(TURN, lambda _: None, told.append)
        await model.aclose()
    assert (reply.text, reply.tries) == ("At last.", 9)
    assert all(0.06 <= one.wait_s <= 0.075 for one in told)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_refusal_delays_the_other_turns_of_the_key() -> None:
    lane = ProviderLimit()
    async with model_api() as server:
        server.will(failing(429, "rate_limit_error", "slow down", {"retry-after": "0.3"}), *[saying("Yes.")] * 6)
        model = AnthropicModel(api_key="k", base_url=server.url, lane=lane)
        refused, waiting, before = anyio.Event(), anyio.CancelScope(), 0
        async with anyio.create_task_group() as group:
            group.start_soon(model.turn, TURN, lambda _: None, lambda _: refused.set())
            await refused.wait()
            before = len(server.requests)
            waiting.deadline = anyio.current_time() + 0.1
            with waiting:
                await model.turn(TURN, lambda _: None)
        await model.aclose()
    assert waiting.cancelled_caught, "it began although the provider takes no turn"
    assert before == 1
    assert len(server.requests) == 2


class Limited(deque[Answer]):
    """Answers of a provider that takes three requests in each window of a tenth of a second."""

    def __init__(self) -> None:
        super().__init__([saying("Yes.")])
        self.windows = Counter[int]()

    def popleft(self) -> Answer:
        window = int(anyio.current_time() * 10)
        self.windows[window] += 1
        refused = failing(429, "rate_limit_error", "slow down", {"retry-after": "0.1"})
        return saying("Yes.") if self.windows[window] <= 3 else refused


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_two_workers_that_share_a_key_have_all_their_turns_answered() -> None:
    replies: list[str] = []
    async with model_api() as server:
        server.answers = answers = Limited()
        workers = [AnthropicModel(api_key="k", base_url=server.url) for _ in range(2)]

        async def turn(worker: AnthropicModel) -> None:
            replies.append((await worker.turn(TURN, lambda _: None)).text)

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(turn, workers[number % 2])
        for worker in workers:
            await worker.aclose()
    assert replies == ["Yes."] * 40
    assert sum(answers.windows.values()) < 160, "turns that wait ask in vain"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_failure_has_a_requested_wait_that_is_too_long_for_the_turn() -> None:
    async with model_api() as server:
        server.will(failing(429, "rate_limit_error", "used up", {"retry-after": "3600"}))
        model = AnthropicModel(api_key="k", base_url=server.url)
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(TURN, lambda _: None)
        await model.aclose()
    failure = caught.value.failure
    assert (failure.details["retry_after_s"], failure.details["tries"]) == (3600.0, 1)
    assert "asks to wait 3600 s" in failure.message


# -- a run ------------------------------------------------------------------------------------------------------------

NOW = dt.datetime(2026, 11, 20, 11, tzinfo=dt.UTC)
LIMITED: dict[str, Any] = {"error": {"code": "rate_limited", "message": "used up", "retry_after_s": 3600}}


def test_a_wait_within_the_policy_is_accepted_and_a_longer_one_fails() -> None:
    waits = WaitPolicy(max_s=3600.0, clock=lambda: NOW)
    failure = Failure("model.rate_limited", "used up", details={"retry_after_s": 3600.0, "tries": 1})
    agreed = resume_at(waits.with_wait(failure))
    assert agreed is not None
    assert dt.timedelta(hours=1) <= agreed - NOW <= dt.timedelta(hours=1, minutes=1)
    longer = waits.with_wait(replace(failure, details={"retry_after_s": 3601.0}))
    assert resume_at(longer) is None
    assert "model_wait_max_s" in longer.message
    assert waits.with_wait(Failure("model.rate_limited", "slow")) == Failure("model.rate_limited", "slow")
    for odd in (None, "soon", {"resume_at": "soon"}, {"resume_at": "2026-11-20T11:00:00"}, {"resume_at": 5}):
        assert resume_at(Failure("model.rate_limited", details=odd)) is None


def turns(scenario: Scenario) -> list[str]:
    return [event.key for event in scenario.events if event.type == "model.call"]


def test_a_run_waits_on_a_timer_and_asks_again(scenario: Scenario) -> None:
    source = json.dumps(document({"a": {}}))
    scenario.start(source=source, script={"turns": {"a": [LIMITED, LIMITED, {"text": "done"}]}})
    assert scenario.result.status == "waiting:timer"
    assert [payload.purpose for payload in scenario.payloads("timer.set") if isinstance(payload, ev.TimerSet)] == [
        "wait"
    ]
    scenario.advance(hours=3)
    assert scenario.result.status == "completed"
    assert turns(scenario) == ["a#1.1!turn.1", "a#1.1!turn.1.again.1", "a#1.1!turn.1.again.2"]
    first, *_others = scenario.payloads("model.result")
    assert isinstance(first, ev.ModelResult)
    assert first.error is not None
    assert first.error.details["retry_after_s"] == 3600
    scenario.crash_everywhere()


def test_a_wait_for_a_provider_says_for_which_model_until_when_and_why(scenario: Scenario) -> None:
    scenario.start(source=json.dumps(document({"a": {}})), script={"turns": {"a": [LIMITED, LIMITED, {"text": "x"}]}})
    for _ in range(2):
        [timer] = [one for one in scenario.payloads("timer.set")[-1:] if isinstance(one, ev.TimerSet)]
        [opened] = scenario.result.open
        waits_for = opened.waits_for
        assert opened.until == timer.due
        assert waits_for.startswith("scripted (model.rate_limited: ")
        line = open_line(opened, "r1", Settings())
        assert f"  until {local(timer.due)}" in line
        assert line.endswith(f"\n    waits for {waits_for}")
        parked = [one for one in scenario.payloads("run.parked") if isinstance(one, ev.RunParked)][-1]
        assert (parked.deadline, parked.waits_for) == (timer.due, waits_for)
        runs = Runs()
        for event in scenario.events:
            runs.apply(event)
        [row] = runs.view()
        assert run_cells(row)[-1] == f"until {local(timer.due)}, for {waits_for}"
        scenario.advance(hours=1, minutes=10)
    assert scenario.result.open == []


def test_a_conversation_continues_after_the_last_answered_turn() -> None:
    skill = {"s": {"name": "S", "mcp": {"command": "x"}}}
    source = json.dumps(document({"a": {"skills": ["s"]}}, skills=skill))
    script: dict[str, Any] = {
        "turns": {"a": [LIMITED, {"tool_calls": [{"tool": "look"}]}, LIMITED, {"text": "done"}]},
        "tools": {"look": [{"output": 1}]},
    }
    with Scenario(servers={"s": [ToolSpec("look")]}) as scenario:
        scenario.start(source=source, script=script)
        scenario.advance(hours=3)
        assert scenario.result.status == "completed"
        calls = [payload for payload in scenario.payloads("model.call") if isinstance(payload, ev.ModelCall)]
        assert [call.base for call in calls] == [None, None, *["a#1.1!turn.1.again.1"] * 2]
        asked = scenario.turns["a#1.1!turn.2.again.1"].messages
    assert [message.role for message in asked] == ["user", "assistant", "user"]


@pytest.mark.parametrize("section", ["routes", "judges"])
def test_routing_questions_also_wait_for_the_provider(scenario: Scenario, section: str) -> None:
    judged = {"eval": [{"name": "good", "kind": "judge", "rubric": "Is it?"}]}
    nodes = {"a": judged if section == "judges" else {}, "b": {}}
    answers: dict[str, Any] = {"routes": {"a": [LIMITED, "b"]}, "judges": {"a/good": [LIMITED, "yes"]}}
    edges = [("a", "b", "it rains")] if section == "routes" else [("a", "b")]
    scenario.start(
        source=json.dumps(document(nodes, edges)),
        script={section: answers[section], "default": {"text": "ok"}},
    )
    assert scenario.result.status == "waiting:timer"
    scenario.advance(hours=2)
    assert scenario.result.status == "completed"
    assert [event.path for event in scenario.events if event.type == "node.exit"] == ["a", "b"]


def test_a_turn_that_is_always_refused_fails_finally(scenario: Scenario) -> None:
    scenario.start(source=json.dumps(document({"a": {}})), script={"default": LIMITED})
    scenario.advance(hours=2 * WAITS_MAX)
    assert scenario.result.status == "failed"
    assert len(turns(scenario)) == WAITS_MAX + 1


def test_a_run_that_waits_can_be_cancelled(scenario: Scenario) -> None:
    scenario.start(source=json.dumps(document({"a": {}})), script={"default": LIMITED})
    scenario.cancel()
    assert scenario.result.status == "cancelled"
