"""Files of code at commands that read definitions: ``callboard validate`` and ``callboard schema`` of FILE.py:NAME."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from callboard.lib.text_bytes import NotText, read_text
from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import print_answer, problem_text, style, verdict_text

if TYPE_CHECKING:
    from callboard.bus.errors import CallboardError
    from callboard.bus.events import Problem
    from callboard.languages.hosting import HostedObject

Part = Literal["input", "output"]
"""What a schema describes."""


def validate_code(file: str, name: str, request: StartRequest, *, strict: bool, as_json: bool) -> int:
    """Import a file of code, and print its workflow of this name, or all of them, with their schemas, or what is wrong
    with them; return the exit code.

    ``request`` has the input to check, if one is given. ``strict`` treats every warning as an error.

    :raises UsageInvalid: if the input or the arguments cannot be read
    """
    import msgspec

    from callboard.bus.errors import CallboardError
    from callboard.languages.registry import code_language
    from callboard.runtime.hosting.code_loader import load_named
    from callboard.service.files.validation import errors, examine_definition

    try:
        bundle, entries = load_named(file, name)
    except CallboardError as error:
        _say_unloaded(_problem_of(error, file), file, as_json=as_json)
        return exits.FAILED
    problems: dict[str, list[Problem]] = {}
    for entry in entries:
        named = replace(request, file=f"{file}:{entry.name}")
        found = examine_definition(bundle.definitions[entry.name], named)[1]
        problems[entry.name] = [msgspec.structs.replace(one, severity="error") if strict else one for one in found]
    everything = [problem for found in problems.values() for problem in found]
    lines: list[str] = []
    for entry in entries:
        lines += [problem_text(problem, file) for problem in problems[entry.name]]
        lines.append(verdict_text(f"{file}:{entry.name}", code_language(), problems[entry.name]))
        lines += _workflow_lines(entry)
    told = {**_report(file, everything), "code": bundle.digest, "workflows": list(map(_to_object, entries))}
    print_answer(told, lines, as_json=as_json)
    return exits.FAILED if errors(everything) else exits.OK


def _report(file: str, problems: "list[Problem]") -> dict[str, Any]:
    import msgspec

    from callboard.languages.registry import code_language
    from callboard.service.files.validation import errors

    told = msgspec.to_builtins(problems)
    return {"file": file, "language": code_language(), "valid": not errors(problems), "problems": told}


def _say_unloaded(problem: "Problem", file: str, *, as_json: bool) -> None:
    """Print why a file has no workflows that can be checked, with the line of the file in which the problem is."""
    import msgspec

    from callboard.languages.registry import code_language

    place = problem.where or file
    try:
        source = read_text(Path(place))
    except (OSError, NotText):
        source = ""  # the problem is shown without the line
    lines = [
        problem_text(msgspec.structs.replace(problem, where=""), place, source),
        verdict_text(file, code_language(), [problem]),
    ]
    print_answer({**_report(file, [problem]), "workflows": []}, lines, as_json=as_json)


def _problem_of(error: "CallboardError", file: str) -> "Problem":
    """Return an error of loading a file as a problem. ``where`` is another file than the one that was named."""
    from callboard.bus.events import Problem
    from callboard.runtime.hosting.code_loader import ImportFailed

    if not isinstance(error, ImportFailed):
        return Problem(error.code, f"{error.message}. {error.remedy}".strip())
    elsewhere = Path(error.file).resolve() != Path(file).resolve()
    return Problem(error.code, error.message, os.path.relpath(error.file) if elsewhere else "", error.line)


def _to_object(entry: "HostedObject") -> dict[str, Any]:
    told = {"name": entry.name, "entry": entry.entry, "description": entry.description}
    return {**told, "input": entry.input_schema, "output": entry.output_schema}


def _workflow_lines(entry: "HostedObject") -> Iterator[str]:
    from callboard.service.operations.results import compact

    if title := entry.description.partition("\n")[0]:
        yield f"  {title}"
    for part, schema in (("input", entry.input_schema), ("output", entry.output_schema)):
        yield f"  {style(part.ljust(6), dim=True)}  {compact(schema) if schema else 'anything'}"


def schema_of(file: str, name: str, part: Part) -> dict[str, Any]:
    """Return the JSON Schema of a workflow's input or output.

    :raises CallboardError: as `load_named`; ``python.no_workflow`` too if no name is given and it has several
    """
    from callboard.runtime.hosting.code_loader import load_entry

    entry = load_entry(file, name)[1]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **(entry.input_schema if part == "input" else entry.output_schema),
    }
