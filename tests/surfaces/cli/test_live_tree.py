"""The views of a running run: its tree on a terminal, and lines that name their nodes."""

import datetime as dt
import io
import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from callboard.bus import events as ev
from callboard.bus.events import Payload
from callboard.surfaces.cli import exits, live_tree
from callboard.surfaces.cli.event_output import Lines
from callboard.surfaces.cli.live_tree import SPINNER, LiveTree, clock_text
from tests.support.flow_providers import flow_of, ours
from tests.support.forks import callboard
from tests.support.playbook_cases import doc, steps
from tests.support.workdir import Workdir
from tests.surfaces.cli.test_text import BEGIN, events

STARTED = [
    (ev.RunAccepted(ev.DefinitionRef("flow", "0" * 64, "…", "orders"), {}), "", ""),
    (ev.RunStart("orders"), "", ""),
]
PATIENCE_S = 60.0


class Screen:
    """A live tree on a recorded screen, with a clock that the test sets."""

    def __init__(self, *payloads: tuple[Payload, str, str], height: int = 40) -> None:
        self._drawn = io.StringIO()
        self.at = BEGIN
        self.n = 0
        # The test draws; a drawing by the thread in between would show every line twice.
        with patch.object(live_tree, "REFRESHES_PER_S", 1 / PATIENCE_S**2), patch.dict(os.environ, NO_COLOR="1"):
            self.tree = LiveTree(self._drawn, os.terminal_size((110, height)), lambda: self.at)
        self._given: list[tuple[Payload, str, str]] = []
        self.take(*STARTED, *payloads)

    def take(self, *payloads: tuple[Payload, str, str]) -> None:
        self._given += payloads
        for event in events(*self._given)[self.n :]:
            self.tree.event(event.n, event)
        self.n = len(self._given)

    def lines(self, after_s: float = 0.0) -> list[str]:
        """The lines at a time after the last event."""
        self.at = BEGIN + dt.timedelta(seconds=self.n / 2 + after_s)
        before = len(self._drawn.getvalue())
        self.tree.refresh()
        drawn = self._drawn.getvalue()[before:]
        return [line.rstrip() for line in drawn.replace("\x1b[2K", "").replace("\x1b[1A", "").split("\n")]

    def line(self, words: str, after_s: float = 0.0) -> str:
        """The only line with these words, without branches."""
        [found] = [line for line in self.lines(after_s) if words in line]
        return found.lstrip(" │├└─\r")


@contextmanager
def open_screen(*payloads: tuple[Payload, str, str], height: int = 40) -> Generator[Screen]:
    shown = Screen(*payloads, height=height)
    try:
        yield shown
    finally:
        shown.tree.close()


CALL = (ev.ModelCall("turn", "claude", "d"), "gather", "gather#1.1!turn.1")
GATHER = (ev.NodeEnter(node="gather", name="Gather"), "gather", "")


def test_running_nodes_and_effects_have_a_spinner_and_a_clock() -> None:
    with open_screen(GATHER, CALL) as shown:
        first, later = shown.line("model claude", 27.0), shown.line("model claude", 27.2)
        assert first[0] in SPINNER
        assert first[1:] == " model claude · turn  27 s"
        assert later[0] in set(SPINNER) - {first[0]}
        assert shown.line("gather", 200) == "● gather  3 min 20 s"
        assert shown.line("running  4 events", 200) == "running  4 events  3 min 21 s"
        shown.take((ev.ModelResult(text="done"), *CALL[1:]))
        assert shown.line("gather", 2.0)[0] in SPINNER


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0 s"), (0.9, "0 s"), (59.9, "59 s"), (61, "1 min 01 s")])
def test_a_clock_shows_whole_seconds(seconds: float, text: str) -> None:
    assert clock_text(BEGIN, BEGIN + dt.timedelta(seconds=seconds)) == text


def test_tries_of_a_model_are_shown_until_it_answers() -> None:
    retry = "try 2 of 6 failed, again in 4.1 s: model.unreachable refused"
    retrying = ev.NodeProgress("gather", retry, data={"code": "model.unreachable", "tries": 2, "wait_s": 4.1})
    with open_screen(GATHER, CALL, (retrying, *CALL[1:])) as shown:
        assert shown.line("model claude", 3.0)[1:] == f" model claude · turn  3 s  {retry}"
        assert shown.line("● gather") == "● gather  1 s"
        shown.take((ev.ModelResult(text="done"), *CALL[1:]))
        assert not any("try 2" in line for line in shown.lines())
        shown.take((ev.NodeProgress("gather", "half way"), "gather", ""))
        assert shown.line("gather").endswith("half way")


