"""Tries of tools and models: a worker that takes a run over continues the recorded count."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from callboard.actors.carrier import Carrier, Job, Reporter
from callboard.actors.models.model import ModelTurn, ModelTurnFailed, Retrying
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.effects import Failure, ModelReply
from callboard.bus.subjects import RunRef
from callboard.runtime.run.crashes import count_failed_tries

AT = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
FAILED = Failure("model.overloaded", "busy", details={"tries": 2})


def event(n: int, key: str, payload: ev.Payload) -> ev.Event:
    raw = msgspec.Raw(ev.encode_payload(payload))
    return ev.Event(
        type=payload.type, run="r1", n=n, epoch=1, v=ev.SCHEMA_VERSION, time=AT, path="a", key=key, payload=raw
    )


def progress(n: int, key: str, data: Any) -> ev.Event:
    return event(n, key, ev.NodeProgress(node="a", message="m", data=data))


def test_the_failed_tries_of_each_effect_are_counted() -> None:
    events = [
        progress(3, "a!tool.1.0", {"tries": 1}),
        progress(4, "a!turn.2", {"code": "model.overloaded", "tries": 4, "wait_s": 1.0}),
        progress(5, "a!tool.1.0", {"tries": 2}),
        progress(6, "a!tool.1.1", {"lent": "tries"}),
        progress(7, "", {"tries": 9}),
        progress(8, "a!tool.1.2", None),
    ]
    assert count_failed_tries(events) == {"a!tool.1.0": 2, "a!turn.2": 4}
    assert count_failed_tries(events, after=4) == {"a!tool.1.0": 2}


class FailingToolbox:
    """A toolbox whose tool fails once and then works."""

    async def serving(self, *_: Any) -> Any:
        return self

    async def find_changed(self, _toolboxes: Any) -> dict[str, Any]:
        return {}

    async def call(self, _tool: str, _input: Any, context: ToolCallContext, **_names: str) -> str:
        context.on_failed_try(context.tried + 1, "failed again")
        context.on_try(context.tried + 2)
        return "done"


class FailingModel:
    """A model that needs two requests, or fails after two."""

    provider = "test"

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    async def turn(self, _turn: ModelTurn, _on_text: Any, on_retry: Any) -> ModelReply:
        on_retry(Retrying(FAILED, 1, 6, 0.5))
        if self._fails:
            raise ModelTurnFailed(FAILED)
        return ModelReply(text="done", tries=2)


async def carry(intent: ev.Payload, tried: int, *, fails: bool = False) -> tuple[Any, list[Any]]:
    """Carry out an effect of which some tries have failed before; return its outcome and the data of its progress."""

    async def models(_name: str) -> tuple[Any, str]:
        return FailingModel(fails=fails), "m"

    reports: list[Any] = []
    carrier = Carrier(
        models=models, tools=ToolEnvironment(env={}), kinds={}, on_delta=lambda *_: None, model_timeout_s=10.0
    )
    turn = ModelTurn(model="m", path="a", key="a!x", ordinal=0, idempotency_key="i")
    job = Job(RunRef("default", "r1"), event(2, "a!x", intent), intent, "i", node="a", turn=turn, tried=tried)
    sessions: Any = FailingToolbox()
    return await carrier.carry(job, sessions, Reporter(reports.append)), [one.data for one in reports]


@pytest.mark.parametrize("tried", [0, 3])
async def test_a_tool_call_continues_the_recorded_count_of_tries(tried: int) -> None:
    result, reports = await carry(ev.ToolCall(node="a", tool="t"), tried)
    assert (result.output, result.tries) == ("done", tried + 2)
    assert reports == [{"tries": tried + 1}]


@pytest.mark.parametrize("tried", [0, 3])
async def test_a_model_turn_continues_the_recorded_count_of_tries(tried: int) -> None:
    call = ev.ModelCall(purpose="turn", model="x:m", digest="d")
    result, reports = await carry(call, tried)
    assert (result.text, result.tries) == ("done", tried + 2)
    assert [one["tries"] for one in reports] == [tried + 1]
    failed, _said = await carry(call, tried, fails=True)
    assert failed.error.details == {"tries": tried + 2}
