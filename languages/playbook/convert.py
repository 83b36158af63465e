"""The two forms of a playbook, markdown and the JSON of the specification's vectors: conversion and parse results."""

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import ValidationError

from callboard.bus.events import Problem
from callboard.languages.json_text import read_json
from callboard.languages.playbook.document import Playbook, to_vector_form
from callboard.languages.playbook.markdown_writer import write_markdown
from callboard.languages.playbook.parse import parse
from callboard.languages.problems import Location, Tree, from_pydantic, kind_of


def to_json(source: str) -> str | list[Problem]:
    """Return a markdown playbook as JSON, without line numbers."""
    parsed = parse(source)
    if parsed.playbook is None:
        return parsed.problems
    return (
        msgspec.json.format(msgspec.json.encode(to_vector_form(parsed.playbook, lines=False)), indent=2).decode() + "\n"
    )


def to_markdown(source: str) -> str | list[Problem]:
    """Return a playbook in JSON, alone or as the ``definition`` of a parse result, as markdown.

    A playbook that markdown cannot express is refused, such as one with a title of two lines.
    """
    tree = read_json(source)
    if not isinstance(tree, Tree):
        return tree
    value: Any = tree.value
    inside: Location = ("definition",) if isinstance(value, dict) and isinstance(value.get("definition"), dict) else ()
    bare = value["definition"] if inside else value
    if not isinstance(bare, dict):
        return [tree.problem("SCHEMA", f"expected a playbook object, got {kind_of(bare)}", expected="title and steps")]
    try:
        playbook = Playbook.model_validate(_drop_nulls(bare))
    except ValidationError as error:
        return from_pydantic(error, Playbook, tree, inside)
    text = write_markdown(playbook)
    parsed = parse(text)
    if parsed.playbook is None:
        return parsed.problems
    lost = _difference(to_vector_form(playbook, lines=False), to_vector_form(parsed.playbook, lines=False), ())
    if lost is not None:
        expected = "what the patterns of the specification can hold at this place"
        return [tree.problem("NOT_MARKDOWN", "cannot be written as markdown", (*inside, *lost), expected=expected)]
    return text


def _drop_nulls(value: Any) -> Any:
    """Leave out members that are null or empty, since these mean the same as absent ones."""
    match value:
        case dict():
            return {name: _drop_nulls(one) for name, one in value.items() if one is not None and one != ""}
        case list():
            return [_drop_nulls(one) for one in value]
        case _:
            return value


def _difference(one: Any, other: Any, at: Location) -> Location | None:
    """Return the place where two values first differ; None if they are equal."""
    match one, other:
        case dict(), dict():
            for name in [*one, *(name for name in other if name not in one)]:
                if name not in one or name not in other:
                    return (*at, name)
                if (found := _difference(one[name], other[name], (*at, name))) is not None:
                    return found
            return None
        case list(), list() if len(one) == len(other):
            places = (_difference(a, b, (*at, index)) for index, (a, b) in enumerate(zip(one, other, strict=True)))
            return next((found for found in places if found is not None), None)
        case _:
            return None if one == other else at


# -- parse results -----------------------------------------------------------------------------------------------------


def report(source: str, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return a parse result: ``valid``, ``definition``, ``warnings``, ``errors``.

    ``problems`` are all that were found, including those of a start. The warnings are those of the specification only.
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
