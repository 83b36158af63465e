"""Remedies: errors as a model gets to see them, with what to do in terms of the tools and not of the command line."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.service.operations.errors import error_object

REMEDIES: Mapping[str, str] = {
    "run.unknown": "list_runs lists the runs.",
    "client.no_verdict": "The message waits for a worker; get_run shows the run as soon as one has taken it.",
    "definition.unknown": "list_workflows lists what is registered; or pass file or source.",
    "definition.version_unknown": "list_workflows lists what is registered, in the version that is in force.",
}
"""By the error's code, where the command line has other words."""

OTHERWISE = "get_run says how a run stands; list_runs and list_workflows say what there is."
"""In place of a remedy that names a command."""

_COMMAND = "`callboard "
_ASIDE = re.compile(r" \((?:--[a-z-]+|[^()]*`callboard [^()]*)\)")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)( [A-Z]+)?\b")
_MEMBERS = {"value": "input", "option": "options"}


def told(error: CallboardError) -> dict[str, Any]:
    """Return an error as an object: code, message, where, remedy and problems, as far as it has them."""
    found = error_object(error)
    remedy = REMEDIES.get(error.code, OTHERWISE if _COMMAND in error.remedy else error.remedy)
    problems: list[Problem] = getattr(error, "problems", [])
    worded = [msgspec.structs.replace(one, expected=_without_options(one.expected)) for one in problems]
    found |= {"remedy": remedy, "problems": msgspec.to_builtins(worded)}
    return {name: value for name, value in found.items() if value}


def in_members(text: str) -> str:
    """A text about a command's options, in which they are members of a tool's arguments."""
    return _OPTION.sub(lambda found: _MEMBERS.get(found[1], found[1].replace("-", "_")), text)


def _without_options(expected: str | None) -> str | None:
    return None if expected is None else _ASIDE.sub("", expected)
