"""Ids of tool calls: unique in each answer, and fit for every provider. Pure.

Each provider names its calls in its own way, some do not name them at all, and some use a name again in every turn. The
log keeps the provider's name where it gave one. A request replaces names that another provider would refuse, in the
call and in its answer.
"""

import re
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from callboard.bus.effects import Message, Part, ToolOutput, ToolUse

UNNAMED = "unnamed-"
"""The prefix of ids given by Callboard, because the provider gave none or gave one twice."""

_FIT = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Ids that every API takes."""


def fresh_ids(ids: Sequence[str], mark: str) -> list[str]:
    """Return unique ids for the calls of one answer; ``mark`` is part of new ids, and differs in each turn."""
    fresh: list[str] = []
    for number, id in enumerate(ids):
        fresh.append(id if id and id not in fresh else f"{UNNAMED}{mark}{number}")
    return fresh


def with_fit_ids(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation whose calls have unique ids that every provider accepts, with the same ids in answers."""
    taken: set[str] = set()
    open_calls: dict[str, deque[str]] = {}
    told: list[Message] = []
    for message in messages:
        calls = [part.id for part in message.parts if isinstance(part, ToolUse)]
        if calls:
            open_calls = {}
        fit = deque(_fit(id, taken) for id in calls)
        for id, own in zip(calls, fit, strict=True):
            open_calls.setdefault(id, deque()).append(own)
        told.append(replace(message, parts=[_rename_ids(part, fit, open_calls) for part in message.parts]))
    return told


def _fit(id: str, taken: set[str]) -> str:
    fit, number = id, len(taken)
    while not _FIT.fullmatch(fit) or fit in taken:
        # Nine letters and digits: the form that the strictest provider requires.
        number += 1
        fit = f"{UNNAMED}{number}" if id.startswith(UNNAMED) else f"call{number:05d}"
    taken.add(fit)
    return fit


def _rename_ids(part: Part, fit: deque[str], open_calls: dict[str, deque[str]]) -> Part:
    match part:
        case ToolUse():
            return replace(part, id=fit.popleft())
        case ToolOutput() if waiting := open_calls.get(part.id):
            return replace(part, id=waiting.popleft() if len(waiting) > 1 else waiting[0])
        case _:
            return part
