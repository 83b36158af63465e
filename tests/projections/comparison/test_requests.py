"""Requests of effects: which of two runs are equal, and which recorded effects can answer one."""

import pytest

from callboard.bus import events as ev
from callboard.bus.conversation import TurnRequest
from callboard.bus.effects import Failure, Message, Text, ToolSpec
from callboard.projections.comparison.requests import call_digest, name_of_call, recorded_effects, turn_digest
from tests.projections.comparison.test_behaviour import call, log

TURN = TurnRequest([Message("user", [Text("Hello")])], "Be brief.", [], None)
MODEL = ev.ModelCall("turn", "anthropic:one", "digest", base="a#1.1!turn.1")


def test_a_turn_is_the_same_wherever_it_is_made() -> None:
    elsewhere = ev.ModelCall("turn", "anthropic:one", "other digest", base=None)
    assert turn_digest(MODEL, TURN) == turn_digest(elsewhere, TURN)


@pytest.mark.parametrize(
    ("model", "turn"),
    [
        (ev.ModelCall("turn", "anthropic:two", "digest"), TURN),
        (ev.ModelCall("turn", "anthropic:one", "digest", temperature=1.0), TURN),
        (MODEL, TurnRequest([Message("user", [Text("Hello!")])], "Be brief.", [], None)),
        (MODEL, TurnRequest(TURN.messages, "Be long.", [], None)),
        (MODEL, TurnRequest(TURN.messages, "Be brief.", [ToolSpec("search")], None)),
        (MODEL, TurnRequest(TURN.messages, "Be brief.", [], {"type": "object"})),
    ],
)
def test_a_turn_with_another_model_parameter_or_message_differs(model: ev.ModelCall, turn: TurnRequest) -> None:
    assert turn_digest(model, turn) != turn_digest(MODEL, TURN)


@pytest.mark.parametrize(
    "other",
    [
        ev.ToolCall("a", "pay", {"amount": 2}),
        ev.ToolCall("a", "refund", {"amount": 1}),
        ev.ToolCall("a", "pay", {"amount": 1}, server="shop"),
        ev.ToolCall("a", "pay", {"amount": 1}, responses={"ok": True}),
        ev.ToolCall("a", "pay", {"amount": True}),
        ev.EffectCall("step", None, {"amount": 1}),
    ],
)
def test_a_call_with_another_tool_or_argument_differs(other: ev.ToolCall | ev.EffectCall) -> None:
    paying = ev.ToolCall("a", "pay", {"amount": 1}, id="one")
    assert call_digest(paying) == call_digest(ev.ToolCall("b", "pay", {"amount": 1}, id="two"))
    assert call_digest(paying) != call_digest(other)


def test_only_an_effect_that_has_ended_can_answer() -> None:
    key = "a#1.1!3"
    cancelled = (ev.ToolCall("a", "pay", 3), key), (ev.EffectCancelled("tool.call", Failure("cancelled")), key)
    open_one = (ev.ToolCall("a", "pay", 4), "a#1.1!4")
    found = list(recorded_effects(log(*call("pay", 1, "a#1.1!1"), *cancelled, open_one)))
    assert [(one.key, one.n) for one in found] == [("a#1.1!1", 4)]


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (ev.ToolCall("a", "shop_pay", own_name="pay", server="shop"), "pay"),
        (ev.EffectCall("step", None, {"step": "price", "arguments": []}), "price"),
        (ev.EffectCall("provider", None, {"provider": "urn:mail", "with": {}}), "urn:mail"),
        (ev.EffectCall("memory", None, {}), "memory"),
    ],
)
def test_a_policy_finds_a_call_by_the_name_of_what_it_calls(payload: ev.Payload, name: str) -> None:
    assert name_of_call(payload) == name
