"""Lines at the bottom of a terminal that are drawn again and again. What is printed meanwhile appears above them."""

import os
import shutil
import sys
import threading
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TextIO, cast

from callboard.surfaces.cli.output import render_text, style

Line = Sequence[tuple[str, Mapping[str, Any]]]
"""A line: texts, each with its colour and weight as `style` takes them."""

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ERASE_LINE, UP = "\x1b[2K", "\x1b[1A"


class LiveArea:
    """Draws lines in place, many times per second, between `start` and `stop`.

    ``lines`` returns the lines for a height of the terminal; each is cut at its width. It is called in a thread of the
    area as well. ``size`` is that of the terminal, if it is not to be asked for it.
    """

    def __init__(
        self,
        lines: Callable[[int], Sequence[Line]],
        refreshes_per_s: float,
        screen: TextIO | None = None,
        size: os.terminal_size | None = None,
    ) -> None:
        self._lines = lines
        self._pause_s = 1 / refreshes_per_s
        self._screen = screen or sys.stdout
        self._size = size
        self._has_colours = not os.environ.get("NO_COLOR")
        self._lock = threading.RLock()
        self._stopping: threading.Event | None = None
        self._outputs: tuple[_PrintedAbove, _PrintedAbove] | None = None
        self._drawn = 0

    def start(self) -> None:
        """Begin to draw. What the process prints until `stop` appears above the lines."""
        with self._lock:
            if self._outputs is not None:
                return
            self._screen.write(HIDE_CURSOR)
            self._outputs = _PrintedAbove(sys.stdout, self.print_above), _PrintedAbove(sys.stderr, self.print_above)
            sys.stdout, sys.stderr = (cast("TextIO", output) for output in self._outputs)
            self._stopping = threading.Event()
            threading.Thread(target=self._draw_until, args=(self._stopping,), name="live area", daemon=True).start()

    def stop(self, *, erase: bool) -> None:
        """Draw a last time, or erase the lines."""
        with self._lock:
            if self._outputs is None or self._stopping is None:
                return
            self._stopping.set()
            for output in self._outputs:
                output.print_rest()
            sys.stdout, sys.stderr = (output.stream for output in self._outputs)
            last = self._erase_sequence() if erase else self._erase_sequence() + self._text() + "\n"
            self._outputs, self._drawn = None, 0
            self._write(last + SHOW_CURSOR)

    def refresh(self) -> None:
        """Draw now."""
        with self._lock:
            if self._outputs is not None:
                self._write(self._erase_sequence() + self._text())

    def print_above(self, text: str) -> None:
        """Print lines above those that are drawn."""
        with self._lock:
            self._write(f"{self._erase_sequence()}{text}\n" + ("" if self._outputs is None else self._text()))

    def _draw_until(self, stopping: threading.Event) -> None:
        while not stopping.wait(self._pause_s):
            with self._lock:
                if not stopping.is_set():
                    self.refresh()

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()

    def _erase_sequence(self) -> str:
        """Return what erases the lines that are drawn, and leaves the cursor at the begin of the first."""
        lines, self._drawn = self._drawn, 0
        return f"\r{ERASE_LINE}" + (UP + ERASE_LINE) * (lines - 1) if lines else ""

    def _text(self) -> str:
        size = self._size or shutil.get_terminal_size()
        lines = [self._render(cut_line(line, size.columns)) for line in self._lines(size.lines)]
        self._drawn = len(lines)
        return "\n".join(lines)

    def _render(self, line: Line) -> str:
        if not self._has_colours:
            return "".join(text for text, _look in line)
        return render_text("".join(style(text, **look) for text, look in line if text))


class _PrintedAbove:
    """Stands for stdout or stderr: prints whole lines above an area."""

    def __init__(self, stream: TextIO, print_above: Callable[[str], None]) -> None:
        self.stream = stream
        self._print_above = print_above
        self._rest = ""

    def write(self, text: str) -> int:
        lines, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline:
            self._print_above(lines)
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing: a line is printed when it is complete."""

    def print_rest(self) -> None:
        """Print a line that has not ended."""
        if self._rest:
            self.write("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def cut_line(line: Line, cells: int) -> Line:
    """Return a line of at most so many cells of a terminal; one that is cut ends with an ellipsis."""
    if sum(_cells(character) for text, _look in line for character in text) <= cells:
        return line
    kept: list[tuple[str, Mapping[str, Any]]] = []
    left = cells - 1
    for text, look in line:
        for end, character in enumerate(text):
            left -= _cells(character)
            if left < 0:
                return [*kept, (f"{text[:end]}…", look)]
        kept.append((text, look))
    return kept


@lru_cache(4096)
def _cells(character: str) -> int:
    """Return how many cells of a terminal a character takes."""
    if unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