def test_waits_are_shown_with_their_reasons() -> None:
    due = BEGIN + dt.timedelta(seconds=90)
    waits: list[tuple[Payload, str, str]] = [
        (ev.HumanAsked("Sure?", "confirm"), "a", "a#1.1!ask"),
        (ev.SignalAwaited("paid", due=due), "a", "a#1.1!signal"),
        (ev.ChildStart({"name": "other"}, "r2"), "a", "a#1.1!child"),
        (ev.TimerSet(due, "sleep"), "a", "a#1.1!sleep"),
        (ev.ToolCall("a", "look", {"q": 1}, via="caller"), "a", "a#1.1!tool.0.0"),
        (ev.RunPaused("command", by="ada", message="lunch"), "", ""),
        (ev.RunPaused("breakpoint", "note"), "a", "a#1.1!gate"),
    ]
    with open_screen((ev.NodeEnter(node="a"), "a", ""), *waits) as shown:
        assert shown.line("person", 10) == "? waits for a person: Sure?  (yes or no)  13 s"
        assert shown.line("signal").startswith("◌ waits for signal paid until 20")
        assert shown.line("waits for run") == "◌ waits for run r2  2 s"
        assert "1 min 25 s left" in shown.line("sleep until")
        assert shown.line("caller") == '◌ waits for its caller: look {"q":1}  1 s'
        assert shown.line("lunch") == "‖ paused (command) by ada: lunch  0 s"
        assert shown.line("breakpoint") == "‖ paused (breakpoint) at note  0 s"


def test_calls_of_one_turn_are_numbered() -> None:
    calls = [
        (ev.ToolCall("gather", "search", {"q": word}), "gather", f"gather#1.1!tool.1.{i}")
        for i, word in enumerate("ab")
    ]
    with open_screen(GATHER, *calls) as shown:
        assert 'tool search {"q":"a"}' in shown.line('"a"')
        assert 'tool search (call 2) {"q":"b"}' in shown.line('"b"')


def test_tokens_follow_the_line_of_their_model_and_restart_with_a_try() -> None:
    with open_screen(GATHER, CALL) as shown:
        shown.tree.delta(4, 0, "the pool ")
        shown.tree.delta(4, 1, "is\nempty")
        assert shown.line("model claude").endswith("“the pool is empty")
        shown.tree.delta(4, 0, "once more")
        assert shown.line("model claude").endswith("“once more")


def test_a_small_screen_shows_running_and_new_lines() -> None:
    entered = [(ev.NodeEnter(node=f"n{i}"), f"n{i}", "") for i in range(30)]
    over = [(ev.NodeExit("ok"), f"n{i}", "") for i in range(30) if i != 3]
    with open_screen(*entered, *over, height=12) as shown:
        lines = shown.lines()
        assert len([line for line in lines if line]) <= 12
        assert any("n3  " in line and line.lstrip(" ├└─│\r")[0] in SPINNER for line in lines)
        assert any("✓ n29" in line for line in lines)
        assert "⋮" in lines


def test_a_slow_tree_is_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    from callboard.surfaces.cli import live_tree

    created: list[int] = []
    rows = live_tree.rows

    def slow(*given: Any, **more: Any) -> Any:
        created.append(1)
        return rows(*given, **more)

    now = [0.0]
    monkeypatch.setattr(live_tree, "rows", slow)
    monkeypatch.setattr(live_tree.time, "monotonic", lambda: now.__setitem__(0, now[0] + 1.0) or now[0])
    with open_screen(GATHER) as shown:
        shown.lines()
        count = len(created)
        for number in range(40):
            shown.take((ev.NodeEnter(node=f"n{number}"), f"n{number}", ""))
            shown.tree.draw()
        # Each call of the clock takes a second of it, so about one drawing in ten builds the tree.
        assert count < len(created) <= count + 5


# -- lines ------------------------------------------------------------------------------------------------------------


def print_lines(capsys: pytest.CaptureFixture[str], *payloads: tuple[Payload, str, str]) -> list[str]:
    lines = Lines()
    for event in events(*STARTED, *payloads):
        lines.event(event.n, event)
    return [line.partition(" s  ")[2] for line in capsys.readouterr().out.splitlines()][len(STARTED) :]


def test_lines_name_their_item_of_a_fan_out(capsys: pytest.CaptureFixture[str]) -> None:
    item = "main/dealer[3]"
    assert print_lines(
        capsys,
        (ev.NodeEnter(node="main"), "main", ""),
        (ev.NodeEnter(node="dealer"), "main/dealer", ""),
        (ev.NodeEnter(node="dealer"), item, ""),
        (ev.NodeEnter(node="quote"), f"{item}/quote", ""),
        (ev.EffectCall("http"), f"{item}/quote:call", f"{item}/quote:call#1.1!call"),
        (ev.NodeEnter(node="dealer"), "main/dealer[4]", ""),
        (ev.EffectResult(1), f"{item}/quote:call", f"{item}/quote:call#1.1!call"),
        (ev.NodeExit("ok"), item, ""),
    ) == [
        "▶ main",
        "  ▶ dealer",
        "  ▶ dealer [3]",
        "    ▶ quote [3]",
        "      [3] http …",
        "  ▶ dealer [4]",
        "      quote:call [3]: = 1",
        "  ✓ dealer [3] ok",
    ]


