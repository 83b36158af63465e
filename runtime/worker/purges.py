"""Purges: workers finish interrupted purges, no matter which process began them, by a rule or a command.

The marks of purged runs form a queue that all workers read together. A mark is acknowledged only when nothing of its
run is left, so no purge is forgotten if a process crashes or the log is unavailable for long.
"""

import anyio
import structlog

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import finish, goes_on
from callboard.bus.nats.queue import Delivery, Outbox, attend
from callboard.bus.subjects import RunRef

logger = structlog.get_logger(__name__)

QUEUE = "purges"
"""Name of the durable consumer of all marks, which all workers read together."""

UNDER_WAY_S = 30.0
"""Time that the process which set a mark has to finish the purge itself. If both work on it, that is harmless."""

AT_ONCE = 4
RETRY_S = 1.0
RETRY_MAX_S = 300.0
"""First and longest delay before a purge is retried if the log did not answer."""


class Purges:
    """Finishes interrupted purges until it is cancelled."""

    def __init__(self, log: JetStreamLog, outbox: Outbox, *, ack_wait_s: float) -> None:
        self._log = log
        self._outbox = outbox
        self._ack_wait_s = ack_wait_s
        self._finishing = anyio.CapacityLimiter(AT_ONCE)

    async def run(self) -> None:
        """Finish interrupted purges until cancelled; return at once if the marks of the stream cannot be read."""
        log, marks = self._log, [self._log.subjects.marks()]
        try:
            await attend(
                log.nc, log.requests, log.stream, QUEUE, marks, self._take, self._outbox.send, self._ack_wait_s
            )
        except NoAnswer as error:
            logger.warning("interrupted purges cannot be finished now", error=str(error))

    async def _take(self, delivery: Delivery) -> None:
        if delivery.deliveries == 1:
            delivery.nak(UNDER_WAY_S)
            return
        try:
            ref = self._log.subjects.parse_gone(delivery.subject)
        except ValueError:
            delivery.ack()  # not from Callboard: no run can have such an id
            return
        try:
            async with self._finishing:
                await self._finish(ref)
        except NoAnswer as error:
            logger.warning("a purge waits for the log", run=ref.run, tenant=ref.tenant, error=str(error))
            delivery.nak(min(RETRY_S * delivery.deliveries, RETRY_MAX_S))
        except Exception:
            # One failing purge must not stop the others.
            logger.exception("a purge could not be finished", run=ref.run, tenant=ref.tenant)
            delivery.nak(min(RETRY_S * delivery.deliveries, RETRY_MAX_S))
        else:
            delivery.ack()

    async def _finish(self, ref: RunRef) -> None:
        if await goes_on(self._log, ref):
            logger.error("a run that has not ended is marked as purged; it is kept", run=ref.run, tenant=ref.tenant)
        elif removed := await finish(self._log, ref):
            logger.info("an interrupted purge is finished", run=ref.run, tenant=ref.tenant, messages=removed)
