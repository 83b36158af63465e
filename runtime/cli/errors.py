"""Errors as people and machines see them: one clear message on stderr, or one object on stdout; never a traceback.

What is none of ours is a fault of this program and goes on as it is.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from nats.errors import Error as NatsError

from callboard.bus.errors import CallboardError, ConfigInvalid, LogUnavailable, OperatorError
from callboard.bus.events import Problem
from callboard.bus.log import Full, Unknown
from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Settings
from callboard.runtime.cli.problems import problem_text
from callboard.runtime.cli.views import where_options
from callboard.runtime.client import NoVerdict

_SAID = re.compile(r"`callboard [a-z]+")
"""A command inside a remedy."""


class NoServer(OperatorError):
    """No server runs over the data directory, and the command needs one that does."""

    def __init__(self, data_dir: str, remedy: str) -> None:
        super().__init__("server.none", "no server runs over the data directory", data_dir, remedy)


class Refused(CallboardError):
    """What somebody wanted was refused; ``problems`` has everything that is wrong, ``source`` the text it stands in."""

    def __init__(self, what: str, problems: Sequence[Problem], file: str = "", source: str = "") -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{what}.refused", f"the {what} was refused: {count}", file)
        self.problems = list(problems)
        self.source = source


def report(error: BaseException, *, as_json: bool, settings: Settings | None = None) -> int:
    """Show an error, unwrapped from any groups; return the exit code for it.

    What its remedy says to type leads to where ``settings`` led.

    :raises BaseException: the error, if it is no error of ours
    """
    found = list(leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in found):
        return exits.INTERRUPTED
    broken = next((leaf for leaf in found if isinstance(leaf, BrokenPipeError)), None)
    if broken is not None:
        raise broken
    told = known_error(error)
    if told is None:
        raise error
    if settings is not None:
        where = where_options(settings)
        told.remedy = _SAID.sub(lambda said: said[0] + where, told.remedy)
    if as_json:
        click.echo(msgspec.json.encode({"error": error_object(told)}).decode())
    else:
        click.echo(error_text(told), err=True)
    return exit_code(told)


def report_usage(error: click.UsageError) -> None:
    """Show words that no command understands, or files that are not there, as an error object."""
    where = error.ctx.command_path if error.ctx else "callboard"
    found = CallboardError("usage.invalid", error.format_message(), where, f"See `{where} --help`.")
    click.echo(msgspec.json.encode({"error": error_object(found)}).decode())


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
    if isinstance(leaf, Unknown | NatsError):
        text = str(leaf) or type(leaf).__name__
        return LogSilent(text)
    return None


class LogSilent(OperatorError):
    """The server did not answer, or not as expected."""

    def __init__(self, reason: str) -> None:
        super().__init__("log.no_answer", f"the log did not answer: {reason}", remedy="Check the NATS server.")


def exit_code(error: CallboardError) -> int:
    """Return the exit code for an error."""
    match error:
        case ConfigInvalid():
            return exits.USAGE
        case OperatorError() | NoVerdict() | LogUnavailable():
            return exits.UNUSABLE
        case _:
            return exits.FAILED


def error_object(error: CallboardError) -> dict[str, Any]:
    """Return an error as JSON has it: code, message, where, remedy, and problems where it has any."""
    problems: list[Problem] = getattr(error, "problems", [])
    found = {"code": error.code, "message": error.message, "where": error.where, "remedy": error.remedy}
    return {**found, "problems": msgspec.to_builtins(problems)} if problems else found


def error_text(error: CallboardError) -> str:
    """Return an error as people read it: what, where, what to do."""
    lines = [f"{click.style('error', fg='red', bold=True)} {error.code}: {error.message}"]
    if error.where:
        lines.append(f"  where: {error.where}")
    if isinstance(error, Refused):
        lines += [problem_text(problem, error.where, error.source) for problem in error.problems]
    elif isinstance(error, ConfigInvalid):
        lines += [problem_text(problem) for problem in error.problems]
    if error.remedy:
        lines.append(f"  {error.remedy}")
    return "\n".join(lines)
