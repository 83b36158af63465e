"""``callboard schedule``: runs that are started at their own times."""

from functools import partial

import click

from callboard.service.operations.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Duration
from callboard.surfaces.cli.settings import Settings, settings_options
from callboard.surfaces.cli.start_options import start_options

OVERLAPS = ("skip", "queue", "cancel", "allow")


@click.group(epilog=exits.EXIT_CODES)
def schedule() -> None:
    """Start runs at their own times: add, list, show, pause, resume and remove schedules.

    Schedules are kept in the store, and the server's clock fires them. Workers that stand start the runs, one for each
    due time, whatever dies in the meantime.
    """


@schedule.command(epilog=exits.EXIT_CODES)
@partial(start_options, names=True)
@click.option("--name", "-n", metavar="NAME", help="What the schedule is called; default: as its definition.")
@click.option("--cron", metavar="EXPRESSION", help="When: minute, hour, day of month, month, day of week.")
@click.option("--every", metavar="DURATION", type=Duration(), help="When: at equal distances, such as 10m.")
@click.option("--timezone", "--tz", metavar="ZONE", help="Whose clocks --cron is about.  [default: UTC]")
@click.option("--jitter", metavar="DURATION", type=Duration(), default=0.0, help="Put each run off by up to so much.")
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="skip",
    show_default=True,
    help="What becomes of a run that is due while the one before goes on.",
)
@click.option(
    "--catch-up",
    metavar="N",
    type=click.IntRange(0),
    help="Make up for so many of the latest due times that nobody was there for.  [default: 1]",
)
@click.option("--due-as", metavar="FIELD", default="", help="Put the due time into the input, under this name.")
@settings_options
def add(
    request: StartRequest,
    settings: Settings,
    name: str | None,
    cron: str | None,
    every: float | None,
    timezone: str | None,
    jitter: float,
    overlap: str,
    catch_up: int | None,
    due_as: str,
) -> None:
    """Add a schedule, or put another in place of one of the same name.

    FILE may also be the name of a registered definition (`callboard push`): its runs take what is registered when they
    are due. A definition whose trigger has its own times needs no --cron.

    \b
    callboard schedule add report.yaml --cron '0 9 * * 1-5' --timezone Europe/Berlin
    """
    import anyio

    from callboard.surfaces.cli.schedule_action import Wanted, add_schedule, message_of
    from callboard.surfaces.cli.settings import configured

    wanted = Wanted(request, message_of(request), name, cron, every, timezone, jitter, overlap, catch_up, due_as)
    anyio.run(add_schedule, wanted, configured(settings), settings)


@schedule.command("list", epilog=exits.EXIT_CODES)
@settings_options
def list_(settings: Settings) -> None:
    """List the schedules: when, what, the next due time, the last run."""
    import anyio

    from callboard.surfaces.cli.schedule_action import list_schedules
    from callboard.surfaces.cli.settings import configured

    anyio.run(list_schedules, configured(settings), settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def show(name: str, settings: Settings) -> None:
    """Show one schedule, and why the start of its last run was rejected if it was."""
    import anyio

    from callboard.surfaces.cli.schedule_action import show_schedule
    from callboard.surfaces.cli.settings import configured

    anyio.run(show_schedule, name, configured(settings), settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def pause(name: str, settings: Settings) -> None:
    """Let nothing be due until the schedule is resumed."""
    _change("pause", name, settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def resume(name: str, settings: Settings) -> None:
    """Let a paused schedule continue with its next due time."""
    _change("resume", name, settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def remove(name: str, settings: Settings) -> None:
    """End a schedule. Its runs stay, and continue."""
    _change("remove", name, settings)


def _change(verb: str, name: str, settings: Settings) -> None:
    import anyio

    from callboard.surfaces.cli.schedule_action import change_schedule
    from callboard.surfaces.cli.settings import configured

    anyio.run(change_schedule, verb, name, configured(settings), settings)
