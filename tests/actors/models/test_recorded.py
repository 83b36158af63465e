"""The recorded model: an earlier run's log as a model."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from callboard.actors.models.model import ModelTurn, ModelTurnFailed
from callboard.actors.models.recorded import RecordedModel
from callboard.bus.effects import Failure, Purpose, ToolUse, Usage
from callboard.bus.events import (
    EffectCancelled,
    Event,
    ModelCall,
    ModelResult,
    NodeEnter,
    Payload,
    decode_event,
    encode_event,
    encode_payload,
)

RESULT = ModelResult(
    text="found 3",
    data={"found": 3},
    tool_calls=[ToolUse("call_1", "search", {"q": "x"})],
    usage=Usage(10, 2, 3, 4),
    stop_reason="tool_use",
    response_id="msg_1",
    response_model="claude-served",
    provider="anthropic",
    first_chunk_ms=12.5,
    tries=2,
)


def call(purpose: Purpose = "turn", evaluator: str | None = None) -> ModelCall:
    return ModelCall(purpose=purpose, model="m", digest="d", evaluator=evaluator)


def log(*entries: tuple[str, Payload]) -> list[Event]:
    """Events of a log, decoded from their bytes."""
    made = [
        Event(
            type=payload.type,
            run="r",
            n=n,
            epoch=1,
            v=1,
            time=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            path=key.partition("#")[0],
            key=key,
            payload=Raw(encode_payload(payload)),
        )
        for n, (key, payload) in enumerate(entries, 1)
    ]
    return [decode_event(encode_event(event)) for event in made]


def a_turn(key: str, ordinal: int = 0, **fields: Any) -> ModelTurn:
    return ModelTurn(model="m", path=key.partition("#")[0], key=key, ordinal=ordinal, idempotency_key="i", **fields)


async def test_a_turn_with_the_same_key_gets_the_complete_recorded_reply() -> None:
    pieces: list[str] = []
    model = RecordedModel(log(("a#1.1!turn.0", call()), ("a", NodeEnter()), ("a#1.1!turn.0", RESULT)))
    reply = await model.turn(a_turn("a#1.1!turn.0", ordinal=5), pieces.append)
    for name in ModelResult.__struct_fields__:
        if name != "error":
            assert getattr(reply, name) == getattr(RESULT, name), name
    assert pieces == ["found 3"]


async def test_another_key_is_found_by_place_and_ordinal() -> None:
    events = log(
        ("a#1.1!turn.0", call()),
        ("a#1.1!judge.e.0", call("judge", "e")),
        ("a#1.1!turn.0", ModelResult(text="first")),
        ("a#1.1!turn.0", call()),  # announced again after a crash: still the same call
        ("a#2.1!turn.0", call()),
        ("a#2.1!turn.0", ModelResult(text="second")),
        ("a#1.1!judge.e.0", ModelResult(text="verdict")),
    )
    model = RecordedModel(events)
    assert (await model.turn(a_turn("a#7.1!turn.9", ordinal=1), lambda _: None)).text == "second"
    assert (await model.turn(a_turn("a#7.1!turn.9"), lambda _: None)).text == "first"
    judge = a_turn("a#7.1!judge.e.9", purpose="judge", evaluator="e")
    assert (await model.turn(judge, lambda _: None)).text == "verdict"


async def test_a_recorded_failure_fails_again() -> None:
    error = Failure("model.overloaded", "busy", retryable=True, details={"tries": 6})
    model = RecordedModel(log(("a#1.1!turn.0", call()), ("a#1.1!turn.0", ModelResult(text="half", error=error))))
    said: list[str] = []
    with pytest.raises(ModelTurnFailed) as caught:
        await model.turn(a_turn("a#1.1!turn.0"), said.append)
    assert (caught.value.failure, said) == (error, ["half"])


@pytest.mark.parametrize(
    "events",
    [
        [],
        log(("a#1.1!turn.0", call())),
        log(("a#1.1!turn.0", call()), ("a#1.1!turn.0", EffectCancelled("model.call", Failure("x")))),
    ],
)
async def test_a_turn_without_an_outcome_is_unrecorded(events: list[Event]) -> None:
    with pytest.raises(ModelTurnFailed) as caught:
        await RecordedModel(events).turn(a_turn("a#1.1!turn.0"), lambda _: None)
    failure = caught.value.failure
    assert (failure.code, failure.retryable) == ("model.unrecorded", False)
    assert "a#1.1!turn.0" in failure.message
    assert failure.details == {"path": "a", "purpose": "turn", "ordinal": 0, "evaluator": None}


def test_values_stored_outside_their_event_must_be_restored() -> None:
    [event] = log(("a#1.1!turn.0", RESULT))
    with pytest.raises(ValueError, match="event 1"):
        RecordedModel([msgspec.structs.replace(event, blobs=["ab"])])