def test_lines_name_their_node_when_several_run(capsys: pytest.CaptureFixture[str]) -> None:
    def call(node: str, i: int, q: str) -> tuple[Payload, str, str]:
        return ev.ToolCall(node, "search", {"q": q}), node, f"{node}#1.1!tool.1.{i}"

    def result(node: str, i: int) -> tuple[Payload, str, str]:
        return ev.ToolResult(node, "search", i), node, f"{node}#1.1!tool.1.{i}"

    a, b = ((ev.NodeEnter(node=node), node, "") for node in "ab")
    lines = print_lines(
        capsys, a, call("a", 0, "x"), call("a", 1, "y"), result("a", 1), b, result("a", 0), call("b", 0, "z")
    )
    assert lines == [
        "▶ a",
        '  calls search {"q":"x"}',
        '  calls search (call 2) {"q":"y"}',
        "  search (call 2) = 1",
        "▶ b",
        "  a: search = 0",
        '  b: calls search {"q":"z"}',
    ]


def test_lines_show_why_a_run_is_paused_or_parked(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_lines(
        capsys,
        (ev.RunPaused("command", by="ada", message="lunch"), "", ""),
        (ev.RunParked(["a#1.1!ask"], status="waiting:human"), "", ""),
        (ev.RunParked(["a#1.1!ask"]), "", ""),
        (ev.HumanAsked("Which?", "select", ["red", {"value": "blue"}]), "a", "a#1.1!ask"),
    ) == [
        "paused (command) by ada: lunch",
        "parked, waiting for a person: a#1.1!ask",
        "parked, waiting: a#1.1!ask",
        "  ? Which?  (red, blue)",
    ]


# -- on a terminal ----------------------------------------------------------------------------------------------------


class Terminal:
    """A command on a new terminal, whose output is read continuously."""

    def __init__(self, workdir: Workdir, *args: str) -> None:
        self._ours, theirs = pty.openpty()
        env = {**workdir.env, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self._server = workdir.join_store(args)
        self._server.__enter__()
        self.process = subprocess.Popen(
            callboard(*args),
            cwd=workdir.folder,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(theirs)
        self.shown = ""
        self._grown = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._ours, 4096)
            except OSError:  # so Linux says that the other side is closed
                chunk = b""
            with self._grown:
                self.shown += chunk.decode("utf-8", "replace")
                self._grown.notify_all()
            if not chunk:
                return

    def until(self, words: str) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: words in self.shown, PATIENCE_S), self.shown

    def close(self) -> int:
        """Wait for the end; return the exit code."""
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        self._reader.join(PATIENCE_S)
        os.close(self._ours)
        self._server.__exit__(None, None, None)
        assert "Traceback" not in stderr
        return self.process.returncode


def test_run_and_watch_draw_the_tree_on_a_terminal(workdir: Workdir) -> None:
    file = workdir.write("asks.json", flow_of(ours("human"), question="Sure?", type="confirm"))
    runs = Terminal(workdir, "run", file, "--run-id", "r1", "--no-ask")
    runs.until("? waits for a person: Sure?  (yes or no)")
    runs.until("In another terminal: ")
    watches = Terminal(workdir, "watch", "r1")
    watches.until("? waits for a person: Sure?  (yes or no)")
    watches.until(" answer r1 'main/a:call#1.1!ask' RESPONSE")
    plain = Terminal(workdir, "watch", "r1", "--plain")
    plain.until("? Sure?  (yes or no)")
    assert workdir.run("answer", "r1", "yes").exit_code == exits.OK
    assert [terminal.close() for terminal in (runs, watches, plain)] == [exits.OK] * 3
    for terminal in (runs, watches):
        assert "✓ r1  asks" in terminal.shown
        assert "\x1b[?25h" in terminal.shown  # the cursor is back
    assert "■ completed  in" in runs.shown
    assert "▶ main" in plain.shown
    assert "\x1b[" not in plain.shown


def test_a_late_watch_shows_an_answer_from_its_beginning(workdir: Workdir) -> None:
    file = workdir.write("notes.md", doc(steps("a")))
    turn = {"text": "x", "progress": ["To be, ", "or not"], "delay_ms": 3_600_000}
    script = workdir.write("script.json", json.dumps({"turns": {"1": [turn]}}))
    with workdir.up():
        workdir.run_json("start", file, "--script", script, "--run-id", "r1")
        first = Terminal(workdir, "watch", "r1")
        first.until("To be,")
        second = Terminal(workdir, "watch", "r1")
        second.until("To be,")
        assert workdir.run("kill", "r1").exit_code == exits.OK
        assert [terminal.close() for terminal in (first, second)] == [exits.of_status("cancelled")] * 2


def test_an_interrupted_watch_restores_the_screen(workdir: Workdir) -> None:
    file = workdir.write("asks.json", flow_of(ours("human"), question="Sure?", type="confirm"))
    with workdir.up():
        workdir.run_json("start", file, "--run-id", "r1")
        watches = Terminal(workdir, "watch", "r1")
        watches.until("waits for a person")
        watches.process.send_signal(signal.SIGINT)
        assert watches.close() == exits.INTERRUPTED
        assert "\x1b[?25h" in watches.shown
        assert workdir.run_json("show", "r1")["status"] == "waiting:human"
