"""Printing on stdout and stderr: texts, problems with the line they are about, and the progress of many runs.

Texts come from runs, models and tools, and a terminal would obey the control characters in them. So `say` spells these
out. Colours of our own are marked by a random word until they are printed, which no text from outside can contain.
"""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from callboard.lib.control_characters import visible

if TYPE_CHECKING:
    from callboard.bus.events import Problem


_OURS = f"\x1b{os.urandom(8).hex()}"
"""What represents the escape character in colours of our own, until they are printed."""


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people, or JSON: on stdout, or else on stderr.

    :raises OSError: if stdout takes nothing
    """
    click.echo(render_text(text), err=err, nl=nl)


def print_document(text: str, *, nl: bool = True) -> None:
    """Print a text that is to be kept as it is: into a file, a pipe; a terminal is shown its controls.

    :raises OSError: if stdout takes nothing
    """
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=nl)


def confirm(question: str) -> bool:
    """Ask on stderr whether something shall be done.

    :raises click.Abort: if no one answers
    """
    return click.confirm(visible(question), err=True)


def style(text: Any, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Return a text in a colour or another weight, for `say`."""
    before, _, behind = click.style("\0", fg=fg, bold=bold, dim=dim).partition("\0")
    return f"{_mark_colours(before)}{text}{_mark_colours(behind)}"


def render_text(text: str) -> str:
    """Return a text as a terminal gets it: with colours of ours, and no other controls than ends of lines and tabs."""
    return "\x1b".join(map(visible, text.split(_OURS)))


def _mark_colours(colours: str) -> str:
    return colours.replace("\x1b", _OURS)


Progress = Callable[[int], None]
"""Is told how many more are done."""


@contextmanager
def progress(count: int) -> Generator[Progress]:
    """Show how many of ``count`` runs are done."""
    if not sys.stderr.isatty():
        yield _silently
        return
    with click.progressbar(length=count, file=sys.stderr, label="runs") as bar:
        yield bar.update


def _silently(_more: int) -> None:
    pass


LINE_CHARS_MAX = 120
"""How much of a line of the text is shown: of a longer one what stands around the place that is meant."""

WORDS_CHARS_MAX = 2_000
"""How much of a place and of a message is shown: they repeat what is in the text, and that may be anything."""


def problem_text(problem: "Problem", file: str = "", source: str = "") -> str:
    """Return a problem in the form ``file:line:column: error CODE where: message``, with its line if that is known."""
    place = ":".join(str(part) for part in (file, problem.line, problem.column) if part) if problem.line else ""
    colour = "red" if problem.severity == "error" else "yellow"
    severity = style(problem.severity, fg=colour, bold=True)
    where = f" {_cut_words(problem.where)}" if problem.where else ""
    expected = f"; expected {_cut_words(problem.expected)}" if problem.expected else ""
    text = f"{place + ': ' if place else ''}{severity} {problem.code}{where}: {_cut_words(problem.message)}{expected}"
    shown = _show_problem(problem, source)
    return f"{text}\n{shown}" if shown else text


def _show_problem(problem: "Problem", source: str) -> str:
    # Lines end as YAML and JSON see it; `str.splitlines` would count more.
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if problem.line is None or not 0 < problem.line <= len(lines) or not source:
        return ""
    line = lines[problem.line - 1]
    number = f"{problem.line:>6} | "
    if problem.column is None:
        return number + _cut_line(line, 0)[0]
    shown, at = _cut_line(line, problem.column - 1)
    # What is before the caret keeps its tabs, so that the caret is below what it means.
    before = "".join(character if character == "\t" else " " for character in shown[:at])
    return f"{number}{shown}\n{'| ':>{len(number)}}{before}{style('^', fg='red', bold=True)}"


def _cut_line(line: str, at: int) -> tuple[str, int]:
    """Return what is shown of a line around a character of it, and where that one is there."""
    first = max(0, min(at - LINE_CHARS_MAX // 2, len(line) - LINE_CHARS_MAX))
    part = line[first : first + LINE_CHARS_MAX]
    before, behind = "…" if first else "", "…" if first + len(part) < len(line) else ""
    return f"{before}{part}{behind}", at - first + len(before)


def _cut_words(words: str) -> str:
    return words if len(words) <= WORDS_CHARS_MAX else f"{words[: WORDS_CHARS_MAX - 1]}…"
