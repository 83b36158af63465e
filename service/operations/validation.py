"""Validation: everything that is wrong, or odd, with a definition's file, by itself or with the input of a start."""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.language import Definition, Plan
from callboard.languages.registry import about, authoring, detect_nearly, language, parsed
from callboard.service.operations.bundle_files import Permit, everything
from callboard.service.operations.errors import RequestRefused
from callboard.service.operations.start_messages import StartRequest, prepared

STAND_INS: dict[Any, Any] = {"string": "text", "text": "text", "number": 0, "boolean": False, "string[]": []}
"""Values of each kind that an input can have."""


def examined(source: str, request: StartRequest, permit: Permit = everything) -> tuple[str, list[Problem]]:
    """Return the language of a definition, empty if none is known, and what is wrong, or odd, with it and its start.

    :raises UsageInvalid: if the input or the arguments cannot be read
    """
    definition = parsed(source, request.file, request.language)
    if isinstance(definition, list):
        name = detect_nearly(source, request.file)
        return (name if isinstance(name, str) else ""), definition
    return definition.language, _beyond(definition, request, permit)


def _beyond(definition: Definition[Any], request: StartRequest, permit: Permit) -> list[Problem]:
    """What is wrong, or odd, with a sound definition: files it names, skills beside it, and the input, if there is one.

    :raises UsageInvalid: if the input or the arguments cannot be read
    """
    try:
        start = prepared(request, permit)
    except RequestRefused as refused:
        return [*definition.warnings, *refused.problems]
    admit, message = language(definition.language).admit, start.message
    plan = admit(definition, msgspec.convert(message, StartRun))
    if isinstance(plan, list) and request.input_text is None:
        # What is odd is only told of a start that fits: one with an input that stands for any.
        plan_of_any = admit(definition, msgspec.convert({**message, "input": _stand_in(definition)}, StartRun))
        plan = plan_of_any if isinstance(plan_of_any, Plan) else plan
    if isinstance(plan, Plan):
        given: dict[str, Any] = start.message.get("arguments", {})
        misfits = authoring(definition.language).misfits(definition.document, given) if request.arguments_text else []
        alone = authoring(definition.language).of_start
        return [*start.warnings, *(one for one in plan.warnings if one.code not in alone), *misfits]
    # Without an input, none can be missed.
    missed = [problem for problem in plan if request.input_text is not None or not problem.where.startswith("input")]
    return [*definition.warnings, *start.warnings, *missed]


def _stand_in(definition: Definition[Any]) -> dict[str, Any]:
    """Return an input that has what a definition requires, as far as its kinds say what that could be."""
    declared = about(definition).inputs
    chosen = {name: one["options"][0] for name, one in declared.items() if one.get("options")}
    return chosen | {name: STAND_INS[one["type"]] for name, one in declared.items() if one.get("type") in STAND_INS}


def errors(problems: Sequence[Problem]) -> list[Problem]:
    """Return those that keep a definition from being run."""
    return [problem for problem in problems if problem.severity == "error"]
