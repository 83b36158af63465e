"""Options that commands share, and their types. Light: nothing here reads or connects."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click

LISTED_MAX = 1_000_000_000
"""Upper bound of --limit: SQLite counts with 64 bits."""

code_option = click.option(
    "--code",
    metavar="MODULE|FILE|FOLDER",
    multiple=True,
    help="Host its Python workflows; may be repeated.",
)


def host_code(code: tuple[str, ...]) -> None:
    """Load the code of Python workflows, so that their runs can be replayed in this process."""
    if code:
        from callboard.runtime.hosting.code_loader import load

        for one in code:
            load(one)


plain_option = click.option("--plain", is_flag=True, help="Print one line per event, also on a terminal.")

import_from_option = click.option(
    "--import-from",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Also import Python tools from DIR; the working directory is always included.",
)


class AddressType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - it takes none in all versions
    """``HOST:PORT``; the host may be an IPv6 address in brackets."""

    name = "HOST:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
            self.fail(f"{value!r} is not of the form HOST:PORT", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


attribute_option = click.option(
    "--attribute",
    "attributes",
    metavar="NAME=PATH",
    multiple=True,
    help="Make a value searchable, such as customer=input.customer.id or total=output.total.",
)


def pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """Read ``KEY=VALUE`` words.

    :raises click.BadParameter: if a word has no key or no equals sign
    """
    found: dict[str, str] = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{word!r} is not of the form KEY=VALUE", param_hint=option)
        found[key] = value
    return found


class DurationType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - it takes none in all versions
    """A duration, as seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        import re

        from callboard.lib.durations import DURATION, seconds_of

        if isinstance(value, float):
            return value
        if not re.fullmatch(DURATION, str(value)):
            self.fail(f"{value!r} is not a duration; expected one such as 90s, 10m or 1h30m", param, ctx)
        return seconds_of(str(value))


class SinceType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - it takes none in all versions
    """An instant: a duration before now, or ISO 8601, in UTC if it has no offset."""

    name = "when"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        import datetime as dt
        import re

        from callboard.lib.durations import DURATION, seconds_of

        if isinstance(value, dt.datetime):
            return value
        try:
            if re.fullmatch(DURATION, str(value)):
                return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds_of(str(value)))
            at = dt.datetime.fromisoformat(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is neither a duration, such as 90s, 10m or 2h, nor an instant", param, ctx)
        return at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)


NAME_ONE = "name a RUN, or pass --where or --all"
"""The error if no run is named, or if runs are named in two ways."""

where_option = click.option(
    "--where", "-w", "question", metavar="QUESTION", help="All runs that match, instead of RUN."
)

all_option = click.option("--all", "everything", is_flag=True, help="All runs of the tenant, instead of RUN.")


class Many(NamedTuple):
    """Which runs: those that match ``question``, or all if it is None.

    ``yes`` skips the confirmation; ``operation`` is the id of an interrupted operation to continue."""

    question: str | None
    yes: bool
    operation: str | None


def many(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select many runs; the command gets them, or else its RUN, as ``whom``."""

    @functools.wraps(command)
    def gather(
        *args: Any,
        question: str | None,
        everything: bool,
        yes: bool,
        operation: str | None,
        run: str | None = None,
        **others: Any,
    ) -> Any:
        if sum((run is not None, question is not None, everything)) > 1:
            raise click.UsageError(NAME_ONE)
        if question is None and not everything:
            if yes or operation is not None:
                raise click.UsageError("--yes and --operation need --where or --all")
            return command(*args, whom=run, **others)
        return command(*args, whom=Many(question, yes, operation), **others)

    for option in (
        click.option(
            "--operation", metavar="ID", help="With many runs: continue the interrupted operation of this id."
        ),
        click.option("--yes", "-y", is_flag=True, help="With many runs: do not ask for confirmation."),
        all_option,
        where_option,
    ):
        gather = option(gather)
    return gather
