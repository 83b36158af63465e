"""Asking a person at the terminal: the questions of a run, and the inputs that a start lacks.

Questions go to stderr, answers come from stdin. On a terminal a person chooses with the arrow keys; from a pipe or a
file, every line is an answer. All of this blocks: call it in a thread, and set ``stop`` to give up.
"""

import os
import re
import select
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, field

from callboard.bus.events import HumanAsked
from callboard.lib.json_types import JSON
from callboard.lib.text_bytes import NotText, decode_text
from callboard.projections.lists.question_data import data_lines
from callboard.surfaces.cli.output import say, style

POLL_S = 0.1
"""How often a waiting read checks ``stop``."""

READ_BYTES = 4096

_KEY = re.compile(r"\x1b[\[O].|.", re.DOTALL)

UP, DOWN, ENTER = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j"), ("\r", "\n")


class NobodyThere(Exception):
    """Raised when stdin has ended: nobody can answer."""


class Stopped(Exception):
    """Raised when the answer is no longer needed."""


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
        """Whether stdin and stderr are a terminal."""
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
        while True:
            while b"\n" not in self._pending:
                more = self._read(stop)
                if not more and self._pending:
                    break
                if not more:
                    raise NobodyThere
                self._pending += more
            line, _, self._pending = self._pending.partition(b"\n")
            try:
                return decode_text(line).rstrip("\n")
            except NotText as error:
                self.say(f"The line was not read: {error}. Enter it again.")

    def choose(self, options: Sequence[str], stop: threading.Event) -> int:
        """Let the user choose an option with the arrow keys or by number; return its index.

        No option is selected at first: Enter alone does not answer.

        :raises NobodyThere: at the end of the input
        :raises Stopped: if ``stop`` was set in the meantime
        """
        at: int | None = None
        with self._keys():
            self._draw(options, at)
            while True:
                typed = split_keys(self._read(stop).decode(errors="replace"))
                if not typed:
                    raise NobodyThere
                for key in typed:
                    if key in ENTER and at is not None:
                        return at
                    at = move_choice(key, at, len(options))
                sys.stderr.write(f"\x1b[{len(options)}A")
                self._draw(options, at)

    def _draw(self, options: Sequence[str], at: int | None) -> None:
        for place, option in enumerate(options):
            # These sequences move the cursor, also if colours are off.
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
        """Read keys one by one, without echo; Ctrl-C still interrupts."""
        import termios
        import tty

        assert self._fd is not None
        before = termios.tcgetattr(self._fd)
        try:
            tty.setcbreak(self._fd)
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)


def split_keys(typed: str) -> list[str]:
    """Split typed text into keys; the escape sequence of an arrow is one key."""
    return _KEY.findall(typed)


def move_choice(key: str, at: int | None, count: int) -> int | None:
    """Return the index that a key selects, starting from ``at``; any other key keeps ``at``."""
    if key in UP:
        return (count if at is None else at) - 1 if at != 0 else count - 1
    if key in DOWN:
        return 0 if at is None else (at + 1) % count
    return int(key) - 1 if key.isdecimal() and 1 <= int(key) <= count else at


class TerminalOption(Struct, frozen=True):
    """An option: the label to show and the value to answer."""

    label: str
    value: JSON


class TerminalQuestion(Struct, frozen=True):
    """A question; without choices any text is an answer. ``data`` are lines to show with it."""

    text: str
    choices: Sequence[TerminalOption] = field(default_factory=list[TerminalOption])
    data: Sequence[str] = ()


def to_question(asked: HumanAsked) -> TerminalQuestion:
    """Return the question of an event."""
    data = tuple(data_lines(asked.request_data, asked.question))
    if asked.interaction_type == "confirm" and not asked.options:
        return TerminalQuestion(asked.question, [TerminalOption("Yes", "yes"), TerminalOption("No", "no")], data)
    return TerminalQuestion(asked.question, [_to_choice(option) for option in asked.options], data)


def _to_choice(option: Any) -> TerminalOption:
    if isinstance(option, Mapping) and "value" in option:
        return TerminalOption(str(option.get("label", option["value"])), option["value"])
    return TerminalOption(str(option), option)


def ask(terminal: Terminal, question: TerminalQuestion, stop: threading.Event) -> JSON:
    """Ask, and return the answer; a line that matches no choice is returned unchanged.

    :raises NobodyThere: at the end of the input
    :raises Stopped: if ``stop`` was set in the meantime
    """
    terminal.say(style("? ", fg="green", bold=True) + style(question.text, bold=True))
    for line in question.data:
        terminal.say(f"  {line}")
    if question.choices and terminal.interactive:
        terminal.say(style("  arrow keys or a number, then Enter", dim=True))
        return question.choices[terminal.choose([choice.label for choice in question.choices], stop)].value
    for number, choice in enumerate(question.choices, 1):
        terminal.say(f"  {number}. {choice.label}")
    if terminal.interactive:
        terminal.say("> ", newline=False)
    return match_answer(question, terminal.line(stop))


def match_answer(question: TerminalQuestion, line: str) -> JSON:
    """Return the answer in a line: a choice by its label, its value or its number, else the line itself."""
    said = line.strip()
    for choice in question.choices:
        if said in (choice.label, str(choice.value)):
            return choice.value
    if said.isdecimal() and 1 <= int(said) <= len(question.choices):
        return question.choices[int(said) - 1].value
    return line


END_OF_TEXT = "several lines; end with an empty line"


def ask_inputs(declared: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ask for inputs by name; return the values given until stdin ends."""
    terminal = Terminal()
    given: dict[str, Any] = {}
    never = threading.Event()
    try:
        for name, one in declared.items():
            given[name] = _ask_input(terminal, name, one, never)
    except NobodyThere:
        say(err=True)
    return given


def is_somebody_there() -> bool:
    """Whether a person can be asked."""
    return Terminal().interactive


def _ask_input(terminal: Terminal, name: str, one: dict[str, Any], never: threading.Event) -> JSON:
    about = f"{name}: {one['description']}" if one.get("description") else name
    kind, options = one.get("type"), one.get("options") or one.get("enum") or []
    while True:
        if kind == "text":
            value: JSON = _ask_text(terminal, about, never)
        elif options:
            value = ask(
                terminal, TerminalQuestion(about, [TerminalOption(str(option), option) for option in options]), never
            )
        elif kind == "boolean":
            value = ask(
                terminal, TerminalQuestion(about, [TerminalOption("true", True), TerminalOption("false", False)]), never
            )
        else:
            value = ask(terminal, TerminalQuestion(f"{about} (a number)" if kind == "number" else about), never)
        if kind == "number":
            value = _parse_number(value)
        if value not in (None, ""):
            return value
        terminal.say("It is required." if kind != "number" else "That is not a number.")


def _ask_text(terminal: Terminal, about: str, never: threading.Event) -> str:
    terminal.say(style("? ", fg="green", bold=True) + style(about, bold=True) + f"  ({END_OF_TEXT})")
    lines: list[str] = []
    try:
        while line := terminal.line(never):
            lines.append(line)
    except NobodyThere:
        if not lines:
            raise
    return "\n".join(lines)


def _parse_number(value: JSON) -> int | float | None:
    text = str(value).strip()
    try:
        return int(text)
    except ValueError:
        pass
    try:
        found = float(text)
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None
