"""Texts of the command line: events as lines, traces as trees, problems, and the live view."""

import datetime as dt
import io
import json
import os
import time
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from msgspec import Raw

from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Event, Payload, Problem, encode_payload
from callboard.projections.projection import fold
from callboard.projections.run.causes import Causes
from callboard.projections.run.effects import kind_and_name
from callboard.projections.run.run_result import OpenEffect
from callboard.projections.trace.trace import TraceFold
from callboard.service.operations.event_filter import matches
from callboard.service.operations.narration import TEXT_CHARS_MAX, narrate, short
from callboard.service.operations.results import path_of, result_of, summary_object
from callboard.surfaces.cli.event_output import Lines, Streaming
from callboard.surfaces.cli.live_tree import LiveTree, describe_open
from callboard.surfaces.cli.output import LINE_CHARS_MAX, WORDS_CHARS_MAX, problem_text
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.tree_text import tree_text
from callboard.surfaces.cli.views import cause_lines, node_line, open_line, summary_text
from tests.support.event_logs import known_payload
from tests.support.workdir import plain

BEGIN = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
FAILURE = Failure("tool.failed", "it broke")


def events(*payloads: tuple[Payload, str, str]) -> list[Event]:
    """Number payloads (each with path and key) as the events of a run, half a second apart."""
    return [
        Event(
            type=payload.type,
            run="r1",
            n=n,
            epoch=1,
            v=1,
            time=BEGIN + dt.timedelta(seconds=n / 2),
            path=path,
            definition="triage",
            iteration=1,
            attempt=1,
            key=key,
            payload=Raw(encode_payload(payload)),
        )
        for n, (payload, path, key) in enumerate(payloads, 1)
    ]


RUN = events(
    (ev.RunAccepted(ev.DefinitionRef("workflow", "0" * 64, "…", "triage"), {}), "", ""),
    (ev.RunClaimed("w1", 1), "", ""),
    (ev.RunStart("triage"), "", ""),
    (ev.NodeEnter(node="gather", name="Gather"), "gather", ""),
    (ev.ModelCall("turn", "scripted", "d"), "gather", "gather#1.1!turn.1"),
    (ev.ModelResult(text="well", usage=Usage(12, 3)), "gather", "gather#1.1!turn.1"),
    (ev.NodeWarning("gather", "ODD", "this is odd"), "gather", ""),
    (ev.NodeExit("ok", {"status": "success", "data": {"found": 3}}), "gather", ""),
    (ev.Route("gather", "note", "only path"), "gather", ""),
    (ev.NodeEnter(node="note", name="Note"), "note", ""),
    (ev.ToolCall("note", "search", {"q": 1}), "note", "note#1.1!tool.1.0"),
    (ev.ToolResult("note", "search", error=FAILURE), "note", "note#1.1!tool.1.0"),
    (ev.NodeExit("failed", error=FAILURE), "note", ""),
    (ev.RunFailed(FAILURE), "", ""),
    (ev.RunEnd("failed", error=FAILURE), "", ""),
)

SAMPLES: list[Payload] = [
    *(known_payload(event) for event in RUN),
    ev.RunRejected([]),
    ev.RunParked(["a#1.1!ask"], BEGIN),
    ev.SourcesResolved({}),
    ev.RunPaused("breakpoint", "a"),
    ev.RunQuarantined("log.unreadable", 3, "cb.run.t.r.d.run.start", "no JSON"),
    ev.RunReleased("w1"),
    ev.RunDiverged("replay.diverged", "event 7 records a, and this replay asks for b", 7, "w1", "0.1.0"),
    ev.RunAdopted("w1", "ab" * 32, "cd" * 32),
    ev.CodeMarked("new-tax"),
    ev.RunResumed(by="me"),
    ev.CancelRequested("enough", "me"),
    ev.CommandRefused("resume", "resume.not_paused", "the run is not paused"),
    ev.NodeRetry("a", 1, "not good"),
    ev.NodeProgress("a", "half way"),
    ev.EffectCall("http"),
    ev.EffectResult({"status": 200}),
    ev.TimerSet(BEGIN, "sleep"),
    ev.TimerFired(BEGIN),
    ev.ClockRead(BEGIN),
    ev.HumanAsked("Really?"),
    ev.HumanAnswered("a#1.1!ask", 1, "yes"),
    ev.HumanClosed("answered", 1),
    ev.SignalAwaited("go"),
    ev.SignalReceived("go", {"x": 1}),
    ev.ChildStart({"name": "other"}, "r2"),
    ev.ChildEnd("completed"),
    ev.EffectCancelled("tool.call", FAILURE),
    ev.ChildUsage("r2", turns=1),
]


