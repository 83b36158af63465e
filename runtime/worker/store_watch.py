"""The store watch: logs when the store fills up, is nearly full and is full."""

from typing import Any

import anyio
import structlog

from callboard.bus.errors import StreamBounded
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.server.disk_limit import running_usage
from callboard.bus.nats.server.program import StoreUsage
from callboard.bus.nats.stream import bounds_of, lost_bytes
from callboard.runtime.client.connection import Connection

logger = structlog.get_logger(__name__)

LOOK_S = 5.0

CLOCK_WARN_S = 2.0
"""A difference of this size between the local clock and the server's is logged."""

LEVELS = ((0.75, "the store fills up"), (0.9, "the store is nearly full"))
"""The share of its capacity above which each message is logged."""

SLACK_SHARE = 0.05
"""A message is not repeated until the store has been below its share by this much."""

CLOSE_SHARE = 0.9
"""Above this share of bounds that were set on the stream, no further messages are accepted."""


def say_room(full: Full | None) -> None:
    """Log that the stream accepts no messages, or that it accepts them again."""
    if full is None:
        logger.warning("the store accepts messages again")
        return
    error = full.store_full_error()
    logger.error("the store accepts no messages", code=error.code, reason=full.reason, remedy=error.remedy)


class StoreWatch:
    """Checks the store periodically. ``nearby`` says that the server is the embedded one of the data directory, which
    the parent of this process runs."""

    def __init__(self, connection: Connection, *, nearby: bool = False) -> None:
        self._connection = connection
        self._nearby = nearby
        self._level = 0
        self.share: float | None = None
        """The used share of the store's capacity, 1 if it is full; None if no limit is known."""
        self._said: StoreUsage | None = None
        self._bounded = False
        self._loss_checked = False
        self._clock_differs = False
        connection.log.room.listen(say_room)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                await self._look()
            except NoAnswer as error:
                logger.debug("the store could not be checked", error=str(error))
            await anyio.sleep(LOOK_S)

    async def _look(self) -> None:
        usages = [usage for usage in (await self._of_server(), await self._of_account()) if usage is not None]
        fullest = max(usages, key=lambda usage: usage.share, default=None)
        self.share = fullest.share if fullest is not None else None
        level = self._level_of(fullest.share if fullest is not None else 0.0)
        if fullest is not None and level > self._level:
            logger.warning(
                LEVELS[level - 1][1],
                used=f"{fullest.share:.0%}",
                used_bytes=fullest.used,
                bytes_max=fullest.most,
                remedy="Make space before it is full: free disk space, raise the limit, or purge runs that have ended.",
            )
        self._level = level
        await self._check_bounds()
        if not self._loss_checked:
            await self._check_loss()

    def _check_clock(self) -> None:
        """Log that the clocks of this machine and the server have drifted apart or agree again."""
        ahead_s = self._connection.log.clock.ahead_s
        differs = abs(ahead_s) >= CLOCK_WARN_S
        if differs and not self._clock_differs:
            remedy = "Synchronise both machines, by NTP for example. Runs use the server's clock."
            logger.warning("the clock differs from the server's", ahead_s=round(ahead_s, 1), remedy=remedy)
        elif self._clock_differs and not differs:
            logger.info("the clock agrees with the server's again")
        self._clock_differs = differs

    def _level_of(self, share: float) -> int:
        """The number of levels that a share exceeds; a reached level is left a little below its share."""
        return sum(
            share > from_ - (SLACK_SHARE if place < self._level else 0) for place, (from_, _) in enumerate(LEVELS)
        )

    async def _of_server(self) -> StoreUsage | None:
        """The usage of the embedded server's disk, if this process or its parent runs it."""
        # A server that does not answer is as full as before.
        if self._connection.server is not None:
            self._said = await self._connection.server.usage() or self._said
        elif self._nearby:
            self._said = await running_usage(self._connection.config.data_dir) or self._said
        return self._said

    async def _of_account(self) -> StoreUsage | None:
        """The usage of our account's quota, if it has one."""
        answer = await api(self._connection.log.requests, "INFO", {})
        most = answer.get("limits", {}).get("max_storage", -1)
        return StoreUsage(answer["storage"], most) if most > 0 else None

    async def _check_loss(self) -> None:
        """Log that the server has dropped messages, which it does when it starts with a damaged file."""
        lost = await lost_bytes(self._connection.log.requests, self._connection.log.stream)
        if lost:
            remedy = "Run `callboard verify`. Import runs that are missing or damaged from an archive."
            logger.error("the store has lost messages", lost_bytes=lost, remedy=remedy)
        self._loss_checked = True

    async def _check_bounds(self) -> None:
        """Log bounds that were set on the stream, and stop accepting messages before the stream drops any."""
        log = self._connection.log
        answer = await log.clock.measure(log.requests, log.stream)
        self._check_clock()
        bounds = bounds_of(answer.get("config", {}))
        if bounds and not self._bounded:
            error = StreamBounded(self._connection.log.stream, bounds)
            logger.error("the stream has bounds", code=error.code, reason=error.message, remedy=error.remedy)
        self._bounded = bool(bounds)
        state: dict[str, Any] = answer.get("state", {})
        held = {"max_bytes": state.get("bytes", 0), "max_msgs": state.get("messages", 0)}
        share = max((held[name] / bound for name, bound in bounds.items() if name in held), default=0.0)
        reason = f"the stream has bounds beyond which it drops its oldest events, and holds {share:.0%} of them"
        self._connection.log.room.close(Full(reason) if share > CLOSE_SHARE else None)
