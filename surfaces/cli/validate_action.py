"""Validating a definition's file, by itself or with the input of a start."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from callboard.bus.events import Problem
from callboard.languages.registry import authoring
from callboard.service.operations.files import text_of
from callboard.service.operations.results import compact
from callboard.service.operations.start_request import StartRequest
from callboard.service.operations.validation import errors, examine_definition
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import problem_text, say, style


def validate_file(
    file: str, input_text: str | None, arguments_text: str | None = None, *, strict: bool = False, as_json: bool
) -> int:
    """Print the problems of a definition; return the exit code. ``strict`` makes an error of every warning."""
    source = text_of(Path(file))
    name, problems = examine_definition(source, StartRequest(file, input_text, arguments_text=arguments_text))
    if strict:
        problems = [msgspec.structs.replace(problem, severity="error") for problem in problems]
    valid = not errors(problems)
    if as_json:
        say(compact(_report(file, source, name, problems)))
    else:
        for problem in problems:
            say(problem_text(problem, file, source))
        say(_verdict(file, name, problems))
    return exits.OK if valid else exits.FAILED


def _report(file: str, source: str, name: str, problems: Sequence[Problem]) -> Any:
    """Return the result of a check for machines: in the shape of the language's specification, if it has one."""
    report = authoring(name).report
    if report is not None:
        return report(source, problems)
    told = msgspec.to_builtins(problems)
    return {"file": file, "language": name, "valid": not errors(problems), "problems": told}


def _verdict(file: str, name: str, problems: Sequence[Problem]) -> str:
    wrong = len(errors(problems))
    odd = len(problems) - wrong
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}" for count, word in ((wrong, "error"), (odd, "warning")) if count
    ]
    mark = style("✗", fg="red") if wrong else style("✓", fg="green")
    return f"{mark} {file}{f' ({name})' if name else ''}: {', '.join(counts) or 'valid'}"
