"""Paths into data, for evaluators and preconditions: ``prUrl``, ``any:checks[*].conclusion``.

Their grammar and resolution follow the specification (*Nodes: Path grammar*). They differ from the paths of nodes in a
run's log.
"""

import re
from typing import Literal

from msgspec import Struct

from callboard.languages.problems import kind_of
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

_SEGMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[\*\])?")
_PREFIX = re.compile(r"([a-z]+):")


class PathSegment(Struct, frozen=True):
    name: str
    wildcard: bool


class DataPath(Struct, frozen=True):
    """A parsed path. ``mode`` says whether a check must hold for all values or for any of them."""

    mode: Literal["all", "any"]
    segments: tuple[PathSegment, ...]

    @property
    def wild(self) -> bool:
        return any(segment.wildcard for segment in self.segments)


class Values(Struct, frozen=True):
    """The values at a path: exactly one, unless the path has a wildcard."""

    mode: Literal["all", "any"]
    values: list[JSON]


class Unresolved(Struct, frozen=True):
    """The reason why a path has no value or is invalid."""

    reason: str


def parse_path(text: str) -> DataPath | Unresolved:
    """Parse a path."""
    mode: Literal["all", "any"] = "all"
    if prefix := _PREFIX.match(text):
        if prefix[1] not in ("all", "any"):
            return Unresolved(f"unknown prefix '{prefix[1]}'")
        mode = "any" if prefix[1] == "any" else "all"
        text = text[prefix.end() :]
    segments: list[PathSegment] = []
    for part in text.split("."):
        match = _SEGMENT.fullmatch(part)
        if match is None:
            return Unresolved(f"malformed segment '{part}'")
        segments.append(PathSegment(match[1], match[2] is not None))
    return DataPath(mode, tuple(segments))


def resolve_path(data: JSON, text: str, steps: Steps) -> Values | Unresolved:
    """Return the values at a path.

    :raises TooManySteps: if it takes more steps than ``steps`` has left
    """
    path = parse_path(text)
    if isinstance(path, Unresolved):
        return path
    current: list[JSON] = [data]
    for segment in path.segments:
        reached: list[JSON] = []
        steps.take(len(current))
        for value in current:
            if value is None:
                return Unresolved(f"null encountered before segment '{segment.name}'")
            if not isinstance(value, dict):
                return Unresolved(f"expected object before segment '{segment.name}', got {_bare(value)}")
            if segment.name not in value:
                return Unresolved(f"missing segment '{segment.name}'")
            inner = value[segment.name]
            if not segment.wildcard:
                reached.append(inner)
            elif isinstance(inner, list):
                reached += inner
            else:
                return Unresolved(f"expected array at '{segment.name}', got {_bare(inner)}")
        current = reached
    return Values(path.mode, current)


def _bare(value: JSON) -> str:
    return kind_of(value).split(" ")[-1]
