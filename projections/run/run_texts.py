"""The searchable texts of a run: those of its input, its output and its error, taken from its events."""

from typing import Any

from msgspec import Struct

from callboard.bus.events import Event, RunAccepted, RunEnd, RunFailed
from callboard.lib.json_decoder import decode_json

TEXT_CHARS_MAX = 20_000
"""The maximum number of characters of an input, an output or an error that are searched."""


class EventTexts(Struct, frozen=True):
    """The texts that an event adds. A member is None if the event does not set it."""

    input: str | None = None
    output: str | None = None
    error: str | None = None


class _Start(Struct, frozen=True):
    input: Any = None
    arguments: Any = None


class _Accepted(Struct, frozen=True):
    start: _Start = _Start()


class _Error(Struct, frozen=True):
    code: str = ""
    message: str = ""
    details: Any = None


class _Ended(Struct, frozen=True):
    output: Any = None
    error: _Error | None = None


def texts(event: Event) -> EventTexts | None:
    """Return the texts that an event adds to a run's; None if it adds none. Its large values must be resolved."""
    match event.type:
        case RunAccepted.type:
            start = decode_json(event.payload, type=_Accepted).start
            return EventTexts(input=_flat([start.input, start.arguments]))
        case RunEnd.type | RunFailed.type:
            ended = decode_json(event.payload, type=_Ended)
            error = None if ended.error is None else _flat([ended.error.code, ended.error.message, ended.error.details])
            return EventTexts(output=_flat(ended.output) if event.type == RunEnd.type else None, error=error)
        case _:
            return None


def _flat(value: Any) -> str:
    """Return the texts and numbers in a value, in their order, up to `TEXT_CHARS_MAX`."""
    found: list[str] = []
    size = 0
    left: list[Any] = [value]
    while left and size < TEXT_CHARS_MAX:
        one = left.pop()
        if isinstance(one, dict):
            left.extend(reversed(one.values()))
        elif isinstance(one, list):
            left.extend(reversed(one))
        elif isinstance(one, str) or (isinstance(one, int | float) and not isinstance(one, bool)):
            found.append(str(one)[: TEXT_CHARS_MAX - size])
            size += len(found[-1])
    return "\n".join(found)
