"""The keeper of schedules: acts on the ticks of the server's clocks. Each worker has one, and each tick goes to one.

A tick that is handled twice, because its keeper crashed, starts no second run: a due time determines the run's id.
"""

import datetime as dt
from collections.abc import Callable

import anyio
import msgspec
import structlog

from callboard.bus import events as ev
from callboard.bus.commands import Cancel
from callboard.bus.log.port import AppendRefused, Full, NoAnswer
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import find_newest_run, purge_mark
from callboard.bus.nats.queue import Delivery, Outbox, attend
from callboard.bus.subjects import RunRef
from callboard.features.schedules.schedule import Schedule, Tick
from callboard.features.schedules.store import ScheduleStore, StoredSchedule
from callboard.features.schedules.timetable import EVERY_MIN_S
from callboard.lib.json_decoder import decode_json
from callboard.runtime.admission.refusals import refusal_of_start

logger = structlog.get_logger(__name__)

QUEUE = "schedules"
"""The durable consumer of all ticks, which all workers read together."""

ON_TIME_S = 60.0
"""A due time handled at most this late, after its jitter, counts as on time: the server or a worker was restarted."""

ON_TIME_MAX = int(ON_TIME_S / EVERY_MIN_S) + 1
"""Maximum number of due times that are on time at once."""

TICKS_AT_ONCE = 16
LOOK_AGAIN_S = 5.0
"""How soon to check again whether the previous run has ended."""

CANCEL_PATIENCE_S = 3.0
CANCEL_LOOK_S = 0.1
"""How long a due time waits for the previous run, which it has cancelled, before the clock is set to look again; and
how often the keeper looks meanwhile."""

RETRY_S = 1.0
RETRY_MAX_S = 60.0
"""The first and the longest pause before a failed tick is delivered again."""


