"""The terminal: where someone sits who can be asked; questions go to stderr, responses come from stdin.

On a terminal one chooses with the arrow keys; elsewhere, from a pipe or a file, every response is a line. All of this
blocks: it is done in a thread, and whoever does not want to know any longer sets ``stop``.
"""

import os
import re
import select
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from callboard.surfaces.cli.output import say, style

POLL_S = 0.1
"""How often a read that waits looks whether it is still wanted."""

READ_BYTES = 4096

_KEY = re.compile(r"\x1b[\[O].|.", re.DOTALL)

UP, DOWN, ENTER = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j"), ("\r", "\n")


class NobodyThere(Exception):
    """Raised when stdin has ended: no one will say anything."""


class Stopped(Exception):
    """Raised when the response is not wanted any longer."""


class Terminal:
    """Standard input and error, read by one thread at a time."""

    def __init__(self) -> None:
        self._pending = b""
        try:
            self._fd: int | None = sys.stdin.fileno()
        except (OSError, ValueError, AttributeError):
            self._fd = None  # stdin is not a file, as in tests of a command

    @property
    def interactive(self) -> bool:
        """Whether a person sits there who sees what is drawn."""
        return self._fd is not None and os.isatty(self._fd) and sys.stderr.isatty()

    def say(self, text: str, *, newline: bool = True) -> None:
        say(text, err=True, nl=newline)

    def line(self, stop: threading.Event) -> str:
        """Read a line, without its end.

        :raises NobodyThere: at the end of the input
        :raises Stopped: if ``stop`` was set in the meantime
        """
        if self._fd is None:
            read = sys.stdin.readline()
            if not read:
                raise NobodyThere
            return read.rstrip("\r\n")
        while b"\n" not in self._pending:
            more = self._read(stop)
            if not more and self._pending:
                break
            if not more:
                raise NobodyThere
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def choose(self, options: Sequence[str], stop: threading.Event) -> int:
        """Have one of the options chosen with the arrow keys, or by its number; return its place.

        None is chosen at first: Enter alone answers nothing.

        :raises NobodyThere: at the end of the input
        :raises Stopped: if ``stop`` was set in the meantime
        """
        at: int | None = None
        with self._keys():
            self._draw(options, at)
            while True:
                typed = keys(self._read(stop).decode(errors="replace"))
                if not typed:
                    raise NobodyThere
                for key in typed:
                    if key in ENTER and at is not None:
                        return at
                    at = chosen(key, at, len(options))
                sys.stderr.write(f"\x1b[{len(options)}A")
                self._draw(options, at)

    def _draw(self, options: Sequence[str], at: int | None) -> None:
        for place, option in enumerate(options):
            # Without colours the cursor still has to move.
            sys.stderr.write("\r\x1b[2K")
            line = f"{'❯' if place == at else ' '} {option}"
            self.say(style(line, fg="cyan", bold=True) if place == at else line)

    def _read(self, stop: threading.Event) -> bytes:
        assert self._fd is not None
        while not stop.is_set():
            ready, _, _ = select.select([self._fd], [], [], POLL_S)
            if ready:
                return os.read(self._fd, READ_BYTES)
        raise Stopped

    @contextmanager
    def _keys(self) -> Generator[None]:
        """Have keys come singly and unseen; Ctrl-C stays what it is."""
        import termios
        import tty

        assert self._fd is not None
        before = termios.tcgetattr(self._fd)
        try:
            tty.setcbreak(self._fd)
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)


def keys(typed: str) -> list[str]:
    """Take apart what was typed at once: each key by itself, an arrow with all that it sends."""
    return _KEY.findall(typed)


def chosen(key: str, at: int | None, count: int) -> int | None:
    """Return the option that a key leads to from the option ``at``; without effect a key leads to the same one."""
    if key in UP:
        return (count if at is None else at) - 1 if at != 0 else count - 1
    if key in DOWN:
        return 0 if at is None else (at + 1) % count
    return int(key) - 1 if key.isdecimal() and 1 <= int(key) <= count else at