def test_the_samples_have_every_event_type() -> None:
    assert {sample.type for sample in SAMPLES} == set(ev.TYPES)


@pytest.mark.parametrize("payload", SAMPLES, ids=lambda payload: payload.type)
def test_every_event_is_one_line(payload: Payload) -> None:
    (event,) = events((payload, "a", "a#1.1!x"))
    line = narrate(event, payload)
    assert line.strip()
    assert "\n" not in line


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = (ev.TimerSet(BEGIN, "sleep"), ev.RunParked(["a#1.1!sleep"], BEGIN))
    output: list[list[str]] = []
    for zone in ("UTC", "Asia/Tokyo"):
        with monkeypatch.context() as there:
            there.setenv("TZ", zone)
            time.tzset()
            output.append(
                [narrate(event, known_payload(event)) for event in events(*((p, "a", "k") for p in payloads))]
            )
    time.tzset()
    nine_hours_on = f"{BEGIN + dt.timedelta(hours=9):%Y-%m-%d %H:%M:%S}"
    assert all(f"{BEGIN:%Y-%m-%d %H:%M:%S}" in line for line in output[0])
    assert all(nine_hours_on in line for line in output[1])


def test_values_are_cut_to_one_line() -> None:
    assert short("a\n b\t c") == "a b c"
    assert len(short("x" * 1000)) == TEXT_CHARS_MAX
    assert short({"a": [1, None]}) == '{"a":[1,null]}'


def test_the_tree_of_an_ended_run() -> None:
    assert tree_text(fold(TraceFold(), RUN)).splitlines() == [
        "✗ r1  triage  7.00 s  tool.failed: it broke",
        "├─ ✓ gather  2.00 s",
        "│  ├─ ✓ model scripted · turn  500 ms  12/3 tokens",
        "│  ├─ ! ODD  this is odd",
        "│  └─   → note  only path",
        "└─ ✗ note  1.50 s  tool.failed: it broke",
        "   └─ ✗ tool search  500 ms  tool.failed: it broke",
    ]


def test_the_tree_of_a_running_run() -> None:
    assert tree_text(fold(TraceFold(), RUN[:5])).splitlines() == [
        "● r1  triage",
        "└─ ● gather",
        "   └─ ● model scripted · turn",
    ]


def test_the_summary_of_a_run() -> None:
    result = result_of(RUN)
    text = plain(summary_text(result, RUN, "whole: look there"))
    assert "look there" not in text
    assert text.startswith("■ failed  in 6.00 s  12 tokens in, 3 out\n  tool.failed: it broke  (at note)\n")
    assert "Path: gather → note" in text
    assert '  ok  gather  {"found":3}' in text
    output = summary_object(result, RUN)
    assert (output["run_id"], output["status"], output["path"]) == ("r1", "failed", ["gather", "note"])
    assert output["error"]["code"] == "tool.failed"


def test_a_repeated_node_is_numbered_in_the_path() -> None:
    again = msgspec.structs.replace(RUN[3], n=99, iteration=2)
    inner = msgspec.structs.replace(RUN[3], n=100, path="gather/inner")
    assert path_of([*RUN, again, inner]) == ["gather", "note", "gather#2"]


