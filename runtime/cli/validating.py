"""Validating a definition's file, by itself or with the input of a start."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.language import Definition, Plan
from callboard.languages.registry import detect, language
from callboard.runtime.cli import exits
from callboard.runtime.cli.authoring import about, authoring, parsed
from callboard.runtime.cli.bundling import Permit, everything
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.options import Order
from callboard.runtime.cli.ordering import ordered
from callboard.runtime.cli.problems import problem_text
from callboard.runtime.cli.texts import text_of
from callboard.runtime.cli.views import compact

STAND_INS: dict[Any, Any] = {"string": "text", "text": "text", "number": 0, "boolean": False, "string[]": []}
"""Values of each kind that an input can have."""


def validate_file(
    file: str, input_text: str | None, arguments_text: str | None = None, *, strict: bool = False, as_json: bool
) -> int:
    """Print the problems of a definition; return the exit code. ``strict`` makes an error of every warning."""
    source = text_of(Path(file))
    name, problems = examined(source, Order(file, input_text, arguments_text=arguments_text))
    if strict:
        problems = [msgspec.structs.replace(problem, severity="error") for problem in problems]
    valid = not errors(problems)
    if as_json:
        click.echo(compact(_report(file, source, name, problems)))
    else:
        for problem in problems:
            click.echo(problem_text(problem, file, source))
        click.echo(_verdict(file, name, problems))
    return exits.OK if valid else exits.FAILED


def _report(file: str, source: str, name: str, problems: Sequence[Problem]) -> Any:
    """Return the result of a check for machines: in the shape of the language's specification, if it has one."""
    report = authoring(name).report
    if report is not None:
        return report(source, problems)
    told = msgspec.to_builtins(problems)
    return {"file": file, "language": name, "valid": not errors(problems), "problems": told}


def examined(source: str, order: Order, permit: Permit = everything) -> tuple[str, list[Problem]]:
    """Return the language of a definition, empty if none is known, and what is wrong, or odd, with it and its start.

    :raises click.BadParameter: if the input or the arguments cannot be read
    """
    definition = parsed(source, order.file)
    if isinstance(definition, list):
        name = detect(source, order.file)
        return (name if isinstance(name, str) else ""), definition
    return definition.language, _beyond(definition, order, permit)


def _beyond(definition: Definition[Any], order: Order, permit: Permit) -> list[Problem]:
    """What is wrong, or odd, with a sound definition: files it names, skills beside it, and the input, if there is one.

    :raises click.BadParameter: if the input or the arguments cannot be read
    """
    try:
        start = ordered(order, permit)
    except Refused as refused:
        return [*definition.warnings, *refused.problems]
    admit, message = language(definition.language).admit, start.message
    plan = admit(definition, msgspec.convert(message, StartRun))
    if isinstance(plan, list) and order.input_text is None:
        # What is odd is only told of a start that fits: one with an input that stands for any.
        plan_of_any = admit(definition, msgspec.convert({**message, "input": _stand_in(definition)}, StartRun))
        plan = plan_of_any if isinstance(plan_of_any, Plan) else plan
    if isinstance(plan, Plan):
        given: dict[str, Any] = start.message.get("arguments", {})
        misfits = authoring(definition.language).misfits(definition.document, given) if order.arguments_text else []
        alone = authoring(definition.language).of_start
        return [*start.warnings, *(one for one in plan.warnings if one.code not in alone), *misfits]
    # Without an input, none can be missed.
    missed = [problem for problem in plan if order.input_text is not None or not problem.where.startswith("input")]
    return [*definition.warnings, *start.warnings, *missed]


def _stand_in(definition: Definition[Any]) -> dict[str, Any]:
    """Return an input that has what a definition requires, as far as its kinds say what that could be."""
    declared = about(definition).inputs
    chosen = {name: one["options"][0] for name, one in declared.items() if one.get("options")}
    return chosen | {name: STAND_INS[one["type"]] for name, one in declared.items() if one.get("type") in STAND_INS}


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
