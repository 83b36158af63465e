"""The result of a check as the specification's vectors have it: ``valid``, ``definition``, ``warnings``, ``errors``."""

from collections.abc import Sequence
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.playbook.document import to_vector_form
from callboard.languages.playbook.parse import parse


def report(source: str, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return a parse result. ``problems`` are all that were found: those of a start are errors too.

    Of the warnings it has those of the specification, and no advice.
    """
    parsed = parse(source)
    errors = [problem for problem in problems if problem.severity == "error"]
    return {
        "valid": parsed.playbook is not None and not errors,
        "definition": to_vector_form(parsed.playbook) if parsed.playbook is not None else None,
        "warnings": [_to_object(problem) for problem in parsed.warnings],
        "errors": [_to_object(problem) for problem in errors],
    }


def _to_object(problem: Problem) -> dict[str, Any]:
    place = f"{problem.where}: " if problem.where else ""
    line = {"line": problem.line} if problem.line else {}
    return {**line, "message": f"{place}{problem.message}"}
