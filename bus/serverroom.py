"""The room of an embedded server: its bound follows what the disk has left, and a server that broke off starts anew.

A server whose disk is full when it writes never writes again, however much room there is later. So its bound is kept
below the end of the disk, whoever fills that: beyond the bound it refuses, and takes in again when the bound is higher.
A running server can be told of a higher bound; for a lower one it has to be started anew.
"""

import os
import signal

import anyio
import structlog
from anyio import to_thread

from callboard.bus.errors import StoreFull, StoreUnusable
from callboard.bus.serverprogram import Usage, usage
from callboard.bus.serverstore import ServerStore

log = structlog.get_logger(__name__)

RAISE_BELOW_BYTES = 64 * 1024 * 1024
"""A server that may still take in more than this need not know that the disk has room for more."""

LOWER_BELOW_BYTES = 256 * 1024 * 1024
"""As long as the disk has room for more than this, a server may believe that there is still more."""

SLACK_BYTES = 1024 * 1024
"""Smaller differences do not count."""

RENEW_PAUSE_S = 5.0
RENEW_PAUSE_MAX_S = 300.0
"""Shortest time between two new starts; doubled with each that follows soon after another."""

GAINED_BYTES = 4 * 1024 * 1024
"""A disk that has so much more room than at the last start has been cleared."""

CANNOT_WRITE = "write error"
"""In what an ill server says."""


class ServerRoom:
    """Keeps a running server within the room that its store has."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._renew_pause_s = RENEW_PAUSE_S
        self._renewed_at: float | None = None
        self._free_then = 0

    async def usage(self, monitoring_port: int) -> Usage | None:
        """Return how much the server holds, and how much the disk lets it hold by now; None if it does not say."""
        told = await usage(monitoring_port)
        return await self._now(told) if told is not None else None

    async def _now(self, told: Usage) -> Usage:
        self._store.used = told.used
        return Usage(told.used, await to_thread.run_sync(self._store.bytes_max))

    async def fit(self, pid: int, monitoring_port: int, ill: str) -> str:
        """Look whether a server's bound fits what the disk has left, and raise it if need be.

        ``ill`` is what the server says of its health. Return why it should be started anew; nothing if it need not.
        """
        if CANNOT_WRITE in ill:
            could = await to_thread.run_sync(self._store.takes)
            return "it could not write, and there is room" if could and await self._may_renew() else ""
        told = await usage(monitoring_port) if not ill else None
        if told is None:
            return ""
        try:
            now = await self._now(told)
            if told.left < RAISE_BELOW_BYTES and now.left > max(told.left, 0) + min(SLACK_BYTES, now.left // 10):
                await to_thread.run_sync(self._store.tell_bytes_max, now.most)
                os.kill(pid, signal.SIGHUP)
                log.info("embedded server may hold more", used_bytes=now.used, bytes_max=now.most)
        except (StoreFull, StoreUnusable) as error:
            log.warning("embedded server cannot be told how much room there is", error=str(error))
            return ""
        too_much = now.left < LOWER_BELOW_BYTES and told.left > 2 * max(now.left, 0) + SLACK_BYTES
        return "it believes to have more room than its disk has left" if too_much and await self._may_renew() else ""

    async def _may_renew(self) -> bool:
        """Whether the server may be started again now. Starts in a row wait ever longer, unless the disk has gained
        room since the last one: then the reason of the last failure is gone."""
        now, free = anyio.current_time(), await to_thread.run_sync(self._store.free)
        gained = free > self._free_then + GAINED_BYTES
        if self._renewed_at is not None and now < self._renewed_at + self._renew_pause_s and not gained:
            return False
        self._free_then = free
        lately = self._renewed_at is not None and now < self._renewed_at + 2 * RENEW_PAUSE_MAX_S
        self._renew_pause_s = min(2 * self._renew_pause_s, RENEW_PAUSE_MAX_S) if lately else RENEW_PAUSE_S
        self._renewed_at = now
        return True
