"""``callboard schedule``: runs that are started at scheduled times."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Duration
from callboard.surfaces.cli.output import problem_text, say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options
from callboard.surfaces.cli.start_options import is_file, start_options

if TYPE_CHECKING:
    from callboard.features.schedules.schedule import Schedule
    from callboard.features.schedules.schedules import ScheduleRow
    from callboard.languages.authoring import Times
    from callboard.runtime.settings.config import Config
    from callboard.service.files.start_messages import Message


OVERLAPS = ("skip", "queue", "cancel", "allow")


@click.group(epilog=exits.EXIT_CODES)
def schedule() -> None:
    """Start runs at scheduled times: add, list, show, pause, resume and remove schedules.

    Schedules are kept in the store and fired by the server's clock. A running worker starts one run for each due time,
    even if other workers die.
    """


@schedule.command(epilog=exits.EXIT_CODES)
@partial(start_options, names=True)
@click.option("--name", "-n", metavar="NAME", help="The name of the schedule; default: the name of its definition.")
@click.option("--cron", metavar="EXPRESSION", help="The times: minute, hour, day of month, month, day of week.")
@click.option("--every", metavar="DURATION", type=Duration(), help="The interval between runs, such as 10m.")
@click.option("--timezone", "--tz", metavar="ZONE", help="The time zone of --cron.  [default: UTC]")
@click.option(
    "--jitter",
    metavar="DURATION",
    type=Duration(),
    default=0.0,
    help="Delay each run by a random time, at most this long.",
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="skip",
    show_default=True,
    help="What to do if the previous run has not ended when the next one is due.",
)
@click.option(
    "--catch-up",
    metavar="N",
    type=click.IntRange(0),
    help="How many missed due times, the latest ones, to start late.  [default: 1]",
)
@click.option("--due-as", metavar="FIELD", default="", help="Add the due time to the input, as this field.")
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
    """Add a schedule, or replace the one of the same name.

    FILE may also be the name of a registered definition (`callboard push`): each run uses the version in force when it
    is due. A definition with a schedule in its trigger needs no --cron.

    \b
    callboard schedule add report.yaml --cron '0 9 * * 1-5' --timezone Europe/Berlin
    """
    import anyio

    wanted = ScheduleRequest(
        request, make_message(request), name, cron, every, timezone, jitter, overlap, catch_up, due_as
    )
    anyio.run(add_schedule, wanted, load_config(settings), settings)


@schedule.command("list", epilog=exits.EXIT_CODES)
@settings_options
def list_(settings: Settings) -> None:
    """List the schedules: name, times, definition, next due time, last run."""
    import anyio

    anyio.run(list_schedules, load_config(settings), settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def show(name: str, settings: Settings) -> None:
    """Show one schedule, and why the start of its last run was rejected, if it was."""
    import anyio

    anyio.run(show_schedule, name, load_config(settings), settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def pause(name: str, settings: Settings) -> None:
    """Pause a schedule: nothing is due until it is resumed."""
    _change_schedule("pause", name, settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def resume(name: str, settings: Settings) -> None:
    """Resume a paused schedule with its next due time."""
    _change_schedule("resume", name, settings)


@schedule.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@settings_options
def remove(name: str, settings: Settings) -> None:
    """Remove a schedule. Its runs are kept and continue."""
    _change_schedule("remove", name, settings)


def _change_schedule(verb: str, name: str, settings: Settings) -> None:
    import anyio

    anyio.run(change_schedule, verb, name, load_config(settings), settings)


NEXT_SHOWN = 3


class ScheduleRequest(NamedTuple):
    """The arguments of `callboard schedule add`; durations in seconds, None if not given."""

    request: StartRequest
    made: "Message"
    name: str | None
    cron: str | None
    every_s: float | None
    timezone: str | None
    jitter_s: float
    overlap: str
    catch_up: int | None
    due_as: str


def make_message(request: StartRequest) -> "Message":
    """Return the start message that the schedule publishes.

    :raises RequestRefused: with every problem
    :raises UsageInvalid: if an option is given that a schedule cannot have
    """
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.files.start_messages import prepare, prepare_by_name

    if request.run_id is not None:
        raise UsageInvalid(
            "not possible with a schedule: the ids of its runs are made of its name and the due time", "--run-id"
        )
    return prepare(request) if is_file(request.file) else prepare_by_name(request)


async def add_schedule(wanted: ScheduleRequest, config: "Config", settings: Settings) -> None:
    """Add a schedule, and print when it is due.

    :raises RequestRefused: with every problem
    :raises CallboardError: if the store cannot be used
    """
    from callboard.features.schedules.schedules import Schedules
    from callboard.runtime.admission.definitions import Definitions
    from callboard.runtime.client.errors import RequestRefused
    from callboard.service.operations.narration import local
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    made = wanted.made
    schedule = _make_schedule(wanted, made)
    async with reach(config, reads=True, founds=True, name="callboard schedule") as connection:
        added = await Schedules(connection.log, config.tenant).add(schedule, Definitions())
    if isinstance(added, list):
        raise RequestRefused("schedule", added, wanted.request.file, made.source)
    for warning in added.warnings:
        say(problem_text(warning, wanted.request.file, made.source), err=True)
    if settings.as_json:
        say(compact(added))
        return
    say(f"{added.name}: {added.when}")
    due = added.next
    for _ in range(NEXT_SHOWN):
        if due is not None:
            say(f"  {'next' if due == added.next else 'then'} {local(due)}")
            due = schedule.when.after(due)


def _make_schedule(wanted: ScheduleRequest, made: "Message") -> "Schedule":
    from callboard.features.schedules.schedule import Overlap, Schedule
    from callboard.features.schedules.timetable import Timetable

    times = _definition_times(made)
    cron, zone = wanted.cron, wanted.timezone
    if cron is None and wanted.every_s is None and times is not None:
        cron, zone = times.cron, zone or times.timezone
    catch_up = wanted.catch_up if wanted.catch_up is not None else times.catch_up if times is not None else 1
    return Schedule(
        wanted.name or _name_of(wanted.request, made),
        Timetable(cron, zone or "UTC", wanted.every_s, wanted.jitter_s),
        _describe_start(made.message),
        due_field=wanted.due_as,
        catch_up=catch_up,
        overlap=cast(Overlap, wanted.overlap),
    )


def _describe_start(message: dict[str, Any]) -> dict[str, Any]:
    """Return a start message without members that are None."""
    return {name: value for name, value in message.items() if value is not None}


def _definition_times(made: "Message") -> "Times | None":
    """Return the times in a definition's trigger, if any."""
    from callboard.languages.registry import authoring
    from callboard.service.files.start_messages import PreparedStart

    if not isinstance(made, PreparedStart):
        return None
    return authoring(made.definition.language).times(made.definition.document)


