"""Cold storage: one process at a time moves the runs that the rule selects, and compacts segments.

It runs in a separate process, so that runs do not wait while it reads and compresses.
"""

import datetime as dt
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import structlog
from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.bus.events import RunAccepted, RunEnd
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.cooling import SEGMENT_RUNS_MAX, compact, cool_runs, merge
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api, direct_get
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from callboard.runtime.settings.cold_settings import ColdRule
from callboard.runtime.settings.config import Config

logger = structlog.get_logger(__name__)

LEADERSHIP = "cold"

FIRST_S = 10.0
"""The delay of the first round, because a server may have been started only for a short look."""


class Cooled(Struct, frozen=True):
    """The result of a round for a tenant: the runs that were moved, or would be."""

    tenant: str
    runs: list[str]


async def round_of(log: JetStreamLog, config: Config, *, dry: bool) -> list[Cooled]:
    """Apply the rule once, or with ``dry`` only report the runs that would be moved.

    :raises OSError: if a segment cannot be stored
    :raises NoAnswer: if the log does not answer
    """
    rule, store = config.cold, log.cold.store
    if rule is None or store is None:
        return []
    now, done = log.now(), list[Cooled]()
    for tenant in rule.tenant or (config.tenant,):
        moved: list[str] = []
        batch: list[RunRef] = []
        async with aclosing(_select_runs(log, tenant, rule, now)) as found:
            async for ref in found:
                batch.append(ref)
                if len(batch) == SEGMENT_RUNS_MAX:
                    moved += await _move(log, batch, dry=dry)
                    batch = []
        moved += await _move(log, batch, dry=dry)
        done.append(Cooled(tenant, moved))
    return done


async def _move(log: JetStreamLog, batch: list[RunRef], *, dry: bool) -> list[str]:
    store = log.cold.store
    moved = batch if dry or store is None else await cool_runs(log, store, batch)
    return [ref.run for ref in moved]


async def _select_runs(log: JetStreamLog, tenant: str, rule: ColdRule, now: dt.datetime) -> AsyncGenerator[RunRef]:
    """Yield the runs to move, the oldest first.

    The stream has the first event of exactly the runs that are not in cold storage.
    """
    filter = log.subjects.events(tenant, event_type=RunAccepted.type)
    messages, pending = await direct_get(log.nc, log.stream, {"next_by_subj": filter, "seq": 1, "batch": 1})
    runs = len(messages) + pending
    too_many = 0 if rule.keep is None else runs - rule.keep
    if rule.keep_bytes is not None:
        # Of runs of the average size. If they are smaller, the next round moves more.
        excess = await _stream_bytes(log) - rule.keep_bytes
        too_many = max(too_many, math.ceil(runs * excess / (rule.keep_bytes + excess)) if excess > 0 else 0)
    before = None if rule.after_s is None else now - dt.timedelta(seconds=rule.after_s)
    async with aclosing(log.copy_messages(filter)) as accepted:
        async for one in accepted:
            if too_many <= 0 and (before is None or one.time >= before):
                return  # No later run can have ended early enough.
            place = log.subjects.parse_event(one.subject)
            if rule.definition and place.definition not in rule.definition:
                continue
            last = await log.last(place.ref)
            if last is None or last.event.type != RunEnd.type:
                continue
            if too_many > 0 or (before is not None and last.event.time < before):
                too_many -= 1
                yield place.ref


async def _stream_bytes(log: JetStreamLog) -> int:
    answer = await api(log.requests, f"STREAM.INFO.{log.stream}", {})
    if "error" in answer:
        raise NoAnswer(str(answer["error"]))
    return answer["state"]["bytes"]


class CoolingLeader:
    """Applies the rule at regular intervals. A `Leader`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._compacted_at = -1, -1
        """The sequences of the last mark of a purged run at the last two compactions."""

    async def run(self, orphaned: bool) -> None:
        """Apply the rule until cancelled."""
        rule = self._connection.config.cold
        if rule is None:
            return
        await anyio.sleep(min(FIRST_S, rule.every_s))
        while True:
            try:
                await self._round()
            except (NoAnswer, OSError, CallboardError) as error:
                logger.warning("runs could not be moved to cold storage", error=str(error))
            await anyio.sleep(rule.every_s)

    async def _round(self) -> None:
        log, config = self._connection.log, self._connection.config
        for one in await round_of(log, config, dry=False):
            if one.runs:
                logger.info("runs were moved to cold storage", tenant=one.tenant, runs=len(one.runs))
        newest = await log.last_message(log.subjects.marks())
        purged_at = newest.sequence if newest is not None else 0
        # Twice after each purge, because a purge stores the mark before it removes the run.
        if log.cold.store is not None and purged_at != self._compacted_at[0]:
            if removed := await compact(log, log.cold.store):
                logger.info("segments were compacted", runs=removed)
            self._compacted_at = self._compacted_at[1], purged_at
        if log.cold.store is not None and (merged := await merge(log, log.cold.store)):
            logger.info("small segments were merged", segments=merged)

    def hurry(self) -> None:
        """Do nothing, because the next round continues a move that was interrupted."""
