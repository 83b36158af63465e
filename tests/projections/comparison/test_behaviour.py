"""Behaviour: which differences between two runs it reports, which it leaves out, and how efforts are counted."""

import datetime as dt
from typing import Any

import pytest
from msgspec import Raw

from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Event, Payload, encode_payload
from callboard.projections.comparison.behaviour import behaviour_of, compare_behaviour

BEGAN = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def log(*payloads: Payload | tuple[Payload, str], end: Any = "done", status: Any = "completed") -> list[Event]:
    """A run with these events, a second apart; an effect is given with its key."""
    first = ev.RunAccepted(ev.DefinitionRef("x", "h", "s"), {})
    error = Failure("broken") if status == "failed" else None
    every = [first, ev.RunStart("w"), *payloads, ev.RunEnd(status, end, None, error)]
    found: list[Event] = []
    for n, one in enumerate(every, 1):
        payload, key = one if isinstance(one, tuple) else (one, "")
        time = BEGAN + dt.timedelta(seconds=n)
        about: dict[str, Any] = {
            "run": "r",
            "n": n,
            "epoch": 1,
            "v": 1,
            "time": time,
            "path": "a" if key else "",
            "key": key,
        }
        found.append(Event(type=payload.type, payload=Raw(encode_payload(payload)), **about))
    return found


def call(tool: str, given: Any, key: str) -> tuple[tuple[Payload, str], tuple[Payload, str]]:
    """A call of a tool and its result."""
    return (ev.ToolCall("a", tool, given), key), (ev.ToolResult("a", tool, {"ok": True}), key)


def changes(left: list[Event], right: list[Event]) -> list[tuple[str, str]]:
    found = compare_behaviour(behaviour_of(left), behaviour_of(right))
    return [(one.kind, one.places[0].pointer if one.places else "") for one in found]


ONE, TWO = call("lookup", {"id": 7}, "a#1.1!1"), call("pay", {"amount": 49.99}, "a#1.1!2")


@pytest.mark.parametrize(
    ("right", "found"),
    [
        (log(*ONE, *TWO), []),
        (log(*ONE, *call("pay", {"amount": 499.99}, "a#1.1!2")), [("arguments", "/amount")]),
        (log(*ONE), [("calls", "")]),
        (log(*ONE, *TWO, *call("pay", {"amount": 49.99}, "a#1.1!3")), [("calls", "")]),
        (log(*TWO, *ONE), [("order", "")]),
        (log(*ONE, *TWO, end="other"), [("output", "")]),
        (log(*ONE, *TWO, status="failed"), [("status", ""), ("error", "")]),
        (log(*ONE, *TWO, ev.Route("a", "b")), [("routes", "")]),
        (log(*ONE, *TWO, (ev.HumanAsked("Really?"), "a#1.1!ask")), [("questions", "")]),
    ],
)
def test_a_difference_has_its_kind_and_place(right: list[Event], found: list[tuple[str, str]]) -> None:
    assert changes(log(*ONE, *TWO), right) == found


def test_other_words_of_a_sentence_are_wording_and_other_values_are_output() -> None:
    left = log(end={"text": "It was paid.", "amount": 1})
    assert changes(left, log(end={"text": "We have paid.", "amount": 1})) == [("wording", "/text")]
    assert changes(left, log(end={"text": "We have paid.", "amount": 2})) == [("output", "/text")]


def test_what_a_call_returned_is_no_difference() -> None:
    other = (TWO[0], (ev.ToolResult("a", "pay", None, Failure("tool.failed")), "a#1.1!2"))
    assert changes(log(*ONE, *TWO), log(*ONE, *other)) == []


def test_lists_of_tools_and_code_are_no_calls() -> None:
    listing = (ev.EffectCall("toolbox", None, []), "a#1.1!box"), (ev.EffectCall("code", None, "1"), "a#1.1!code")
    assert changes(log(), log(*listing)) == []


def test_an_answer_from_the_record_counts_with_what_it_used_then() -> None:
    key, model = "a#1.1!turn.1", ev.ModelCall("turn", "m", "d")
    origin = log((model, key), (ev.ModelResult(usage=Usage(10, 5)), key))
    [_, _, _, answered, *_] = origin
    mark = ev.NodeProgress("a", "as recorded", data={"answered": "recorded", "run": "r", "n": answered.n})
    again = log((model, key), (mark, key), (ev.ModelResult(), key))
    found = behaviour_of(again, origin)
    assert (found.answered, found.effort.tokens, found.effort.turns) == ({"recorded": 1}, 15, 1)
    assert behaviour_of(again).effort.tokens == 0
