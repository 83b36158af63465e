"""Scheduling: what `callboard schedule` makes of its words, and what it prints."""

import datetime as dt
from typing import Any, cast

import msgspec
from msgspec import Struct

from callboard.features.schedules.schedule import Overlap, Schedule
from callboard.features.schedules.schedules import PENDING, ScheduleRow, Schedules
from callboard.features.schedules.timetable import Timetable
from callboard.languages.authoring import Times
from callboard.languages.registry import authoring
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.settings.config import Config
from callboard.service.operations.errors import RequestRefused, UsageInvalid
from callboard.service.operations.narration import local
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.start_messages import Message, PreparedStart, prepare, prepare_by_name
from callboard.service.operations.start_request import StartRequest
from callboard.surfaces.cli.output import problem_text, say
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.start_options import is_file

NEXT_SHOWN = 3


class Wanted(Struct, frozen=True):
    """What `callboard schedule add` was given; durations in seconds, None where nothing was said."""

    request: StartRequest
    made: Message
    name: str | None
    cron: str | None
    every_s: float | None
    timezone: str | None
    jitter_s: float
    overlap: str
    catch_up: int | None
    due_as: str


def message_of(request: StartRequest) -> Message:
    """Make the start message that a schedule is to publish.

    :raises RequestRefused: with all that is wrong with it
    :raises UsageInvalid: if something was asked for that goes with no schedule
    """
    if request.run_id is not None:
        raise UsageInvalid("each run of a schedule has an id of its own, made of its name and the due time", "--run-id")
    return prepare(request) if is_file(request.file) else prepare_by_name(request)


async def add_schedule(wanted: Wanted, config: Config, settings: Settings) -> None:
    """Add a schedule, and print when it is due.

    :raises RequestRefused: with all that is wrong with it
    :raises CallboardError: whatever keeps the store from being used
    """
    made = wanted.made
    schedule = _schedule(wanted, made)
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


def _schedule(wanted: Wanted, made: Message) -> Schedule:
    times = _times(made)
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
    """A start message without what it does not say."""
    return {name: value for name, value in message.items() if value is not None}


def _times(made: Message) -> Times | None:
    """The times that a definition its own has."""
    if not isinstance(made, PreparedStart):
        return None
    return authoring(made.definition.language).times(made.definition.document)


def _name_of(request: StartRequest, made: Message) -> str:
    return made.definition.name if isinstance(made, PreparedStart) else request.file


async def list_schedules(config: Config, settings: Settings) -> None:
    """Print the schedules of the tenant."""
    async with reach(config, reads=True, name="callboard schedule") as connection:
        rows = await Schedules(connection.log, config.tenant).rows()
    if settings.as_json:
        say(compact(rows))
        return
    say(
        "\n".join([_table(rows), *_rejections(rows)])
        if rows
        else "No schedules. `callboard schedule add FILE --cron EXPRESSION` adds one."
    )


async def show_schedule(name: str, config: Config, settings: Settings) -> None:
    """Print one schedule.

    :raises ScheduleUnknown: if none exists of this name
    :raises CallboardError: whatever keeps the store from being used
    """
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
        f"next        {_next(row.next)}",
        f"last run    {_last(row)}",
        *skipped,
    ]
    say("\n".join([*lines, *map(problem_text, row.last_problems)]))


async def change_schedule(verb: str, name: str, config: Config, settings: Settings) -> None:
    """Pause, resume or remove a schedule, and say so.

    :raises ScheduleUnknown: if none exists of this name
    :raises CallboardError: whatever keeps the store from being used
    """
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
        say(f"{name} paused" if row.next is None else f"{name} goes on, next {local(row.next)}")


def _table(rows: list[ScheduleRow]) -> str:
    cells = [("NAME", "WHEN", "DEFINITION", "NEXT", "LAST RUN")]
    cells += [(row.name, row.when, row.definition, _next(row.next), _last(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def _rejections(rows: list[ScheduleRow]) -> list[str]:
    """Why starts of last runs were rejected, one schedule after the other."""
    lines: list[str] = []
    for row in rows:
        if row.last_problems:
            lines += ["", f"The start of {row.last} was rejected:", *map(problem_text, row.last_problems)]
    return lines


def _next(due: dt.datetime | None) -> str:
    return local(due) if due is not None else "paused"


def _last(row: ScheduleRow) -> str:
    skipped = f", {row.skipped} skipped since" if row.skipped else ""
    told = "waits for a worker" if row.last_status == PENDING else row.last_status
    return f"{row.last} {told}{skipped}" if row.last else "-"
