"""Errors of operations, and the conversion of any error for callers."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from callboard.bus.errors import CallboardError, OperatorError
from callboard.bus.events import Problem
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.subjects import NameTooLong


class NoServer(OperatorError):
    """No server runs for the data directory, and the command needs one."""

    def __init__(self, data_dir: str, remedy: str) -> None:
        super().__init__("server.none", "no server runs for the data directory", data_dir, remedy)


class RequestRefused(CallboardError):
    """A request was refused. ``problems`` has all its problems, ``source`` the text to which they refer."""

    def __init__(self, what: str, problems: Sequence[Problem], file: str = "", source: str = "") -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{what}.refused", f"the {what} was refused: {count}", file)
        self.problems = list(problems)
        self.source = source

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {problem}" for problem in self.problems)])


class UsageInvalid(CallboardError):
    """A value that was given to an operation is invalid; ``where`` names the option or member."""

    def __init__(self, message: str, where: str = "", remedy: str = "") -> None:
        super().__init__("usage.invalid", message, where, remedy)


def known_error(error: BaseException) -> CallboardError | None:
    """Return the first Callboard error in an exception or group of exceptions; None if it contains no such error."""
    return next((known for leaf in leaves(error) if (known := _convert(leaf))), None)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, including those of nested groups. Any other exception yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def _convert(leaf: BaseException) -> CallboardError | None:
    if isinstance(leaf, CallboardError):
        return leaf
    if isinstance(leaf, Full):
        return leaf.store_full_error()
    if isinstance(leaf, NameTooLong):
        return CallboardError("subject.unusable", str(leaf), remedy="Use a shorter name.")
    # Commands that need no server do not import this.
    from nats.errors import Error as NatsError

    if isinstance(leaf, NoAnswer | NatsError):
        text = str(leaf) or type(leaf).__name__
        return LogSilent(text)
    return None


class LogSilent(OperatorError):
    """The server did not answer, or gave an unexpected answer."""

    def __init__(self, reason: str) -> None:
        super().__init__("log.no_answer", f"the log did not answer: {reason}", remedy="Check the NATS server.")


def error_object(error: CallboardError) -> dict[str, Any]:
    """Return an error as a JSON object: code, message, where, remedy, and problems if it has any."""
    problems: list[Problem] = getattr(error, "problems", [])
    found = {"code": error.code, "message": error.message, "where": error.where, "remedy": error.remedy}
    return {**found, "problems": msgspec.to_builtins(problems)} if problems else found
