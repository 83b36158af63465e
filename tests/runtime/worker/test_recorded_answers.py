"""Recorded answers: which requests get a recorded outcome, and which policy holds for the others."""

import datetime as dt
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from callboard.actors.carrier import Job, Reporter
from callboard.bus import events as ev
from callboard.bus.commands import Recording
from callboard.bus.effects import Usage
from callboard.bus.events import Event
from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef
from callboard.runtime.worker.recorded_answers import REFUSED, UNREADABLE, RecordedAnswers
from tests.projections.comparison.test_behaviour import call, log

REF = RunRef("default", "record")


class Log:
    """A log that has one run."""

    def __init__(self, events: list[Event]) -> None:
        self.found = [Recorded(event.n, REF, "", b"", event) for event in events]
        self.reads = 0

    async def read(self, _ref: RunRef, _after: int = 0, _limit: int | None = None) -> list[Recorded]:
        self.reads += 1
        return self.found


def job(intent: Any, key: str = "a#1.1!9") -> Job:
    event = Event(
        type=intent.type,
        run="case",
        n=9,
        epoch=1,
        v=1,
        time=dt.datetime.now(dt.UTC),
        path="a",
        key=key,
        payload=Raw(ev.encode_payload(intent)),
    )
    return Job(RunRef("default", "case"), event, intent, "key")


def answers(events: list[Event], tools: dict[str, Any] | None = None, **more: Any) -> RecordedAnswers:
    given: Any = Log(events)
    script: dict[str, Any] = {"tools": {"pay": [{"output": "scripted"}]}}
    return RecordedAnswers(given, REF, Recording("record", tools or {}), more.get("key", ""), script)


async def ask(recorded: RecordedAnswers, intent: Any, key: str = "a#1.1!9") -> tuple[Any, str]:
    """Return the outcome of an effect, and how it was answered."""
    said: list[Any] = []
    outcome = await recorded.answer(job(intent, key), Reporter(said.append))
    return outcome, said[-1].data["answered"] if said else ""


RECORD = log(*call("pay", {"amount": 1}, "a#1.1!1"), *call("lookup", {"id": 7}, "a#1.1!2"))
PAY = ev.ToolCall("a", "pay", {"amount": 1})
PAY_MORE = ev.ToolCall("a", "pay", {"amount": 2})


async def test_an_equal_call_gets_the_recorded_outcome_wherever_it_is_made() -> None:
    outcome, how = await ask(answers(RECORD), PAY, "elsewhere#1.1!1")
    assert (outcome.output, how) == ({"ok": True}, "recorded")


async def test_of_several_equal_calls_the_one_with_the_same_key_answers_else_the_first() -> None:
    first = (ev.ToolCall("a", "poll"), "a#1.1!1"), (ev.ToolResult("a", "poll", 1), "a#1.1!1")
    second = (ev.ToolCall("a", "poll"), "a#1.1!2"), (ev.ToolResult("a", "poll", 2), "a#1.1!2")
    recorded = answers(log(*first, *second))
    found = [(await ask(recorded, ev.ToolCall("a", "poll"), key))[0].output for key in ("a#1.1!2", "a#1.1!3")]
    assert found == [2, 1]


@pytest.mark.parametrize(
    ("tools", "intent", "how"),
    [
        ({}, PAY_MORE, "refuse"),
        ({"pay": "live"}, PAY_MORE, "live"),
        ({"*": "live"}, PAY_MORE, "live"),
        ({"*": "live", "pay": "refuse"}, PAY_MORE, "refuse"),
        ({"lookup": "live"}, PAY_MORE, "refuse"),
        ({"pay": "script"}, PAY_MORE, "script"),
        ({}, ev.EffectCall("step", None, {"step": "pay", "arguments": {}}), "refuse"),
        ({"pay": "live"}, ev.EffectCall("step", None, {"step": "pay", "arguments": {}}), "live"),
        ({"step": "live"}, ev.EffectCall("step", None, {"step": "pay", "arguments": {}}), "live"),
        ({"step": "live", "pay": "refuse"}, ev.EffectCall("step", None, {"step": "pay", "arguments": {}}), "refuse"),
        ({}, ev.EffectCall("memory", None, {}), "refuse"),
        ({}, ev.EffectCall("toolbox", None, []), "live"),
        ({"*": "refuse"}, ev.EffectCall("code", None, "1"), "live"),
        ({"code": "refuse"}, ev.EffectCall("code", None, "1"), "refuse"),
    ],
)
async def test_a_call_that_the_record_does_not_have_follows_its_policy(
    tools: dict[str, str], intent: Any, how: str
) -> None:
    outcome, answered = await ask(answers(RECORD, tools), intent)
    assert answered == how
    match how:
        case "live":
            assert outcome is None
        case "script":
            assert outcome.output == "scripted"
        case _:
            assert (outcome.error.code, outcome.error.retryable) == (REFUSED, False)


async def test_a_script_has_answers_of_tools_only() -> None:
    outcome, _ = await ask(answers(RECORD, {"*": "script"}), ev.EffectCall("memory", None, {}))
    assert outcome.error.code == REFUSED


async def test_a_recorded_turn_is_answered_without_its_usage() -> None:
    effect = (ev.EffectCall("memory", None, 1), "a#1.1!1"), (ev.EffectResult(1, model="m", usage=Usage(5)), "a#1.1!1")
    outcome, _ = await ask(answers(log(*effect)), ev.EffectCall("memory", None, 1))
    assert (outcome.value, outcome.usage) == (1, Usage())


async def test_the_record_is_read_once() -> None:
    recorded = answers(RECORD)
    for intent in (PAY, PAY_MORE, PAY):
        await ask(recorded, intent)
    given: Any = recorded
    assert given._log.reads == 1


@pytest.mark.parametrize("events", [[], RECORD[1:]])
async def test_a_run_that_cannot_be_read_answers_nothing(events: list[Event]) -> None:
    outcome, _ = await ask(answers(events, {"*": "live"}), PAY)
    assert outcome.error.code == UNREADABLE


async def test_an_encrypted_record_answers_only_a_run_with_its_key() -> None:
    first = ev.RunAccepted(ev.DefinitionRef("x", "h", "s"), {}, encryption_key="customer-7")
    begun, *others = RECORD
    secret = [replace(begun, payload=Raw(ev.encode_payload(first))), *others]
    assert (await ask(answers(secret), PAY))[0].error.code == UNREADABLE
    assert (await ask(answers(secret, key="customer-7"), PAY))[0].output == {"ok": True}
