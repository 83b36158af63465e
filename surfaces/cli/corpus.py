"""A conformance corpus of the flow language on disk: its cases and their scenarios.

The layout is that of the specification's ``tests/conformance``: a folder per case with ``case.json`` and
``definition.json``, and below ``scenarios`` a folder each with ``input.json``, ``expected-result.json`` and, where the
root flow takes any, ``arguments.json``.
"""

from pathlib import Path
from typing import Any

from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.service.operations.json_values import NotJson, json_of

TEMPORAL = "temporal"
"""The mark of a case that takes real time."""


class Scenario(Struct, frozen=True):
    """One execution of a case's definition and what must come of it."""

    name: str
    input: Any
    arguments: dict[str, Any]
    expected: dict[str, Any]


class Case(Struct, frozen=True):
    """A definition, what it asks of an implementation, and its scenarios. ``source`` is the definition's text."""

    name: str
    description: str
    profiles: tuple[str, ...]
    marks: tuple[str, ...]
    source: str
    scenarios: tuple[Scenario, ...]


class CorpusUnreadable(CallboardError):
    """A folder holds no cases, or one of its files is not as the layout has it."""

    def __init__(self, message: str, where: Path) -> None:
        remedy = "Name a folder like the specification's tests/conformance, or one case of it."
        super().__init__("corpus.unreadable", message, str(where), remedy)


def read_corpus(folder: Path) -> list[Case]:
    """Read all cases of a corpus, or the one that the folder itself is, in the order of their names.

    :raises CorpusUnreadable: if none exists, or one cannot be read
    """
    found = sorted([*folder.glob("case.json"), *folder.glob("*/case.json")])
    if not found:
        raise CorpusUnreadable("there is no case.json, here or one folder down", folder)
    return [_case(file.parent) for file in found]


def _case(folder: Path) -> Case:
    about = _object(folder / "case.json")
    scenarios = folder / "scenarios"
    # The file names the scenarios; a folder that it does not name would be one that no one runs.
    named = sorted({*about.get("scenarios", {}), *(path.name for path in scenarios.glob("*") if path.is_dir())})
    if not named:
        raise CorpusUnreadable("the case has no scenarios", folder)
    return Case(
        folder.absolute().name,
        str(about.get("description", "")),
        tuple(about.get("profiles", ())),
        tuple(about.get("marks", ())),
        _text(folder / "definition.json"),
        tuple(_scenario(scenarios / name) for name in named),
    )


def _scenario(folder: Path) -> Scenario:
    arguments = folder / "arguments.json"
    expected = _object(folder / "expected-result.json")
    if "type" not in expected or (expected["type"] == "success" and "value" not in expected):
        raise CorpusUnreadable("this is no Result: it has no type, or is a success without a value", folder)
    return Scenario(
        folder.name,
        _json(folder / "input.json"),
        _object(arguments) if arguments.exists() else {},
        expected,
    )


def _object(file: Path) -> dict[str, Any]:
    found = _json(file)
    if not isinstance(found, dict):
        raise CorpusUnreadable("this is no object", file)
    return found


def _json(file: Path) -> Any:
    try:
        return json_of(_text(file))
    except NotJson as error:
        raise CorpusUnreadable(f"this {error}", file) from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusUnreadable(f"the file cannot be read: {error}", file) from error
