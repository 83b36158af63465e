"""Children: the definitions that a flow has run as their own runs, as far as it writes them out."""

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
from callboard.languages.language import Definition
from callboard.languages.problems import Location, format_location
from callboard.lib.json_types import JSON

URI = DEFINITION.contract.uri

_FILE = re.compile(r"[^\n{]+\.(json|ya?ml|md)")
"""What looks like the name of a file with a definition."""


def child_files(document: JSON, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield the files that calls in a document name as children, each with where it stands."""
    match document:
        case {"provider": str(uri), "with": {"file": str(file)}} if uri == URI and not file.startswith(OPENING):
            yield (*location, "with", "file"), file
        case dict():
            for name, value in document.items():
                yield from child_files(value, (*location, name))
        case list():
            for index, item in enumerate(document):
                yield from child_files(item, (*location, index))
        case _:
            pass


def missing_children(document: JSON, start: StartRun) -> list[Problem]:
    """Return the files that a document names as children and a start does not bring."""
    named = {normpath(file): format_location(location) for location, file in child_files(document)}
    return [
        Problem(
            "CHILD_FILE_MISSING",
            f"{path} is to be run as a child, and has not come with the start",
            where,
            expected="a start made by `callboard`, which brings it, or one with `children`",
        )
        for path, where in named.items()
        if path not in start.children
    ]


def child_warnings(findings: Findings) -> None:
    """Warn of children given as text that is not a sound definition: their runs are refused."""
    for found in findings.arguments:
        given = found.value
        if found.contract is None or found.contract.uri != URI or not isinstance(given, dict):
            continue
        source, spoken = given.get("source"), given.get("language")
        if isinstance(source, str) and not source.startswith(OPENING) and (wrong := _wrong_with(source, spoken)):
            message = f"is no definition, so that its run is refused where it is called: {wrong}"
            expected = f"file: {source.strip()}" if _FILE.fullmatch(source.strip()) else "the text of a definition"
            findings.warn("CHILD_SOURCE", message, (*found.location, "source"), expected)


def _wrong_with(source: str, spoken: JSON) -> str:
    """Say what is wrong with the text of a definition; nothing if it is sound, or its language is not written out."""
    name = spoken if spoken is not None else registry.detect_nearly(source)
    if isinstance(name, list):
        return name[0].message
    if not isinstance(name, str) or name not in kits():
        return ""
    found = registry.language(name).parse(source)
    return "" if isinstance(found, Definition) else found[0].message