def test_lines_of_several_runs_name_their_run(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(named=True)
    for event in RUN[:4]:
        lines.event(event.n, event)
    lines.event(5, msgspec.structs.replace(RUN[0], type="of.tomorrow"))
    result = capsys.readouterr().out.splitlines()
    assert len(result) == 4
    assert result[3] == "r1      1.500 s  ▶ gather: Gather"


def test_the_stream_has_the_events_of_the_log_with_their_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    Streaming().event(77, RUN[7])
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert output.pop("sequence") == 77
    assert output == msgspec.json.decode(ev.encode_event(RUN[7]))


@pytest.mark.parametrize(
    ("pattern", "event_type", "expected"),
    [
        (">", "run.end", True),
        ("run.>", "run.end", True),
        ("run.*", "run.end", True),
        ("*.end", "run.end", True),
        ("run.end", "run.end", True),
        ("run.*", "route", False),
        ("route", "route", True),
        ("route.>", "route", False),
        ("run", "run.end", False),
        ("run.end.*", "run.end", False),
    ],
)
def test_event_types_match_as_nats_filters(pattern: str, event_type: str, expected: bool) -> None:
    assert matches(pattern, event_type) is expected


# -- the live view ----------------------------------------------------------------------------------------------------


def test_the_live_view_ends_with_the_whole_tree() -> None:
    screen = io.StringIO()
    with patch.dict(os.environ, NO_COLOR="1"):
        tree = LiveTree(screen, os.terminal_size((90, 40)))
    for event in RUN:
        tree.event(event.n, event)
    tree.notice("[bold] is no markup here")
    tree.close()
    result = screen.getvalue()
    assert "[bold] is no markup here" in result
    last = result[result.rindex("✗ r1") :]
    assert "├─ ✓ gather  2.00 s" in last
    assert "└─ ✗ note" in last


def test_a_reason_without_a_message_has_no_colon() -> None:
    silent = Failure("cancelled", "", type="cancellation")
    run = events((ev.NodeEnter(node="note"), "note", ""), (ev.NodeExit("cancelled", error=silent), "note", ""))
    assert plain(node_line(result_of(run).nodes["note"])) == "  cancelled  note  cancelled"
    assert tree_text(fold(TraceFold(), run)).splitlines()[-1].endswith("  cancelled")


def test_a_failure_of_an_expression_quotes_it() -> None:
    cause = Failure("System.ExpressionEvaluationError", "no such key", details={"expression": " vars.x\n+ 1 "})
    assert cause_lines(Causes().of(Failure("Order.Lost", "gone", previous=cause))) == [
        "Order.Lost: gone",
        "after System.ExpressionEvaluationError: no such key, in {{ vars.x + 1 }}",
    ]


# -- problems ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", [1, 40, 5_000, 9_990, 10_000])
def test_a_long_line_is_shown_around_the_place(column: int) -> None:
    source = "a" * (column - 1) + "X" + "b" * (10_000 - column)
    _title, shown, caret = problem_text(Problem("PARSE", "odd", line=1, column=column), "f", source).splitlines()
    assert shown[plain(caret).index("^")] == "X"
    assert len(shown) <= LINE_CHARS_MAX + len("     1 | ……")
    assert (shown.endswith("…"), "| …" in shown) == (column < 9_940, column > 60)


def test_a_long_problem_is_cut() -> None:
    long = "x" * 100_000
    output = problem_text(Problem("SCHEMA", long, long, expected=long))
    assert len(output) < 4 * WORDS_CHARS_MAX
    assert output.count("…") == 3


def test_an_open_pause_shows_its_reason() -> None:
    paused = OpenEffect("", ev.RunPaused.type, "", 11, dt.datetime(2026, 11, 20, tzinfo=dt.UTC))
    budget = ev.RunPaused(reason="budget", message="the budget of the run is used up: 330 of 250 tokens")
    assert "(by budget)" in open_line(paused, "r", Settings(), budget)
    assert open_line(paused, "r", Settings(), budget).endswith("\n    " + budget.message)
    assert "(by command)" in open_line(paused, "r", Settings(), ev.RunPaused(reason="command"))


def test_a_step_is_named_with_its_arguments_on_one_line_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"cents": 5, "note": "two\nlines", "card": {"api_token": "sk-do-not-show"}, "more": "x" * 200}
    call = ev.EffectCall("step", request={"step": "charge", "arguments": arguments})
    run = events(
        (ev.RunStart("buy"), "", ""),
        (call, "task[1]/charge", "task[1]/charge#1.1!step"),
        (ev.EffectResult(value=7), "task[1]/charge", "task[1]/charge#1.1!step"),
    )
    lines = Lines()
    for event in run:
        lines.event(event.n, event)
    shown = capsys.readouterr().out.splitlines()
    for text in ("step charge", '"cents":5', '{"api_token":"***"}'):
        assert text in shown[1]
    assert len(shown) == 3
    assert shown[2].endswith("charge = 7")
    output = describe_open(call, "", "step", BEGIN).text
    assert output.startswith('step charge {"cents":5,"note":"two')
    assert "sk-do" not in output
    assert kind_and_name(call) == ("step", "charge")


def test_the_input_of_a_tool_is_shown_without_secrets() -> None:
    [event] = events(
        (ev.ToolCall(node="send", tool="send", input={"password": "hunter22", "to": "ada"}), "send", "send#1.1!tool")
    )
    assert "hunter22" not in narrate(
        event, ev.ToolCall(node="send", tool="send", input={"password": "hunter22", "to": "ada"})
    )
