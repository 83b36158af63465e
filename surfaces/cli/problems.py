"""Problems as people read them: file, line and column, what is wrong, and the line of the text with a caret below."""

from callboard.bus.events import Problem
from callboard.surfaces.cli.output import style

LINE_CHARS_MAX = 120
"""How much of a line of the text is shown: of a longer one what stands around the place that is meant."""

WORDS_CHARS_MAX = 2_000
"""How much of a place and of a message is shown: they repeat what is in the text, and that may be anything."""


def problem_text(problem: Problem, file: str = "", source: str = "") -> str:
    """Return a problem in the form ``file:line:column: error CODE where: message``, with its line if that is known."""
    place = ":".join(str(part) for part in (file, problem.line, problem.column) if part) if problem.line else ""
    colour = "red" if problem.severity == "error" else "yellow"
    severity = style(problem.severity, fg=colour, bold=True)
    where = f" {_cut(problem.where)}" if problem.where else ""
    expected = f"; expected {_cut(problem.expected)}" if problem.expected else ""
    text = f"{place + ': ' if place else ''}{severity} {problem.code}{where}: {_cut(problem.message)}{expected}"
    shown = _show_problem(problem, source)
    return f"{text}\n{shown}" if shown else text


def _show_problem(problem: Problem, source: str) -> str:
    # Lines end as YAML and JSON see it; `str.splitlines` would count more.
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if problem.line is None or not 0 < problem.line <= len(lines) or not source:
        return ""
    line = lines[problem.line - 1]
    number = f"{problem.line:>6} | "
    if problem.column is None:
        return number + _window(line, 0)[0]
    shown, at = _window(line, problem.column - 1)
    # What is before the caret keeps its tabs, so that the caret is below what it means.
    before = "".join(character if character == "\t" else " " for character in shown[:at])
    return f"{number}{shown}\n{'| ':>{len(number)}}{before}{style('^', fg='red', bold=True)}"


def _window(line: str, at: int) -> tuple[str, int]:
    """Return what is shown of a line around a character of it, and where that one is there."""
    first = max(0, min(at - LINE_CHARS_MAX // 2, len(line) - LINE_CHARS_MAX))
    part = line[first : first + LINE_CHARS_MAX]
    before, behind = "…" if first else "", "…" if first + len(part) < len(line) else ""
    return f"{before}{part}{behind}", at - first + len(before)


def _cut(words: str) -> str:
    return words if len(words) <= WORDS_CHARS_MAX else f"{words[: WORDS_CHARS_MAX - 1]}…"
