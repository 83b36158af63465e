"""Printing on stdout and stderr: texts, problems with the line they are about, and the progress of many runs.

Texts come from runs, models and tools, and a terminal would obey the control characters in them. So `say` spells these
out. Colours of our own are marked by a random word until they are printed, which no text from outside can contain.
"""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callboard.lib.control_characters import visible

if TYPE_CHECKING:
    from callboard.bus.events import Problem


_OURS = f"\x1b{os.urandom(8).hex()}"
"""Stands for the escape character in our own colours until they are printed."""


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people, or JSON, on stdout, or on stderr with ``err``.

    :raises OSError: if stdout cannot be written
    """
    click.echo(render_text(text), err=err, nl=nl)


def print_answer(value: Any, lines: str | Iterable[str], *, as_json: bool) -> None:
    """Print an answer: the value as JSON on one line, or else the lines for people.

    :raises OSError: if stdout cannot be written
    """
    if as_json:
        from callboard.service.operations.results import compact

        say(compact(value))
    else:
        for line in [lines] if isinstance(lines, str) else lines:
            say(line)


def print_document(text: str, *, nl: bool = True) -> None:
    """Print a text unchanged to a file or a pipe; on a terminal its control characters are escaped.

    :raises OSError: if stdout cannot be written
    """
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=nl)


def confirm(question: str) -> bool:
    """Ask for a confirmation on stderr; return the answer.

    :raises click.Abort: if stdin ends
    """
    return click.confirm(visible(question), err=True)


def style(text: Any, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Return a text in a colour or weight, for `say`."""
    before, _, behind = click.style("\0", fg=fg, bold=bold, dim=dim).partition("\0")
    return f"{_mark_colours(before)}{text}{_mark_colours(behind)}"


def render_text(text: str) -> str:
    """Return a text with our own colours, and with all control characters escaped but newlines and tabs."""
    return "\x1b".join(map(visible, text.split(_OURS)))


def _mark_colours(colours: str) -> str:
    return colours.replace("\x1b", _OURS)


def table(rows: Sequence[Sequence[str]], colours: Mapping[str, str] | None = None) -> str:
    """Return rows with aligned columns, the first one as the head. ``colours`` are those of words in column 1."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if number and colours is not None:
            cells[1] = style(cells[1], fg=colours.get(row[1]))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def write_file(path: Path, text: str, *, append: bool = False, makes_folder: bool = False) -> None:
    """Write a text to a file, or append it.

    :raises CallboardError: ``file.unwritable``
    """
    from callboard.bus.errors import CallboardError

    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CallboardError("file.unwritable", f"the file cannot be written: {error.strerror}", str(path)) from error


Progress = Callable[[int], None]
"""Is called with the number of runs that were finished since the last call."""


@contextmanager
def progress(count: int) -> Generator[Progress]:
    """Show how many of ``count`` runs are done, as a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    with click.progressbar(length=count, file=sys.stderr, label="runs") as bar:
        yield bar.update


LINE_CHARS_MAX = 120
"""How many characters of a line of the source are shown, around the place of the problem."""

WORDS_CHARS_MAX = 2_000
"""How many characters of a place and of a message are shown: they quote the source, which may be long."""


def problem_text(problem: "Problem", file: str = "", source: str = "") -> str:
    """Return a problem as ``file:line:column: error CODE where: message``, with the line of ``source`` if known."""
    place = ":".join(str(part) for part in (file, problem.line, problem.column) if part) if problem.line else ""
    colour = "red" if problem.severity == "error" else "yellow"
    severity = style(problem.severity, fg=colour, bold=True)
    where = f" {_cut_words(problem.where)}" if problem.where else ""
    expected = f"; expected {_cut_words(problem.expected)}" if problem.expected else ""
    text = f"{place + ': ' if place else ''}{severity} {problem.code}{where}: {_cut_words(problem.message)}{expected}"
    shown = _show_problem(problem, source)
    return f"{text}\n{shown}" if shown else text


def verdict_text(file: str, name: str, problems: "Sequence[Problem]") -> str:
    """Return the line that says whether a definition is valid, with the numbers of its problems."""
    from callboard.service.files.validation import errors

    wrong = len(errors(problems))
    odd = len(problems) - wrong
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}" for count, word in ((wrong, "error"), (odd, "warning")) if count
    ]
    mark = style("✗", fg="red") if wrong else style("✓", fg="green")
    return f"{mark} {file}{f' ({name})' if name else ''}: {', '.join(counts) or 'valid'}"


def _show_problem(problem: "Problem", source: str) -> str:
    # Split lines as YAML and JSON do; `str.splitlines` would split at more characters.
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if problem.line is None or not 0 < problem.line <= len(lines) or not source:
        return ""
    line = lines[problem.line - 1]
    number = f"{problem.line:>6} | "
    if problem.column is None:
        return number + _cut_line(line, 0)[0]
    shown, at = _cut_line(line, problem.column - 1)
    # Keep tabs before the caret, so that it is below the right character.
    before = "".join(character if character == "\t" else " " for character in shown[:at])
    return f"{number}{shown}\n{'| ':>{len(number)}}{before}{style('^', fg='red', bold=True)}"


def _cut_line(line: str, at: int) -> tuple[str, int]:
    """Return the part of a line around the index ``at``, and the index of that character in the part."""
    first = max(0, min(at - LINE_CHARS_MAX // 2, len(line) - LINE_CHARS_MAX))
    part = line[first : first + LINE_CHARS_MAX]
    before, behind = "…" if first else "", "…" if first + len(part) < len(line) else ""
    return f"{before}{part}{behind}", at - first + len(before)


def _cut_words(words: str) -> str:
    return words if len(words) <= WORDS_CHARS_MAX else f"{words[: WORDS_CHARS_MAX - 1]}…"
