"""Errors as people and machines see them: one message on stderr, or one object on stdout; never a traceback.

Exceptions that are not `CallboardError` are bugs of this program and are raised unchanged.
"""

import re

import click
import msgspec

from callboard.bus.errors import CallboardError, ConfigInvalid, LogUnavailable, OperatorError
from callboard.projections.lists.where import WhereInvalid
from callboard.runtime.client.client import NoVerdict
from callboard.runtime.client.errors import RequestRefused, UsageInvalid, error_object, known_error, leaves
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import problem_text, say, style
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.streams import StdoutLost
from callboard.surfaces.cli.views import where_options

_SAID = re.compile(r"`callboard (?:schedule )?[a-z]+")
"""A command in a remedy."""


class StdoutUnheard(CallboardError):
    """Stdout was lost, so the result of the command was not written."""

    def __init__(self, lost: StdoutLost) -> None:
        remedy = "The command may have done its work: check before you repeat it with another stdout."
        super().__init__("stdout.lost", f"stdout cannot be written: {lost.strerror}", "stdout", remedy)


def report(error: BaseException, *, as_json: bool, settings: Settings | None = None) -> int:
    """Show an error, unwrapped from any groups; return the exit code for it.

    Commands in its remedy get the options that locate the server of ``settings``.

    :raises BaseException: the error, if it is not a `CallboardError`
    """
    found = list(leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in found):
        return exits.INTERRUPTED
    broken = next((leaf for leaf in found if isinstance(leaf, BrokenPipeError)), None)
    if broken is not None:
        raise broken
    lost = next((leaf for leaf in found if isinstance(leaf, StdoutLost)), None)
    told = StdoutUnheard(lost) if lost is not None else known_error(error)
    if told is None:
        raise error
    if settings is not None:
        where = where_options(settings)
        told.remedy = _SAID.sub(lambda said: said[0] + where, told.remedy)
    if as_json and lost is None:
        say(msgspec.json.encode({"error": error_object(told)}).decode())
    else:
        say(error_text(told), err=True)
    return exit_code(told)


def report_usage(error: click.UsageError) -> None:
    """Show wrong usage, such as an unknown option or a missing file, as an error object."""
    where = error.ctx.command_path if error.ctx else "callboard"
    found = CallboardError("usage.invalid", error.format_message(), where, f"See `{where} --help`.")
    say(msgspec.json.encode({"error": error_object(found)}).decode())


def exit_code(error: CallboardError) -> int:
    """Return the exit code for an error."""
    match error:
        case StdoutUnheard():
            return exits.LOST
        case ConfigInvalid() | UsageInvalid() | WhereInvalid():
            return exits.USAGE
        case OperatorError() | NoVerdict() | LogUnavailable():
            return exits.UNUSABLE
        case _:
            return exits.FAILED


def error_text(error: CallboardError) -> str:
    """Return an error as text: what, where, what to do."""
    lines = [f"{style('error', fg='red', bold=True)} {error.code}: {error.message}"]
    if isinstance(error, WhereInvalid):
        lines += [f"  {error.text}", f"  {' ' * (error.column - 1)}^"]
    elif error.where:
        lines.append(f"  where: {error.where}")
    if isinstance(error, RequestRefused):
        lines += [problem_text(problem, error.where, error.source) for problem in error.problems]
    elif isinstance(error, ConfigInvalid):
        lines += [problem_text(problem) for problem in error.problems]
    if error.remedy:
        lines.append(f"  {error.remedy}")
    return "\n".join(lines)
