"""Purges that were broken off are finished by the workers, whoever began them, by a rule or a command.

The marks of purged runs are a queue that all workers read together: a mark is done with when nothing of its run is
left, so none is forgotten, whoever dies, and however long the log is away.
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
"""The durable consumer of all marks, which all workers read together."""

UNDER_WAY_S = 30.0
"""Who has set a mark is at it still for so long; to be met with does neither any harm."""

AT_ONCE = 4
RETRY_S = 1.0
RETRY_MAX_S = 300.0
"""How soon it is tried again where there was no answer, at first and at most."""


class Purges:
    """Finishes what others have broken off, until it is cancelled."""

    def __init__(self, log: JetStreamLog, outbox: Outbox, *, ack_wait_s: float) -> None:
        self._log = log
        self._outbox = outbox
        self._ack_wait_s = ack_wait_s
        self._finishing = anyio.CapacityLimiter(AT_ONCE)

    async def run(self) -> None:
        """Finish what is broken off until cancelled; return at once if the stream has no marks to be read."""
        log, marks = self._log, [self._log.subjects.marks()]
        try:
            await attend(
                log.nc, log.requests, log.stream, QUEUE, marks, self._take, self._outbox.send, self._ack_wait_s
            )
        except NoAnswer as error:
            logger.warning("purges that are broken off are not finished as yet", error=str(error))

    async def _take(self, delivery: Delivery) -> None:
        if delivery.deliveries == 1:
            delivery.nak(UNDER_WAY_S)
            return
        try:
            ref = self._log.subjects.parse_gone(delivery.subject)
        except ValueError:
            delivery.ack()  # a stranger's, of no run that there could be
            return
        try:
            async with self._finishing:
                await self._finish(ref)
        except NoAnswer as error:
            logger.warning("a purge waits for the log", run=ref.run, tenant=ref.tenant, error=str(error))
            delivery.nak(min(RETRY_S * delivery.deliveries, RETRY_MAX_S))
        except Exception:
            # One run must not keep the others from being finished.
            logger.exception("a purge could not be finished", run=ref.run, tenant=ref.tenant)
            delivery.nak(min(RETRY_S * delivery.deliveries, RETRY_MAX_S))
        else:
            delivery.ack()

    async def _finish(self, ref: RunRef) -> None:
        if await goes_on(self._log, ref):
            logger.error("a run that goes on is marked as purged, and stays", run=ref.run, tenant=ref.tenant)
        elif removed := await finish(self._log, ref):
            logger.info("a purge that was broken off is finished", run=ref.run, tenant=ref.tenant, messages=removed)
