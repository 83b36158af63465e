"""How tool failures are made: one constructor, and the limits that keep foreign texts in a failure short."""

from typing import Any

import msgspec
from pydantic_core import ValidationError

from callboard.actors.tools.tool import ToolFailed
from callboard.bus.effects import JSON, Failure
from callboard.bus.text import normalise_json, normalise_text

MESSAGE_CHARS_MAX = 2000
"""How much of a foreign error's text enters a failure, and so the log."""

LINE_CHARS_MAX = 1_000
"""A longer line of what was printed, or of a traceback, is left out: cut, it could show a part of a secret."""

FAULTS_MAX = 5
"""A validation error names this many places."""

DETAILS_CHARS_MAX = 16_000
"""How much of what a server says of an error enters the details of a failure."""

SAID_CHARS_MAX = 200
"""The last line that was printed is quoted in a failure's message if it is no longer than this."""


def shortened(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Cut a text at a length, saying how much was left out."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}… ({len(text) - chars_max} more characters)"


def last_lines(text: str, chars_max: int) -> str:
    """Return the last lines of a text that have room; an ellipsis in a line of its own stands for those before."""
    kept: list[str] = []
    room = chars_max
    for line in reversed(text.rstrip().split("\n")):
        line = line if len(line) <= LINE_CHARS_MAX else f"… (a line of {len(line)} characters)"
        room -= len(line) + 1
        if room < 0:
            kept.append("…")
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def with_printed(failure: Failure, printed: str) -> Failure:
    """Add to a failure's details what was printed before it, if anything was."""
    if not printed or not isinstance(failure.details, dict | None):
        return failure
    details: dict[str, Any] = {**(failure.details or {}), "printed": printed}
    return msgspec.structs.replace(failure, details=details)


def last_words(printed: str) -> str:
    """What a failure's message adds of what was printed: its last line, if that is short."""
    line = printed.rpartition("\n")[2].strip()
    return f"; it printed last: {line}" if line and len(line) <= SAID_CHARS_MAX else ""


def quoted(value: JSON) -> str:
    """Write a JSON value for a message."""
    return shortened(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def bounded_details(value: JSON) -> JSON:
    """Return a JSON value for the details of a failure: one that is too large is quoted in part."""
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= DETAILS_CHARS_MAX else shortened(text, DETAILS_CHARS_MAX)


def tool_failed(
    code: str, message: str, details: JSON = None, retryable: bool | None = None, printed: str = ""
) -> ToolFailed:
    """Build the exception of a tool failure; the message is shortened, what was printed becomes part of the details."""
    failure = Failure(code, shortened(normalise_text(message)), details=normalise_json(details), retryable=retryable)
    return ToolFailed(with_printed(failure, printed))


def described(error: BaseException) -> str:
    """Name an exception: its type and its words; groups of one are looked through.

    What pydantic refuses is not quoted: it may be a reply that was not meant for the run.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        group: BaseExceptionGroup[Any] = error
        return "; ".join(described(member) for member in group.exceptions)
    if isinstance(error, ValidationError):
        faults = error.errors(include_input=False, include_url=False, include_context=False)
        words = "; ".join(f"{_place(fault['loc'])}{fault['type']}" for fault in faults[:FAULTS_MAX])
        return f"{type(error).__name__}: {words}"
    try:
        words = str(error)
    except Exception as broken:  # a foreign __str__ may fail; its own failure must not hide the first one
        words = f"(its text cannot be read: {type(broken).__name__})"
    return normalise_text(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def _place(location: tuple[int | str, ...]) -> str:
    """Return where a fault is, as the beginning of its text."""
    named = ".".join(str(step) for step in location if isinstance(step, int) or step.isidentifier())
    return f"{shortened(named, SAID_CHARS_MAX)}: " if named else ""
