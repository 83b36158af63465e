"""How tool failures are made: one constructor, and the limits that keep foreign texts in a failure short."""

from typing import Any

from callboard.actors.tools.tool import ToolFailed
from callboard.bus.effects import JSON, Failure

MESSAGE_CHARS_MAX = 2000
"""How much of a foreign error's text enters a failure, and so the log."""


def shortened(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Cut a text at a length, saying how much was left out."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}… ({len(text) - chars_max} more characters)"


def tool_failed(code: str, message: str, details: JSON = None, retryable: bool | None = None) -> ToolFailed:
    """Build the exception of a tool failure; the message is shortened."""
    return ToolFailed(Failure(code=code, message=shortened(message), details=details, retryable=retryable))


def described(error: BaseException) -> str:
    """Name an exception: its type and its words; groups of one are looked through."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        group: BaseExceptionGroup[Any] = error
        return "; ".join(described(member) for member in group.exceptions)
    try:
        words = str(error)
    except Exception as broken:  # a foreign __str__ may fail; its own failure must not hide the first one
        words = f"(its text cannot be read: {type(broken).__name__})"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
