"""The store of schedules: the message of each schedule in the stream, and its clock in the server."""

import datetime as dt
from typing import TypeVar

import msgspec
import structlog
from msgspec import Struct

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.commit import OutgoingMessage, guard_headers
from callboard.bus.nats.jetstream import JetStreamLog, at
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.stored_messages import StoredMessage
from callboard.bus.subjects import name_of
from callboard.features.schedules.schedule import Schedule, Tick
from callboard.features.schedules.timetable import Timetable
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

logger = structlog.get_logger(__name__)

T = TypeVar("T")


class StoredSchedule(Struct, frozen=True):
    """A stored schedule, its sequence in the stream, and the tick its clock is set to; None if that has just fired."""

    schedule: Schedule
    sequence: int
    tick: Tick | None = None


class ScheduleStore:
    """The schedules of all tenants, on one log."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log
        self._subjects = log.subjects

    async def get(self, tenant: str, name: str) -> StoredSchedule | None:
        """Return a schedule, even a removed one; None if there never was one of that name.

        A message of another program that cannot be read counts as a removed schedule.

        :raises NoAnswer: if the stream does not answer
        """
        found = await self._log.last_message(self._subjects.schedule(tenant, name))
        if found is None:
            return None
        schedule = _read(found, Schedule) or Schedule(name, Timetable(), {}, removed=True)
        clock = await self._log.last_message(self._subjects.clock(tenant, name))
        tick = _read(clock, Tick) if clock is not None else None
        return StoredSchedule(
            schedule, found.sequence, tick if tick is not None and tick.version == schedule.version else None
        )

    async def names(self, tenant: str) -> list[str]:
        """Return the names of all schedules that a tenant has or had, in order.

        :raises NoAnswer: if the stream does not answer
        """
        prefix = self._subjects.schedule(tenant, "x").removesuffix("x")
        answer = await api(self._log.requests, f"STREAM.INFO.{self._log.stream}", {"subjects_filter": f"{prefix}*"})
        if "error" in answer:
            raise NoAnswer(str(answer["error"].get("description")))
        subjects: dict[str, int] = answer["state"].get("subjects") or {}
        return sorted(name_of(subject.removeprefix(prefix)) for subject in subjects)

    async def put(self, tenant: str, schedule: Schedule, after: int, tick: Tick | None) -> None:
        """Store a schedule, and set its clock if it has a next time.

        :raises Refused: if ``after`` is not the sequence of the last message under its name, 0 for none
        :raises Full: if the store is full
        :raises NoAnswer: if the stream does not answer
        """
        subject = self._subjects.schedule(tenant, schedule.name)
        message = OutgoingMessage(subject, msgspec.json.encode(schedule), guard_headers(after, subject))
        if tick is None:
            await self._log.publish(message)
            return
        due = schedule.when.put_off(tick.due, schedule.name)
        await self._log.publish_together([message, self._clock(tenant, schedule, tick, due)])

    async def set_clock(self, tenant: str, kept: StoredSchedule, tick: Tick, moment: dt.datetime) -> None:
        """Set the clock of a schedule.

        :raises Refused: if the schedule has been changed since it was read
        :raises Full: if the store is full
        :raises NoAnswer: if the stream does not answer
        """
        message = self._clock(tenant, kept.schedule, tick, moment)
        message.headers |= guard_headers(kept.sequence, self._subjects.schedule(tenant, kept.schedule.name))
        await self._log.publish(message)

    def _clock(self, tenant: str, schedule: Schedule, tick: Tick, moment: dt.datetime) -> OutgoingMessage:
        headers = at(moment, self._subjects.tick(tenant, schedule.name))
        return OutgoingMessage(self._subjects.clock(tenant, schedule.name), msgspec.json.encode(tick), headers)


def _read(stored: StoredMessage, shape: type[T]) -> T | None:
    """Decode a message; None if it does not have the shape."""
    try:
        return decode_json(stored.data, type=shape)
    except JSON_ERRORS as error:
        logger.warning("cannot read a stored schedule or tick", sequence=stored.sequence, error=str(error))
        return None
