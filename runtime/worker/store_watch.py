"""The store watch: says in a worker's log how the store stands, before it is full and when it is."""

from typing import Any

import anyio
import structlog

from callboard.bus.asking import api
from callboard.bus.errors import StreamBounded
from callboard.bus.log import Full, NoAnswer
from callboard.bus.serverprogram import Usage
from callboard.bus.stream import bounds_of
from callboard.runtime.api.connection import Connection

logger = structlog.get_logger(__name__)

LOOK_S = 5.0

SCARCE_SHARE = 0.9
ENOUGH_SHARE = 0.85
"""Beyond the one share of what it may hold a store is said to be nearly full, and not again before it was below the
other."""

CLOSE_SHARE = 0.9
"""Beyond this share of bounds that somebody has given the stream nothing more is brought in."""


def say_room(full: Full | None) -> None:
    """Log that the stream takes nothing in, or that it does again."""
    if full is None:
        logger.warning("the store takes in again what it is given")
        return
    told = full.told()
    logger.error("the store takes nothing in", code=told.code, reason=full.reason, remedy=told.remedy)


class StoreWatch:
    """Looks at the store every now and then."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._scarce = False
        self._bounded = False
        connection.log.room.listen(say_room)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                await self._look()
            except NoAnswer as error:
                logger.debug("the store could not be looked at", error=str(error))
            await anyio.sleep(LOOK_S)

    async def _look(self) -> None:
        usages = [usage for usage in (await self._of_server(), await self._of_account()) if usage is not None]
        fullest = max(usages, key=lambda usage: usage.share, default=None)
        if fullest is not None and fullest.share > SCARCE_SHARE and not self._scarce:
            self._scarce = True
            logger.warning(
                "the store is nearly full",
                used=f"{fullest.share:.0%}",
                used_bytes=fullest.used,
                bytes_max=fullest.most,
                remedy="Make room before it is: free disk space, raise the limit, or remove runs that are over.",
            )
        elif fullest is None or fullest.share < ENOUGH_SHARE:
            self._scarce = False
        await self._check_bounds()

    async def _of_server(self) -> Usage | None:
        """The usage of the embedded server's disk, if the server is ours."""
        return await self._connection.server.usage() if self._connection.server is not None else None

    async def _of_account(self) -> Usage | None:
        """The usage of our account's quota, if it has one."""
        answer = await api(self._connection.log.requests, "INFO", {})
        most = answer.get("limits", {}).get("max_storage", -1)
        return Usage(answer["storage"], most) if most > 0 else None

    async def _check_bounds(self) -> None:
        """Say so if somebody has given the stream bounds meanwhile, and bring nothing in before it drops anything."""
        answer = await api(self._connection.log.requests, f"STREAM.INFO.{self._connection.log.stream}", {})
        bounds = bounds_of(answer.get("config", {}))
        if bounds and not self._bounded:
            told = StreamBounded(self._connection.log.stream, bounds)
            logger.error("the stream has bounds", code=told.code, reason=told.message, remedy=told.remedy)
        self._bounded = bool(bounds)
        state: dict[str, Any] = answer.get("state", {})
        held = {"max_bytes": state.get("bytes", 0), "max_msgs": state.get("messages", 0)}
        share = max((held[name] / bound for name, bound in bounds.items() if name in held), default=0.0)
        reason = f"the stream has bounds beyond which it drops its oldest events, and holds {share:.0%} of them"
        self._connection.log.room.close(Full(reason) if share > CLOSE_SHARE else None)
