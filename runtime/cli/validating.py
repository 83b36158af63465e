"""Validating a definition's file, by itself or with the input of a start."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.language import Definition, Plan
from callboard.languages.registry import language
from callboard.runtime.cli import exits
from callboard.runtime.cli.authoring import parsed
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.options import Order
from callboard.runtime.cli.ordering import ordered, text_of
from callboard.runtime.cli.problems import problem_text
from callboard.runtime.cli.views import compact


def validate_file(file: str, input_text: str | None, *, as_json: bool) -> int:
    """Print the problems of a definition; return the exit code."""
    source = text_of(Path(file))
    name, problems = examined(source, Order(file, input_text))
    valid = not errors(problems)
    if as_json:
        told = msgspec.to_builtins(problems)
        click.echo(compact({"file": file, "language": name, "valid": valid, "problems": told}))
    else:
        for problem in problems:
            click.echo(problem_text(problem, file, source))
        click.echo(_verdict(file, name, problems))
    return exits.OK if valid else exits.FAILED


def examined(source: str, order: Order) -> tuple[str, list[Problem]]:
    """Return the language of a definition, empty if it has none, and what is wrong, or odd, with it and its start.

    :raises click.BadParameter: if the input cannot be read
    """
    definition = parsed(source)
    if isinstance(definition, list):
        return "", definition
    return definition.language, _beyond(definition, order)


def _beyond(definition: Definition[Any], order: Order) -> list[Problem]:
    """What is wrong, or odd, with a sound definition: files it names, skills beside it, and the input, if there is one.

    :raises click.BadParameter: if the input cannot be read
    """
    try:
        start = ordered(order)
    except Refused as refused:
        return [*definition.warnings, *refused.problems]
    plan = language(definition.language).admit(definition, msgspec.convert(start.message, StartRun))
    if isinstance(plan, Plan):
        return [*start.warnings, *plan.warnings]
    # Without an input, none can be missed.
    missed = [problem for problem in plan if order.input_text is not None or not problem.where.startswith("input")]
    return [*definition.warnings, *start.warnings, *missed]


def errors(problems: Sequence[Problem]) -> list[Problem]:
    """Return those that keep a definition from being run."""
    return [problem for problem in problems if problem.severity == "error"]


def _verdict(file: str, name: str, problems: Sequence[Problem]) -> str:
    wrong = len(errors(problems))
    odd = len(problems) - wrong
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}" for count, word in ((wrong, "error"), (odd, "warning")) if count
    ]
    mark = click.style("✗", fg="red") if wrong else click.style("✓", fg="green")
    return f"{mark} {file}{f' ({name})' if name else ''}: {', '.join(counts) or 'valid'}"
