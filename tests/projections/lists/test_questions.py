"""The open questions of many runs, and the schemas of their answers."""

import datetime as dt

import msgspec
import pytest

from callboard.bus.answer_schemas import answer_schema
from callboard.bus.events import (
    Event,
    HumanAnswered,
    HumanAsked,
    HumanClosed,
    RunEnd,
    RunParked,
    RunPaused,
    RunQuarantined,
    RunResumed,
    SignalAwaited,
    SignalReceived,
    ToolCall,
)
from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import ANSWER_BYTES_MAX, TYPES, Option, Question, Questions
from callboard.projections.projection import fold
from callboard.projections.run.waits import OpenWaits
from tests.support.event_logs import Log, at, everything


def asking(run: str, *asked: HumanAsked) -> Log:
    log = Log(run).started()
    for place, one in enumerate(asked):
        log.add(one, f"a{place}", 1, 1, "ask")
    return log


def keys(events: list[Event]) -> list[tuple[str, str]]:
    return [(one.run, one.key) for one in fold(Questions(), events)]


def test_a_question_has_all_data_that_an_answer_needs() -> None:
    options = [{"value": 7, "label": "Seven"}, {"value": 8}]
    log = asking("r", HumanAsked("Which?", "select", options, "slack", {"of": 1}, at(60), "fail", {"enum": [7, 8]}))
    asked = log.events[-1]
    assert fold(Questions(), log.events) == [
        Question(
            run="r",
            definition="cake",
            key="a0#1.1!ask",
            path="a0",
            n=asked.n,
            who="slack",
            question="Which?",
            type="select",
            options=[Option(7, "Seven"), Option(8, "8")],
            schema={"enum": [7, 8]},
            data={"of": 1},
            since=asked.time,
            until=at(60),
            timeout_action="fail",
        )
    ]


def test_a_question_is_open_until_it_is_closed_or_its_run_ends() -> None:
    log = asking("r", HumanAsked("?"), HumanAsked("??"))
    other = asking("s", HumanAsked("???"))
    log.add(HumanAnswered("a0#1.1!ask", 1, "x"), "a0", 1, 1)
    assert keys(log.events) == [("r", "a0#1.1!ask"), ("r", "a1#1.1!ask")]
    log.add(HumanClosed("answered", 1), "a0", 1, 1, "ask")
    assert keys([*log.events, *other.events]) == [("s", "a0#1.1!ask"), ("r", "a1#1.1!ask")]
    for end in (RunEnd("cancelled"), RunQuarantined("log.unreadable", 7, "cb.run", "?")):
        assert keys([*log.events, *other.events, _last(log, end)]) == [("s", "a0#1.1!ask")]


def _last(log: Log, payload: RunEnd | RunQuarantined) -> Event:
    event = log.add(payload)
    log.events.remove(event)
    return event


def test_the_questions_need_a_few_types_only() -> None:
    log = everything()
    assert fold(Questions(), [one for one in log.events if one.type in TYPES]) == fold(Questions(), log.events)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["yes", "no"], {"enum": ["yes", "no"]}),
        ([1, {"value": 2, "label": "Two"}], {"oneOf": [{"const": 1, "title": "1"}, {"const": 2, "title": "Two"}]}),
    ],
)
def test_a_question_without_a_schema_has_that_of_its_options(options: list[JSON], expected: JSON) -> None:
    assert answer_schema(options) == expected
    (question,) = fold(Questions(), asking("r", HumanAsked("?", "select", options)).events)
    assert question.schema == expected


def test_the_oldest_comes_first() -> None:
    young, old = asking("r", HumanAsked("?")), asking("s", HumanAsked("?"))
    later = dt.timedelta(hours=1)
    events = [msgspec.structs.replace(one, time=one.time + later) for one in young.events]
    assert [run for run, _ in keys([*events, *old.events])] == ["s", "r"]


def test_calls_of_tools_signals_and_pauses_are_open_until_they_end() -> None:
    log = asking("r", HumanAsked("Which?", "select", ["a"]))
    log.add(ToolCall("b", "look", {"at": 7}, via="caller"), "b", 1, 1, "tool")
    log.add(ToolCall("b", "own", {}), "b", 1, 1, "own")
    log.add(SignalAwaited("price", {"of": 1}, at(90)), "c", 1, 1, "wait")
    log.add(RunPaused("breakpoint", "b", timeout_at=at(30)), "", 1, 1, "pause")
    log.add(RunParked([], at(60)))
    waits = [(one.kind, one.name, one.data, one.until) for one in fold(OpenWaits(), log.events)]
    assert waits == [
        ("tool", "look", {"at": 7}, at(60)),
        ("signal", "price", {"of": 1}, at(90)),
        ("pause", "b", None, at(30)),
    ]
    log.add(RunResumed(), "", 1, 1, "pause")
    log.add(SignalReceived("price", 3), "c", 1, 1, "wait")
    assert [one.kind for one in fold(OpenWaits(), log.events)] == ["tool"]


def test_closed_questions_have_their_answers() -> None:
    log = asking("r", HumanAsked("Ship it?"), HumanAsked("And this?"), HumanAsked("Why?"))
    log.add(HumanAnswered("a0#1.1!ask", 1, "no idea"))
    log.add(HumanAnswered("a0#1.1!ask", 2, "yes", {"comment": "It is paid."}, by="ada", channel="page"))
    log.add(HumanClosed("answered", 2), "a0", 1, 1, "ask")
    log.add(HumanClosed("timeout"), "a1", 1, 1, "ask")
    log.add(HumanAnswered("a2#1.1!ask", 1, "x" * ANSWER_BYTES_MAX))
    log.add(HumanClosed("answered", 1), "a2", 1, 1, "ask")
    late = asking("late", HumanAsked("Late?"))
    late.add(RunEnd("cancelled"))
    questions = Questions(closed_max=3)
    for event in [*log.events, *late.events]:
        questions.apply(event)
    assert questions.view() == []
    found = questions.list_closed()
    assert [one.outcome for one in found] == ["ended", "answered", "timeout"], "only the last three are kept"
    assert (found[1].answer, found[1].cut) == (None, True)
    questions = Questions(closed_max=10)
    for event in log.events:
        questions.apply(event)
    shipped = questions.list_closed()[-1]
    assert (shipped.question, shipped.answer, shipped.data) == ("Ship it?", "yes", {"comment": "It is paid."})
    assert (shipped.by, shipped.channel, shipped.n) == ("ada", "page", log.events[4].n)
    assert shipped.closed_at > shipped.since
