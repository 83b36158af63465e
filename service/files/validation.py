"""Collects the errors and warnings of a definition's file, alone or with the input of a start."""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.plan import Definition, Plan
from callboard.languages.registry import about, authoring, detect_nearly, language, parse_definition
from callboard.runtime.client.errors import RequestRefused
from callboard.service.files.bundle_files import Permit, permit_all
from callboard.service.files.start_messages import StartRequest, prepare

STAND_INS: dict[Any, Any] = {"string": "text", "text": "text", "number": 0, "boolean": False, "string[]": []}
"""A sample value for each type that an input can have."""


def examine_definition(source: str, request: StartRequest, permit: Permit = permit_all) -> tuple[str, list[Problem]]:
    """Return the language of a definition, empty if it is not known, and the problems of the definition and its start.

    :raises UsageInvalid: if the input or the arguments cannot be read
    """
    definition = parse_definition(source, request.file, request.language)
    if isinstance(definition, list):
        name = detect_nearly(source, request.file)
        return (name if isinstance(name, str) else ""), definition
    return definition.language, _examine_start(definition, request, permit)


def _examine_start(definition: Definition[Any], request: StartRequest, permit: Permit) -> list[Problem]:
    """Return the problems of a valid definition: of the files it names, the skills next to it, and the given input.

    :raises UsageInvalid: if the input or the arguments cannot be read
    """
    try:
        start = prepare(request, permit)
    except RequestRefused as refused:
        return [*definition.warnings, *refused.problems]
    admit, message = language(definition.language).admit, start.message
    plan = admit(definition, msgspec.convert(message, StartRun))
    if isinstance(plan, list) and request.input_text is None:
        # Warnings are only found for a valid start, so try again with a sample input.
        plan_of_any = admit(definition, msgspec.convert({**message, "input": _stand_in(definition)}, StartRun))
        plan = plan_of_any if isinstance(plan_of_any, Plan) else plan
    if isinstance(plan, Plan):
        given: dict[str, Any] = start.message.get("arguments", {})
        misfits = authoring(definition.language).misfits(definition.document, given) if request.arguments_text else []
        alone = authoring(definition.language).of_start
        return [
            *definition.objections,
            *plan.objections,
            *start.warnings,
            *(one for one in plan.warnings if one.code not in alone),
            *misfits,
        ]
    # If no input is given, problems with the input do not count.
    missed = [problem for problem in plan if request.input_text is not None or not problem.where.startswith("input")]
    return [*definition.warnings, *start.warnings, *missed]


def _stand_in(definition: Definition[Any]) -> dict[str, Any]:
    """Return a sample input with a value for each declared input whose type or options are known."""
    declared = about(definition).inputs
    chosen = {name: one["options"][0] for name, one in declared.items() if one.get("options")}
    return chosen | {name: STAND_INS[one["type"]] for name, one in declared.items() if one.get("type") in STAND_INS}


def errors(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems that prevent a definition from being run."""
    return [problem for problem in problems if problem.severity == "error"]
