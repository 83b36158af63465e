"""The protocol of an HTTP connection, with two bounds that uvicorn lacks: the time for the head of a request, and the
number of connections. So clients that send nothing cannot lock out others."""

import asyncio
import resource
from typing import Any, cast

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

logger = structlog.get_logger(__name__)

HEAD_WAIT_S = 20.0
"""How long the head of a request may take to arrive, counted from the connection or the previous response."""

CONNECTIONS_MAX = 4_000
DESCRIPTORS_SHARE = 0.5
"""Maximum number of connections, and the share of this process's file descriptors that they may take. The other
descriptors are for files and for the connection to NATS."""

LOG_EVERY_S = 10.0
"""Minimum time between two log entries about refused connections."""


def connections_max() -> int:
    """Return the maximum number of connections of this process."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, int(descriptors * DESCRIPTORS_SHARE)))


class BoundedProtocol(H11Protocol):
    """One connection. It is closed if there are too many, or if the head of a request does not arrive in time."""

    head_wait_s = HEAD_WAIT_S
    _logged_at = 0.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > connections_max():
            self._log_refusal()
            transport.abort()
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is h11.IDLE:
            self._expect_head()
        else:
            self._stop_waiting()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_wait_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        cast("Any", self.transport).abort()

    def _log_refusal(self) -> None:
        now = self.loop.time()
        if now - BoundedProtocol._logged_at >= LOG_EVERY_S:
            BoundedProtocol._logged_at = now
            logger.warning("too many connections; new ones are refused", most=connections_max())
