"""``callboard schedule``: runs that are started at scheduled times."""

from functools import partial
from typing import TYPE_CHECKING

import click

from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import DurationType
from callboard.surfaces.cli.output import problem_text, say, table
from callboard.surfaces.cli.start_options import is_file, start_options

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from callboard.features.schedules.schedule import Overlap
    from callboard.features.schedules.schedules import ScheduleRow, Schedules
    from callboard.languages.authoring import Times
    from callboard.runtime.client.connection import Connection
    from callboard.service.files.start_messages import StartMessage


OVERLAPS = ("skip", "queue", "cancel", "allow")


@click.group()
def schedule() -> None:
    """Start runs at scheduled times: add, list, show, pause, resume and remove schedules.

    Schedules are kept in the store and fired by the server's clock. A running worker starts one run for each due time,
    even if other workers die.
    """


@schedule.command()
@partial(start_options, names=True)
@click.option("--name", "-n", metavar="NAME", help="The name of the schedule; default: the name of its definition.")
@click.option("--cron", metavar="EXPRESSION", help="The times: minute, hour, day of month, month, day of week.")
@click.option("--every", metavar="DURATION", type=DurationType(), help="The interval between runs, such as 10m.")
@click.option("--timezone", "--tz", metavar="ZONE", help="The time zone of --cron.  [default: UTC]")
@click.option(
    "--jitter",
    metavar="DURATION",
    type=DurationType(),
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
@operation
def add(
    call: OperationCall,
    request: StartRequest,
    name: str | None,
    cron: str | None,
    every: float | None,
    timezone: str | None,
    jitter: float,
    overlap: "Overlap",
    catch_up: int | None,
    due_as: str,
) -> "Awaitable[None]":
    """Add a schedule, or replace the one of the same name.

    FILE may also be the name of a registered definition (`callboard push`): each run uses the version in force when it
    is due. A definition with a schedule in its trigger needs no --cron.

    \b
    callboard schedule add report.yaml --cron '0 9 * * 1-5' --timezone Europe/Berlin
    """
    from callboard.features.schedules.schedule import Schedule
    from callboard.features.schedules.timetable import Timetable
    from callboard.runtime.admission.definitions import Definitions
    from callboard.runtime.client.errors import RequestRefused
    from callboard.service.files.start_messages import PreparedStart
    from callboard.service.operations.narration import local

    made = _make_message(request)
    times = _definition_times(made)
    if cron is None and every is None and times is not None:
        cron, timezone = times.cron, timezone or times.timezone
    schedule = Schedule(
        name or (made.definition.name if isinstance(made, PreparedStart) else request.file),
        Timetable(cron, timezone or "UTC", every, jitter),
        {member: value for member, value in made.message.items() if value is not None},
        due_field=due_as,
        catch_up=catch_up if catch_up is not None else times.catch_up if times is not None else 1,
        overlap=overlap,
    )

    async def store() -> None:
        async with call.connect(founds=True) as connection:
            added = await _schedules(connection).add(schedule, Definitions())
        if isinstance(added, list):
            raise RequestRefused("schedule", added, request.file, made.source)
        for warning in added.warnings:
            say(problem_text(warning, request.file, made.source), err=True)
        lines = [f"{added.name}: {added.when}"]
        due = added.next
        for number in range(NEXT_SHOWN):
            if due is not None:
                lines.append(f"  {'then' if number else 'next'} {local(due)}")
                due = schedule.when.after(due)
        call.answer(added, lines)

    return store()


@schedule.command("list")
@operation
async def list_(call: OperationCall) -> None:
    """List the schedules: name, times, definition, next due time, last run."""
    async with call.connect() as connection:
        rows = await _schedules(connection).rows()
    none = "No schedules. `callboard schedule add FILE --cron EXPRESSION` adds one."
    cells = [(row.name, row.when, row.definition, _next_text(row), _last_text(row)) for row in rows]
    text = table([("NAME", "WHEN", "DEFINITION", "NEXT", "LAST RUN"), *cells])
    call.answer(rows, [text, *_rejections(rows)] if rows else none)


@schedule.command()
@click.argument("name")
@operation
async def show(call: OperationCall, name: str) -> None:
    """Show one schedule, and why the start of its last run was rejected, if it was."""
    async with call.connect() as connection:
        row = await _schedules(connection).row(name)
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
    call.answer(row, [*lines, *map(problem_text, row.last_problems)])


@schedule.command()
@click.argument("name")
@operation
async def pause(call: OperationCall, name: str) -> None:
    """Pause a schedule: nothing is due until it is resumed."""
    async with call.connect() as connection:
        row = await _schedules(connection).pause(name)
    call.answer(row, _state_text(row))


@schedule.command()
@click.argument("name")
@operation
async def resume(call: OperationCall, name: str) -> None:
    """Resume a paused schedule with its next due time."""
    async with call.connect() as connection:
        row = await _schedules(connection).resume(name)
    call.answer(row, _state_text(row))


@schedule.command()
@click.argument("name")
@operation
async def remove(call: OperationCall, name: str) -> None:
    """Remove a schedule. Its runs are kept and continue."""
    async with call.connect() as connection:
        await _schedules(connection).remove(name)
    call.answer({"name": name, "removed": True}, f"{name} removed")


NEXT_SHOWN = 3


def _schedules(connection: "Connection") -> "Schedules":
    from callboard.features.schedules.schedules import Schedules

    return Schedules(connection.log, connection.config.tenant)


def _make_message(request: StartRequest) -> "StartMessage":
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


def _definition_times(made: "StartMessage") -> "Times | None":
    """Return the times in a definition's trigger, if any."""
    from callboard.languages.registry import authoring
    from callboard.service.files.start_messages import PreparedStart

    if not isinstance(made, PreparedStart):
        return None
    return authoring(made.definition.language).times(made.definition.document)


def _state_text(row: "ScheduleRow") -> str:
    from callboard.service.operations.narration import local

    return f"{row.name} paused" if row.next is None else f"{row.name} resumed, next {local(row.next)}"


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
