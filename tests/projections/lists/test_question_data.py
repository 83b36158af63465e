"""The data of a question is shown to the person who answers: at the terminal, in lists, by a link, in notices."""

import datetime as dt
import threading
from typing import Any

import msgspec
import pytest

from callboard.bus.events import Event, HumanAsked, RunParked
from callboard.features.notify.rule_evaluation import awaited_text
from callboard.projections.lists.question_data import DATA_CHARS_MAX, data_lines
from callboard.projections.lists.questions import Questions
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.surfaces.cli.asking import Terminal, TerminalOption, TerminalQuestion, ask, to_question
from callboard.surfaces.cli.event_output import Guiding, Lines
from callboard.surfaces.cli.inbox import Item, item_text
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import open_line
from callboard.surfaces.http.answer_form import question_page
from callboard.surfaces.mcp.caller import to_elicitation

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ASKED = HumanAsked("Pay?", "confirm", request_data={"to": "Mallory <m@evil.example>", "amount": 90_000, "note": ""})
ABOUT = "to: Mallory <m@evil.example>; amount: 90000"


def event(payload: Any, n: int = 1) -> Event:
    raw = msgspec.Raw(msgspec.json.encode(payload))
    key = "a#1.1!ask" if isinstance(payload, HumanAsked) else ""
    return Event(type=payload.type, run="r1", n=n, epoch=1, v=1, time=AT, path="a", key=key, payload=raw)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (None, []),
        ({}, []),
        ("", []),
        ("Pay?", []),
        ({"message": "Pay?", "title": "", "list": []}, []),
        (7, ["7"]),
        (False, ["false"]),
        ("two\nlines", ["two", "lines"]),
        ({"a": 1, "b": "x"}, ["a: 1; b: x"]),
        ({"a": "one\ntwo", "b": "x"}, ["a:", "  one", "  two", "b: x"]),
        ({"a": {"b": "y" * 99}}, ["a:", "  {", f'    "b": "{"y" * 99}"', "  }"]),
    ],
)
def test_data_as_lines(data: Any, lines: list[str]) -> None:
    assert data_lines(data, "Pay?") == lines


def test_omitted_data_is_counted() -> None:
    *_, last = data_lines("x" * (DATA_CHARS_MAX + 5))
    assert last == "… (5 more characters are not shown)"


def test_the_terminal_shows_it_before_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Terminal, "say", lambda _self, text, newline=True: said.append(text))
    monkeypatch.setattr(Terminal, "line", lambda _self, _stop: "no")
    assert ask(Terminal(), to_question(ASKED), threading.Event()) == "no"
    assert said[1] == f"  {ABOUT}"
    assert to_question(HumanAsked("?")) == TerminalQuestion("?")
    assert to_question(ASKED).choices == [TerminalOption("Yes", "yes"), TerminalOption("No", "no")]


def test_lists_show_the_data() -> None:
    events = [event(ASKED), event(RunParked(awaits=["a#1.1!ask"], status="waiting:human"), 2)]
    [question] = fold(Questions(), events)
    assert ABOUT in item_text(Item(question, "pay", "flow"), Settings())
    [effect] = fold(Results(), events).open
    assert ABOUT in open_line(effect, "r1", Settings(), ASKED)


def test_watch_shows_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    Guiding(Lines(), "r1", Settings()).event(1, event(ASKED))
    output = capsys.readouterr().err
    assert output.index(ABOUT) < output.index("callboard answer r1")


def test_the_page_of_a_link_shows_the_data() -> None:
    shown = bytes(question_page(ASKED, {}).body).decode()
    assert "to: Mallory &lt;m@evil.example&gt;; amount: 90000" in shown
    assert "<details" not in shown
    assert "checked" not in shown


def test_notices_and_mcp_clients_receive_the_data() -> None:
    output = awaited_text(ASKED)
    assert output is not None
    first, *rest = output.splitlines()
    assert (first, rest) == ("for an answer: Pay?", [ABOUT])
    [question] = fold(Questions(), [event(ASKED)])
    assert ABOUT in to_elicitation(question).params.message
