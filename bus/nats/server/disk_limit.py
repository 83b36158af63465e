"""The size limit of an embedded server's store: it follows the free space of the disk, to prevent write errors.

After a write error on a full disk, a server never writes again, even if there is space later; it has to be restarted.
So the limit stays below the capacity of the disk, also when other programs fill the disk. At the limit the server
refuses messages, and accepts them again when the limit is raised. A running server can apply a higher limit; a lower
one needs a restart.
"""

import os
import signal
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from callboard.bus.errors import StoreFull, StoreUnusable
from callboard.bus.nats.server.data_directory import ServerStore, running_ports
from callboard.bus.nats.server.program import StoreUsage, usage

log = structlog.get_logger(__name__)

RAISE_BELOW_BYTES = 64 * 1024 * 1024
"""The limit is raised only when the server has less space left than this."""

LOWER_BELOW_BYTES = 256 * 1024 * 1024
"""The limit is lowered only when the disk has less space left than this."""

SLACK_BYTES = 1024 * 1024
"""Smaller differences are ignored."""

RENEW_PAUSE_S = 5.0
RENEW_PAUSE_MAX_S = 300.0
"""Shortest time between two restarts. It is doubled with each restart that follows soon after another."""

GAINED_BYTES = 4 * 1024 * 1024
"""If the free space has grown by this since the last restart, an operator has freed space."""

CANNOT_WRITE = "write error"
"""Part of the health message of a server that had a write error."""


async def running_usage(data_dir: str | Path) -> StoreUsage | None:
    """Return the size of the store of a data directory, whose server any process runs, and its maximum; None if no
    server reports them."""
    ports = running_ports(data_dir)
    return await usage(ports.monitoring_port) if ports is not None else None


class ServerSpace:
    """Keeps a running server within the space that its disk has."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._renew_pause_s = RENEW_PAUSE_S
        self._renewed_at: float | None = None
        self._free_then = 0

    async def usage(self, monitoring_port: int) -> StoreUsage | None:
        """Return the size of the store and the maximum that the disk currently allows; None if the server does not
        report its size."""
        told = await usage(monitoring_port)
        return await self._now(told) if told is not None else None

    async def _now(self, told: StoreUsage) -> StoreUsage:
        self._store.used = told.used
        return StoreUsage(told.used, await to_thread.run_sync(self._store.bytes_max))

    async def fit(self, pid: int, monitoring_port: int, ill: str) -> str:
        """Compare a server's size limit with the free space of the disk, and raise the limit if necessary.

        ``ill`` is the server's health problem. Return why the server should be restarted, empty if it need not be.
        """
        if CANNOT_WRITE in ill:
            could = await to_thread.run_sync(self._store.takes)
            return "it had a write error, and the disk has space now" if could and await self._may_renew() else ""
        told = await usage(monitoring_port) if not ill else None
        if told is None:
            return ""
        try:
            now = await self._now(told)
            if told.left < RAISE_BELOW_BYTES and now.left > max(told.left, 0) + min(SLACK_BYTES, now.left // 10):
                await to_thread.run_sync(self._store.tell_bytes_max, now.most)
                os.kill(pid, signal.SIGHUP)
                log.info("size limit of the embedded server was raised", used_bytes=now.used, bytes_max=now.most)
        except (StoreFull, StoreUnusable) as error:
            log.warning("size limit of the embedded server cannot be changed", error=str(error))
            return ""
        too_much = now.left < LOWER_BELOW_BYTES and told.left > 2 * max(now.left, 0) + SLACK_BYTES
        return "its size limit exceeds the free space of its disk" if too_much and await self._may_renew() else ""

    async def has_gained(self, ill: str) -> bool:
        """Return whether a server was started on a full disk, and the disk has space now. Then it had a write error, or
        its size limit is below the size of its store. ``ill`` is the server's health problem."""
        if CANNOT_WRITE in ill:
            return await to_thread.run_sync(self._store.takes) and await self._may_renew()
        try:
            limit = self._store.configured_bytes_max()
            used = await to_thread.run_sync(self._store.bytes_used)
            if limit >= used + SLACK_BYTES:
                return False
            most = await to_thread.run_sync(self._store.bytes_max)
        except (StoreFull, StoreUnusable):
            return False
        return most > max(limit, used) + GAINED_BYTES and await to_thread.run_sync(self._store.takes)

    async def _may_renew(self) -> bool:
        """Return whether the server may be restarted now. Successive restarts have growing pauses between them, unless
        the disk has gained space since the last one, which removes the reason of the last failure."""
        now, free = anyio.current_time(), await to_thread.run_sync(self._store.free)
        gained = free > self._free_then + GAINED_BYTES
        if self._renewed_at is not None and now < self._renewed_at + self._renew_pause_s and not gained:
            return False
        self._free_then = free
        lately = self._renewed_at is not None and now < self._renewed_at + 2 * RENEW_PAUSE_MAX_S
        self._renew_pause_s = min(2 * self._renew_pause_s, RENEW_PAUSE_MAX_S) if lately else RENEW_PAUSE_S
        self._renewed_at = now
        return True
