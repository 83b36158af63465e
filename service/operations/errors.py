"""Errors of operations: why what was asked for cannot be, and any error as callers get to see it."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from nats.errors import Error as NatsError

from callboard.bus.errors import CallboardError, OperatorError
from callboard.bus.events import Problem
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.subjects import NameTooLong


class NoServer(OperatorError):
    """No server runs over the data directory, and the command needs one that does."""

    def __init__(self, data_dir: str, remedy: str) -> None:
        super().__init__("server.none", "no server runs over the data directory", data_dir, remedy)


class RequestRefused(CallboardError):
    """What somebody wanted was refused; ``problems`` has everything that is wrong, ``source`` the text it stands in."""

    def __init__(self, what: str, problems: Sequence[Problem], file: str = "", source: str = "") -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{what}.refused", f"the {what} was refused: {count}", file)
        self.problems = list(problems)
        self.source = source

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {problem}" for problem in self.problems)])


class UsageInvalid(CallboardError):
    """What was given with an operation cannot be used; ``where`` names the option or member."""

    def __init__(self, message: str, where: str = "", remedy: str = "") -> None:
        super().__init__("usage.invalid", message, where, remedy)


def known_error(error: BaseException) -> CallboardError | None:
    """Return the first error of ours in an exception or a group of them; None if there is none."""
    return next((known for leaf in leaves(error) if (known := _known(leaf))), None)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield what a group of exceptions holds, groups in it opened too; an exception that is none yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def _known(leaf: BaseException) -> CallboardError | None:
    if isinstance(leaf, CallboardError):
        return leaf
    if isinstance(leaf, Full):
        return leaf.told()
    if isinstance(leaf, NameTooLong):
        return CallboardError("subject.unusable", str(leaf), remedy="Nothing is called so: give a shorter name.")
    if isinstance(leaf, NoAnswer | NatsError):
        text = str(leaf) or type(leaf).__name__
        return LogSilent(text)
    return None


class LogSilent(OperatorError):
    """The server did not answer, or not as expected."""

    def __init__(self, reason: str) -> None:
        super().__init__("log.no_answer", f"the log did not answer: {reason}", remedy="Check the NATS server.")


def error_object(error: CallboardError) -> dict[str, Any]:
    """Return an error as JSON has it: code, message, where, remedy, and problems where it has any."""
    problems: list[Problem] = getattr(error, "problems", [])
    found = {"code": error.code, "message": error.message, "where": error.where, "remedy": error.remedy}
    return {**found, "problems": msgspec.to_builtins(problems)} if problems else found