class SchedulePublisher:
    """Publishes the starts of schedules when they are due, until it is cancelled."""

    def __init__(
        self, log: JetStreamLog, outbox: Outbox, *, ack_wait_s: float, now: Callable[[], dt.datetime] | None = None
    ) -> None:
        self._log = log
        self._outbox = outbox
        self._store = ScheduleStore(log)
        self._ack_wait_s = ack_wait_s
        self._now = now or log.now
        self._acting = anyio.CapacityLimiter(TICKS_AT_ONCE)

    async def run(self) -> None:
        """Act on ticks until cancelled; return at once if the stream cannot deliver any."""
        log, ticks = self._log, [self._log.subjects.ticks()]
        try:
            await attend(
                log.nc, log.requests, log.stream, QUEUE, ticks, self._take, self._outbox.send, self._ack_wait_s
            )
        except NoAnswer as error:
            # The stream is busy, has no leader, or is from a version without schedules: runs must work all the same.
            logger.warning("cannot read the ticks of schedules; schedules start no runs", error=str(error))

    async def _take(self, delivery: Delivery) -> None:
        try:
            async with self._acting:
                await self._act(delivery)
        except AppendRefused:
            # The schedule has been changed, which has also set its clock.
            delivery.ack()
        except (NoAnswer, Full) as error:
            logger.warning("a schedule waits for the log", subject=delivery.subject, error=str(error))
            delivery.nak(RETRY_S)
        except (ValueError, RecursionError) as error:
            # Not published by a schedule's clock: it would be delivered again without end.
            logger.error(
                "skipped a message that is not a tick of a schedule", subject=delivery.subject, error=str(error)
            )
            delivery.ack()
        except Exception:
            # One schedule must not block the others.
            logger.exception("a schedule could not be acted on", subject=delivery.subject)
            delivery.nak(min(RETRY_S * delivery.deliveries, RETRY_MAX_S))
        else:
            delivery.ack()

    async def _act(self, delivery: Delivery) -> None:
        tenant, name = self._log.subjects.parse_tick(delivery.subject)
        tick = decode_json(delivery.data, type=Tick)
        kept = await self._store.get(tenant, name)
        if kept is None or kept.schedule.paused or kept.schedule.removed or kept.schedule.version != tick.version:
            return
        schedule = kept.schedule
        # The server decides what is due: the local clock may be late.
        now = max(self._now(), schedule.when.put_off(tick.due, name))
        wanted, following = self._due_times(schedule, tick, now)
        last, skipped, begun = tick.last, tick.skipped, False
        for due in wanted:
            if last != schedule.run_id(due) and not await self._is_free(tenant, schedule, last, begun):
                if schedule.overlap != "skip":
                    await self._look_again(tenant, kept, Tick(tick.version, due, last, skipped, queued=True))
                    return
                logger.info(
                    "due time skipped: the previous run has not ended", schedule=name, due=due.isoformat(), run=last
                )
                skipped += 1
                continue
            await self._start(tenant, schedule, due)
            last, skipped, begun = schedule.run_id(due), 0, True
        moment = schedule.when.put_off(following, name)
        await self._store.set_clock(tenant, kept, Tick(tick.version, following, last, skipped), moment)

    def _due_times(self, schedule: Schedule, tick: Tick, now: dt.datetime) -> tuple[list[dt.datetime], dt.datetime]:
        """Return the due times to start runs for (on time, or missed and to be caught up), and the next due time."""
        queued = [tick.due] if tick.queued else []
        passed = schedule.when.passed_times(tick.due, now, schedule.catch_up + ON_TIME_MAX)
        passed = [due for due in passed if due not in queued]
        late = [(now - schedule.when.put_off(due, schedule.name)).total_seconds() for due in passed]
        # A due time whose jitter has not passed waits, and so do all later ones.
        ready = next((i for i, late_s in enumerate(late) if late_s < 0), len(passed))
        following = passed[ready] if ready < len(passed) else schedule.when.after(now)
        passed, late = passed[:ready], late[:ready]
        count = schedule.catch_up + sum(late_s <= ON_TIME_S for late_s in late)
        if len(passed) > count:
            logger.warning("due times were missed", schedule=schedule.name, first=passed[0].isoformat())
        return [*queued, *(passed[-count:] if count else [])], following

    async def _is_free(self, tenant: str, schedule: Schedule, last: str, begun: bool) -> bool:
        """Whether another run may start; with overlap ``cancel``, cancel a previous run, and wait shortly for its end.

        ``begun`` says that the previous run was started just now: its log may still be empty.
        """
        if schedule.overlap == "allow" or not last:
            return True
        ref, event = await find_newest_run(self._log, RunRef(tenant, last))
        if event is None and ref.run != last:
            # It will continue the previous run, unless its start was refused, or it has ended and was purged.
            return await refusal_of_start(self._log, ref) is not None or await purge_mark(self._log, ref) is not None
        # A quarantined run does not continue either.
        if event.event.type in ev.AT_REST if event is not None else not begun:
            return True
        if schedule.overlap == "cancel":
            cancel = Cancel(id=f"{schedule.name}-overlap", by=f"schedule {schedule.name}", reason="schedule.overlap")
            subject = self._log.subjects.tell(RunRef(tenant, last), "cancel")
            await self._log.publish(OutgoingMessage(subject, msgspec.json.encode(cancel), {}))
            return await self._ends_soon(RunRef(tenant, last))
        return False

    async def _ends_soon(self, ref: RunRef) -> bool:
        """Wait shortly for the end of a run that has been cancelled; return whether it ended."""
        with anyio.move_on_after(CANCEL_PATIENCE_S):
            while True:
                await anyio.sleep(CANCEL_LOOK_S)
                _newest, event = await find_newest_run(self._log, ref)
                if event is not None and event.event.type in ev.AT_REST:
                    return True
        return False

    async def _look_again(self, tenant: str, kept: StoredSchedule, tick: Tick) -> None:
        moment = self._now() + dt.timedelta(seconds=LOOK_AGAIN_S)
        await self._store.set_clock(tenant, kept, tick, moment)

    async def _start(self, tenant: str, schedule: Schedule, due: dt.datetime) -> None:
        body = msgspec.json.encode(schedule.start_of(due))
        await self._log.publish(OutgoingMessage(self._log.subjects.start(tenant), body, {}))
