"""Problems as people read them: file, line and column, what is wrong, and the line of the text with a caret below."""

import click

from callboard.bus.events import Problem


def problem_text(problem: Problem, file: str = "", source: str = "") -> str:
    """Return a problem in the form ``file:line:column: error CODE where: message``, with its line if that is known."""
    place = ":".join(str(part) for part in (file, problem.line, problem.column) if part) if problem.line else ""
    colour = "red" if problem.severity == "error" else "yellow"
    severity = click.style(problem.severity, fg=colour, bold=True)
    where = f" {problem.where}" if problem.where else ""
    expected = f"; expected {problem.expected}" if problem.expected else ""
    text = f"{place + ': ' if place else ''}{severity} {problem.code}{where}: {problem.message}{expected}"
    shown = _shown(problem, source)
    return f"{text}\n{shown}" if shown else text


def _shown(problem: Problem, source: str) -> str:
    # Lines end as YAML and JSON see it; `str.splitlines` would count more.
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if problem.line is None or not 0 < problem.line <= len(lines) or not source:
        return ""
    line = lines[problem.line - 1]
    number = f"{problem.line:>6} | "
    if problem.column is None:
        return number + line
    # What stands before the caret keeps its tabs, so that the caret is below what it means.
    before = "".join(character if character == "\t" else " " for character in line[: problem.column - 1])
    return f"{number}{line}\n{'| ':>{len(number)}}{before}{click.style('^', fg='red', bold=True)}"
