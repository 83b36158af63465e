"""Child definitions: those that a flow starts as child runs, as far as its document names or contains them."""

import re
from collections.abc import Iterator
from posixpath import normpath

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages import registry
from callboard.languages.cel.template_strings import OPENING
from callboard.languages.flow.contracts.definition import DEFINITION
from callboard.languages.flow.inspection import Findings
from callboard.languages.kit import kits
from callboard.languages.plan import Definition
from callboard.languages.problems import Location, format_location
from callboard.lib.json_types import JSON

URI = DEFINITION.contract.uri

_FILE = re.compile(r"[^\n{]+\.(json|ya?ml|md)")
"""A text that looks like the name of a definition's file."""


def find_child_files(document: JSON, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield the files that calls in a document name as children, each with its location."""
    match document:
        case {"provider": str(uri), "with": {"file": str(file)}} if uri == URI and not file.startswith(OPENING):
            yield (*location, "with", "file"), file
        case dict():
            for name, value in document.items():
                yield from find_child_files(value, (*location, name))
        case list():
            for index, item in enumerate(document):
                yield from find_child_files(item, (*location, index))
        case _:
            pass


def find_missing_children(document: JSON, start: StartRun) -> list[Problem]:
    """Return a problem for each file that a document names as a child and a start does not contain."""
    named = {normpath(file): format_location(location) for location, file in find_child_files(document)}
    return [
        Problem(
            "CHILD_FILE_MISSING",
            f"{path} runs as a child, but the start does not contain it",
            where,
            expected="a start with it in `children`, such as `callboard` makes",
        )
        for path, where in named.items()
        if path not in start.children
    ]


def warn_of_child_definitions(findings: Findings) -> None:
    """Warn of children given as text that is not a valid definition, because their runs are refused."""
    for found in findings.arguments:
        given = found.value
        if found.contract is None or found.contract.uri != URI or not isinstance(given, dict):
            continue
        source, spoken = given.get("source"), given.get("language")
        if isinstance(source, str) and not source.startswith(OPENING) and (wrong := _first_problem(source, spoken)):
            message = f"is not a definition, so its run is refused when it is called: {wrong}"
            expected = f"file: {source.strip()}" if _FILE.fullmatch(source.strip()) else "the text of a definition"
            findings.warn("CHILD_SOURCE", message, (*found.location, "source"), expected)


def _first_problem(source: str, spoken: JSON) -> str:
    """Return the first problem of a definition's text; empty if it is valid, or its language is an expression."""
    name = spoken if spoken is not None else registry.detect_nearly(source)
    if isinstance(name, list):
        return name[0].message
    if not isinstance(name, str) or name not in kits():
        return ""
    found = registry.language(name).parse(source)
    return "" if isinstance(found, Definition) else found[0].message
