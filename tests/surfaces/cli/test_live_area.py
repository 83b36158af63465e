"""Lines that are redrawn at the bottom of a terminal, below printed text."""

import io
import os
import re
import sys

import pytest

from callboard.surfaces.cli.live_area import HIDE_CURSOR, SHOW_CURSOR, Line, LiveArea, cut_line

HOUR_S = 3600


def render(written: str) -> list[str]:
    """Return the lines that a terminal shows for an output."""
    rows, at = [""], 0
    for order, newline, text in re.findall(r"(\x1b\[[\d;?]*[A-Za-z]|\r)|(\n)|([^\x1b\r\n]+)", written):
        if newline:
            at += 1
            rows += [""] * (at + 1 - len(rows))
        elif order == "\x1b[1A":
            at -= 1
        elif order == "\x1b[2K":
            rows[at] = ""
        rows[at] += text
    return rows


def open_area(*lines: Line) -> tuple[LiveArea, io.StringIO]:
    screen = io.StringIO()
    return LiveArea(lambda _height: lines, 1 / HOUR_S, screen, os.terminal_size((20, 10))), screen


def test_lines_are_replaced_below_printed_text() -> None:
    drawn, screen = open_area([("one", {})], [("two", {})])
    before = sys.stdout, sys.stderr
    drawn.start()
    for _ in range(2):
        drawn.refresh()
    print("printed")
    print("warned", file=sys.stderr)
    drawn.print_above("noticed\ntwice")
    print("begun", end="")
    assert render(screen.getvalue()) == ["printed", "warned", "noticed", "twice", "one", "two"]
    drawn.stop(erase=False)
    assert render(screen.getvalue()) == ["printed", "warned", "noticed", "twice", "begun", "one", "two", ""]
    assert (sys.stdout, sys.stderr) == before
    assert screen.getvalue().startswith(HIDE_CURSOR)
    assert screen.getvalue().endswith(SHOW_CURSOR)


def test_erased_lines_leave_nothing() -> None:
    drawn, screen = open_area([("one", {})], [("two", {})])
    drawn.start()
    drawn.refresh()
    drawn.stop(erase=True)
    drawn.refresh()
    drawn.print_above("asked")
    assert render(screen.getvalue()) == ["asked", ""]
    drawn.start()
    drawn.refresh()
    drawn.stop(erase=False)
    assert [line for line in render(screen.getvalue()) if line] == ["asked", "one", "two"]


def test_no_color_of_the_environment_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    for no_color, expected in (("", "\x1b[31mone\x1b[0m"), ("1", "one")):
        monkeypatch.setenv("NO_COLOR", no_color)
        drawn, screen = open_area([("one", {"fg": "red"})])
        drawn.start()
        drawn.stop(erase=False)
        assert screen.getvalue() == f"{HIDE_CURSOR}{expected}\n{SHOW_CURSOR}"


@pytest.mark.parametrize(
    ("texts", "cells", "expected"),
    [
        (["abc", "de"], 5, "abcde"),
        (["abc", "def"], 5, "abcd…"),
        (["日本", "語"], 6, "日本語"),
        (["日本", "語"], 5, "日本…"),
        (["日本", "語"], 4, "日…"),
        (["e\u0301e\u0301e\u0301"], 3, "e\u0301e\u0301e\u0301"),
    ],
)
def test_a_line_is_cut_at_the_width_of_the_terminal(texts: list[str], cells: int, expected: str) -> None:
    assert "".join(text for text, _look in cut_line([(text, {}) for text in texts], cells)) == expected
