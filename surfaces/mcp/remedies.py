"""Remedies: errors as shown to models, with remedies that name tools instead of commands."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.runtime.client.errors import error_object

REMEDIES: Mapping[str, str] = {
    "run.unknown": "list_runs lists the runs.",
    "client.no_verdict": "The message waits for a worker; get_run shows the run as soon as a worker has accepted it.",
    "definition.unknown": "list_workflows lists the registered definitions; or pass file or source.",
    "definition.version_unknown": "list_workflows lists the registered definitions in their current version.",
}
"""Remedies by error code that differ from those of the command line."""

OTHERWISE = "get_run shows the state of a run; list_runs and list_workflows list runs and definitions."
"""The remedy for errors whose own remedy names a command."""

_COMMAND = "`callboard "
_ASIDE = re.compile(r" \((?:--[a-z-]+|[^()]*`callboard [^()]*)\)")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)( [A-Z]+)?\b")
_MEMBERS = {"value": "input", "option": "options"}


def error_members(error: CallboardError) -> dict[str, Any]:
    """Return an error as an object: code, message, where, remedy and problems, without empty members."""
    found = error_object(error)
    remedy = REMEDIES.get(error.code, OTHERWISE if _COMMAND in error.remedy else error.remedy)
    problems: list[Problem] = getattr(error, "problems", [])
    worded = [msgspec.structs.replace(one, expected=_without_options(one.expected)) for one in problems]
    found |= {"remedy": remedy, "problems": msgspec.to_builtins(worded)}
    return {name: value for name, value in found.items() if value}


def in_members(text: str) -> str:
    """Return a text about a command's options with the names of a tool's arguments instead."""
    return _OPTION.sub(lambda found: _MEMBERS.get(found[1], found[1].replace("-", "_")), text)


def _without_options(expected: str | None) -> str | None:
    return None if expected is None else _ASIDE.sub("", expected)
