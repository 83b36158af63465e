"""Construction of tool failures: one constructor, and the limits that keep foreign texts in a failure short."""

from typing import Any

import msgspec
from pydantic import ValidationError

from callboard.actors.tools.tool import ToolFailed
from callboard.bus.effects import Failure
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_json, normalise_text

MESSAGE_CHARS_MAX = 2000
"""Maximum length of a foreign error's text in a failure, and so in the log."""

FAULTS_MAX = 5
"""Maximum number of places that a validation error names."""

DETAILS_CHARS_MAX = 16_000
"""Maximum length of a server's error data in the details of a failure."""

SAID_CHARS_MAX = 200
"""The last line that was printed is quoted in a failure's message if it is no longer than this."""


def shorten(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Cut a text at a length, saying how much was left out."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}… ({len(text) - chars_max} more characters)"


def with_printed(failure: Failure, printed: str) -> Failure:
    """Return a failure with the text that was printed before it in its details, if there is any."""
    if not printed or not isinstance(failure.details, dict | None):
        return failure
    details: dict[str, Any] = {**(failure.details or {}), "printed": printed}
    return msgspec.structs.replace(failure, details=details)


def last_words(printed: str) -> str:
    """Return the last printed line as an addition to a failure's message; empty if the line is long."""
    line = printed.rpartition("\n")[2].strip()
    return f"; it printed last: {line}" if line and len(line) <= SAID_CHARS_MAX else ""


def quote(value: JSON) -> str:
    """Return a JSON value as text for a message."""
    return shorten(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def bounded_details(value: JSON) -> JSON:
    """Return a JSON value for the details of a failure: only part of a value that is too large."""
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= DETAILS_CHARS_MAX else shorten(text, DETAILS_CHARS_MAX)


def tool_failed(
    code: str, message: str, details: JSON = None, retryable: bool | None = None, printed: str = ""
) -> ToolFailed:
    """Return the exception of a tool failure; the message is shortened, printed text becomes part of the details."""
    failure = Failure(code, shorten(normalise_text(message)), details=normalise_json(details), retryable=retryable)
    return ToolFailed(with_printed(failure, printed))


def exception_details(error: BaseException, function: object) -> dict[str, Any]:
    """Return the details of the failure for an exception that a function raised: its type, and how it is raised again
    in a workflow in Python, if the function is a step of one."""
    note: Any = getattr(function, "note_error", None)
    noted = note(error) if note is not None and isinstance(error, Exception) else None
    return {"type": type(error).__name__, **({"native": noted} if noted is not None else {})}


def describe_error(error: BaseException) -> str:
    """Return the type and text of an exception; a group of one exception is replaced by its member.

    Values that pydantic refuses are not quoted: they may come from a reply that was not meant for the run.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        group: BaseExceptionGroup[Any] = error
        return "; ".join(describe_error(member) for member in group.exceptions)
    if isinstance(error, ValidationError):
        faults = error.errors(include_input=False, include_url=False, include_context=False)
        words = "; ".join(f"{_place(fault['loc'])}{fault['type']}" for fault in faults[:FAULTS_MAX])
        return f"{type(error).__name__}: {words}"
    try:
        words = str(error)
    except Exception as broken:  # a foreign __str__ may fail; its failure must not hide the original one
        words = f"(its text cannot be read: {type(broken).__name__})"
    return normalise_text(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def _place(location: tuple[int | str, ...]) -> str:
    """Return the place of a fault, as the beginning of its text."""
    named = ".".join(str(step) for step in location if isinstance(step, int) or step.isidentifier())
    return f"{shorten(named, SAID_CHARS_MAX)}: " if named else ""
