"""A schedule: a start message, the times at which it is published, and how missed times are handled."""

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from callboard.bus.commands import Scheduled
from callboard.bus.events import Problem
from callboard.bus.subjects import token
from callboard.features.schedules.timetable import Timetable
from callboard.lib.json_types import JSON

NAME_BYTES_MAX = 120
"""Longest name, as a token: the ids of its runs and the subjects of their events begin with it."""

CATCH_UP_MAX = 1_000

Overlap = Literal["skip", "queue", "cancel", "allow"]


class Schedule(Struct, frozen=True, omit_defaults=True):
    """A schedule as stored on ``cb.schedule.<tenant>.<name>``, where the latest message is in force.

    ``start`` is the start message without a ``run_id``, ``definition`` the name of its definition; ``due_field`` names
    a member of the input that gets the due time. Of due times that were missed because no worker ran, the latest
    ``catch_up`` are caught up. ``overlap`` decides about a due time while the previous run has not ended: ``skip`` it,
    ``queue`` it until that run ends, ``cancel`` that run and then start, or ``allow`` both. ``version`` differs after
    each change; ``removed`` marks the last one. ``last`` is the last run that had been started before the change.
    """

    name: str
    when: Timetable
    start: dict[str, Any]
    version: str = ""
    definition: str = ""
    due_field: str = ""
    catch_up: int = 1
    overlap: Overlap = "skip"
    paused: bool = False
    removed: bool = False
    last: str = ""

    def run_id(self, due: dt.datetime) -> str:
        """Return the id of the run of a due time; it is the same for every attempt to start it."""
        return f"{self.name}-{due.astimezone(dt.UTC):%Y%m%dT%H%M%SZ}"

    def start_of(self, due: dt.datetime) -> dict[str, Any]:
        """Return the start message of a due time."""
        scheduled = Scheduled(self.name, due.astimezone(dt.UTC).isoformat(), self.when.timezone)
        message = {**self.start, "run_id": self.run_id(due), "scheduled": msgspec.to_builtins(scheduled)}
        return {**message, "input": self._input(scheduled.due)} if self.due_field else message

    def _input(self, due: str) -> JSON:
        given = self.start.get("input")
        return {**(given if isinstance(given, dict) else {}), self.due_field: due}


class Tick(Struct, frozen=True, omit_defaults=True):
    """A message of the server's clock: the time ``due`` of a schedule of a ``version`` has come.

    ``last`` is the run that was started last, ``skipped`` how many due times in a row were skipped. ``queued`` says
    that the due time is waiting for the previous run to end: however long that takes, it is not missed.
    """

    version: str
    due: Annotated[dt.datetime, Meta(tz=True)]
    last: str = ""
    skipped: int = 0
    queued: bool = False


def check(schedule: Schedule) -> list[Problem]:
    """Return the problems of a schedule, apart from its times and its start."""
    found: list[Problem] = []
    try:
        usable = len(schedule.name) > 0 and len(token(schedule.name)) <= NAME_BYTES_MAX
    except ValueError:
        usable = False
    if not usable:
        message = f"invalid name of a schedule: {schedule.name[:80]!r}"
        expected = f"a name of at most {NAME_BYTES_MAX} letters, digits, - and _"
        found.append(Problem("schedule.name", message, "name", expected=expected))
    if not 0 <= schedule.catch_up <= CATCH_UP_MAX:
        message = f"cannot catch up {schedule.catch_up} due times"
        found.append(Problem("schedule.catch_up", message, "catch_up", expected=f"0 to {CATCH_UP_MAX}"))
    given = schedule.start.get("input")
    if schedule.due_field and not isinstance(given, dict | None):
        message = "due_field requires an input that is an object"
        found.append(Problem("schedule.due_field", message, "due_field", expected="an input that is an object"))
    return found
