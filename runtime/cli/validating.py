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
    definition = parsed(source)
    problems = definition if isinstance(definition, list) else _beyond(definition, Order(file, input_text))
    name = "" if isinstance(definition, list) else definition.language
    valid = not _errors(problems)
    if as_json:
        told = msgspec.to_builtins(problems)
        click.echo(compact({"file": file, "language": name, "valid": valid, "problems": told}))
    else:
        for problem in problems:
            click.echo(problem_text(problem, file, source))
        click.echo(_verdict(file, name, problems))
    return exits.OK if valid else exits.FAILED


def _beyond(definition: Definition[Any], order: Order) -> list[Problem]:
    """What is wrong, or odd, with a sound definition: files it names, skills beside it, and the input, if there is one.

    :raises click.BadParameter: if the input cannot be read
    """
    try:
        message = ordered(order).message
    except Refused as refused:
        return [*definition.warnings, *refused.problems]
    plan = language(definition.language).admit(definition, msgspec.convert(message, StartRun))
    if isinstance(plan, Plan):
        return list(plan.warnings)
    # Without an input, none can be missed.
    missed = [problem for problem in plan if order.input_text is not None or not problem.where.startswith("input")]
    return [*definition.warnings, *missed]


def _errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def _verdict(file: str, name: str, problems: Sequence[Problem]) -> str:
    errors = len(_errors(problems))
    warnings = len(problems) - errors
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}"
        for count, word in ((errors, "error"), (warnings, "warning"))
        if count
    ]
    mark = click.style("✗", fg="red") if errors else click.style("✓", fg="green")
    return f"{mark} {file}{f' ({name})' if name else ''}: {', '.join(counts) or 'valid'}"