def _name_of(request: StartRequest, made: "Message") -> str:
    from callboard.service.files.start_messages import PreparedStart

    return made.definition.name if isinstance(made, PreparedStart) else request.file


async def list_schedules(config: "Config", settings: Settings) -> None:
    """Print the schedules of the tenant."""
    from callboard.features.schedules.schedules import Schedules
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard schedule") as connection:
        rows = await Schedules(connection.log, config.tenant).rows()
    if settings.as_json:
        say(compact(rows))
        return
    say(
        "\n".join([_schedule_table(rows), *_rejections(rows)])
        if rows
        else "No schedules. `callboard schedule add FILE --cron EXPRESSION` adds one."
    )


async def show_schedule(name: str, config: "Config", settings: Settings) -> None:
    """Print one schedule.

    :raises ScheduleUnknown: if no schedule of this name exists
    :raises CallboardError: if the store cannot be used
    """
    from callboard.features.schedules.schedules import Schedules
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard schedule") as connection:
        row = await Schedules(connection.log, config.tenant).row(name)
    if settings.as_json:
        say(compact(row))
        return
    skipped = [f"skipped     {row.skipped} due times in a row"] if row.skipped else []
    lines = [
        f"schedule    {row.name}",
        f"when        {row.when}",
        f"definition  {row.definition}",
        f"overlap     {row.overlap}",
        f"catch-up    {row.catch_up}",
        f"next        {_next_text(row)}",
        f"last run    {_last_text(row)}",
        *skipped,
    ]
    say("\n".join([*lines, *map(problem_text, row.last_problems)]))


async def change_schedule(verb: str, name: str, config: "Config", settings: Settings) -> None:
    """Pause, resume or remove a schedule, and print the result.

    :raises ScheduleUnknown: if no schedule of this name exists
    :raises CallboardError: if the store cannot be used
    """
    import msgspec

    from callboard.features.schedules.schedules import ScheduleRow, Schedules
    from callboard.service.operations.narration import local
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard schedule") as connection:
        schedules = Schedules(connection.log, config.tenant)
        row: ScheduleRow | None = None
        if verb == "remove":
            await schedules.remove(name)
        else:
            row = await (schedules.pause(name) if verb == "pause" else schedules.resume(name))
    if settings.as_json:
        say(compact(msgspec.to_builtins(row) if row is not None else {"name": name, "removed": True}))
    elif row is None:
        say(f"{name} removed")
    else:
        say(f"{name} paused" if row.next is None else f"{name} resumed, next {local(row.next)}")


def _schedule_table(rows: "list[ScheduleRow]") -> str:
    cells = [("NAME", "WHEN", "DEFINITION", "NEXT", "LAST RUN")]
    cells += [(row.name, row.when, row.definition, _next_text(row), _last_text(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def _rejections(rows: "list[ScheduleRow]") -> list[str]:
    """Return why the starts of last runs were rejected, for each schedule."""
    lines: list[str] = []
    for row in rows:
        if row.last_problems:
            lines += ["", f"The start of {row.last} was rejected:", *map(problem_text, row.last_problems)]
    return lines


def _next_text(row: "ScheduleRow") -> str:
    from callboard.service.operations.narration import local

    if row.next is None:
        return "paused"
    return local(row.next) if row.waiting is None else f"{local(row.next)}; {local(row.waiting)} waits"


def _last_text(row: "ScheduleRow") -> str:
    from callboard.features.schedules.schedules import PENDING

    skipped = f", {row.skipped} skipped since" if row.skipped else ""
    told = "waiting for a worker" if row.last_status == PENDING else row.last_status
    return f"{row.last} {told}{skipped}" if row.last else "-"
