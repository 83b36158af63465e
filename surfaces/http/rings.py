"""Ring buffers of the newest events, so that any number of readers with the same filters read the log only once.

Readers with the same filters share a consumer, and the ring that it fills. Each reader has a position in the ring. A
reader that is too slow for the ring, or starts before it, reads from the log at its own pace until it has caught up.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import takewhile
from typing import NamedTuple

import anyio
import anyio.abc
import structlog

from callboard.bus.log.port import NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api

logger = structlog.get_logger(__name__)

EVENTS_MAX = 2_048
BYTES_MAX = 4 * 1024 * 1024
"""Bounds of a ring; the oldest events are dropped first."""

RINGS_MAX = 64
"""Maximum number of rings; readers with other filters then read the log separately."""


class RingFrame(NamedTuple):
    """An event in the format that readers get; or the first frame, with the sequence after which the events follow."""

    sequence: int
    frame: bytes


class Ring:
    """The newest events that match some filters: all of them after the sequence ``base``."""

    def __init__(self, log: JetStreamLog, filters: Sequence[str]) -> None:
        self._log = log
        self._filters = filters
        self._told: deque[RingFrame] = deque()
        self._bytes = 0
        self._grown = anyio.Event()
        self._ready = anyio.Event()
        self.base = 0
        self.readers = 0
        self.scope = anyio.CancelScope()
        self.over = False

    async def run(self) -> None:
        """Read events from the log until cancelled."""
        with content_guard():
            await self._run()

    async def _run(self) -> None:
        try:
            with self.scope:
                self.base = await _last_sequence(self._log)
                async with self._log.follow(self._filters, self.base) as feed:
                    self._ready.set()
                    async for told in _read_frames(feed):
                        self._take(told)
        except NoAnswer as error:
            logger.warning("followed events cannot be read", error=str(error))
        except Exception:
            logger.exception("followed events cannot be read")
        finally:
            # Readers reconnect with the id of their last event.
            self.over = True
            self._ready.set()
            self._grown.set()

    def _take(self, told: RingFrame) -> None:
        self._told.append(told)
        self._bytes += len(told.frame)
        while len(self._told) > EVENTS_MAX or self._bytes > BYTES_MAX:
            gone = self._told.popleft()
            self._bytes -= len(gone.frame)
            self.base = gone.sequence
        grown, self._grown = self._grown, anyio.Event()
        grown.set()

    async def now(self) -> int:
        """Return the sequence after which the ring has no events yet.

        :raises NoAnswer: if the log cannot be read
        """
        await self._ready.wait()
        if self.over:
            raise NoAnswer("the followed events cannot be read")
        return self._told[-1].sequence if self._told else self.base

    async def behind(self, sequence: int) -> list[RingFrame] | None:
        """Wait for events after a sequence and return them; None if the ring no longer has all of them.

        :raises NoAnswer: if the log cannot be read
        """
        while await self.now() <= sequence:
            await self._grown.wait()
        if sequence < self.base:
            return None
        # Most readers need only the last event.
        return list(takewhile(lambda told: told.sequence > sequence, reversed(self._told)))[::-1]


class Rings:
    """The rings of a process."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log
        self._rings: dict[tuple[str, ...], Ring] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Run rings for the length of the block. Outside of it, every reader reads the log separately."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()
        self._tasks = None

    async def follow(self, filters: Sequence[str], after: int | None) -> AsyncGenerator[RingFrame]:
        """Yield the position of the start, and then all matching events after a sequence (None: new ones), without end.

        :raises NoAnswer: if the log cannot be read
        """
        async with self._join_ring(filters) as ring:
            at = await self._now(ring) if after is None else after
            yield RingFrame(at, b"id: %d\n\n" % at)
            if ring is None:
                async with self._log.follow(filters, at) as feed:
                    async for told in _read_frames(feed):
                        yield told
            else:
                while True:
                    held = await ring.behind(at) if at >= ring.base else None
                    if held is None:
                        async with aclosing(self._from_log(filters, at, ring)) as missed:
                            async for told in missed:
                                yield told
                                at = told.sequence
                        continue
                    for told in held:
                        yield told
                        at = told.sequence

    async def _now(self, ring: Ring | None) -> int:
        return await ring.now() if ring is not None else await _last_sequence(self._log)

    async def _from_log(self, filters: Sequence[str], after: int, ring: Ring) -> AsyncGenerator[RingFrame]:
        """Yield events from the log until the ring contains all later ones."""
        await ring.now()
        async with self._log.follow(filters, after) as feed:
            async for told in _read_frames(feed):
                yield told
                if told.sequence >= ring.base:
                    return

    @asynccontextmanager
    async def _join_ring(self, filters: Sequence[str]) -> AsyncGenerator[Ring | None]:
        key = tuple(filters)
        ring = self._rings.get(key)
        if ring is not None and ring.over:
            ring = None  # A slow reader still uses the ended ring, so it cannot be replaced yet.
        if ring is None and self._tasks is not None and len(self._rings) < RINGS_MAX:
            ring = self._rings[key] = Ring(self._log, key)
            self._tasks.start_soon(ring.run)
        if ring is None:
            yield None
            return
        ring.readers += 1
        try:
            yield ring
        finally:
            ring.readers -= 1
            if not ring.readers:
                ring.scope.cancel()
                if self._rings.get(key) is ring:
                    del self._rings[key]


async def _last_sequence(log: JetStreamLog) -> int:
    """Return the sequence of the last message in the stream."""
    answer = await api(log.requests, f"STREAM.INFO.{log.stream}", {})
    if "error" in answer:
        raise NoAnswer(str(answer["error"].get("description")))
    return answer["state"]["last_seq"]


async def _read_frames(feed: AsyncIterator[Recorded]) -> AsyncGenerator[RingFrame]:
    """Yield the events of a feed as frames. Messages that are not events are skipped."""
    async for recorded in feed:
        if recorded.readable:
            yield RingFrame(recorded.sequence, frame_of(recorded))


def frame_of(recorded: Recorded) -> bytes:
    """Return a server-sent event whose id is the stream sequence."""
    lines = (str(recorded.sequence).encode(), recorded.event.type.encode(), recorded.public_form)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % tuple(map(one_line, lines))


def one_line(text: bytes) -> bytes:
    """Replace line breaks, so that a text fits into a field of a server-sent event; JSON keeps its meaning."""
    return text.replace(b"\n", b" ").replace(b"\r", b" ")
