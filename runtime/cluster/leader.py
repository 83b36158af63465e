"""Leadership: work that one process at a time performs, elected among all processes that offer to."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import uuid4

import anyio
import structlog
from nats.aio.client import Client

from callboard.lib.backoff import backoff_s
from callboard.lib.concurrency import background_tasks
from callboard.runtime.cluster.code_hosts import owner
from callboard.runtime.cluster.membership import Membership

logger = structlog.get_logger(__name__)

RETRY_PAUSE_S = 0.25
"""First pause after a failure; doubled up to `RETRY_PAUSE_MAX_S`."""

RETRY_PAUSE_MAX_S = 30.0

GRACE_S = 1.0
"""How long a holder that has to stop may take to finish its current work."""


class Leader(Protocol):
    """Work that one process at a time performs, such as an exporter; `Leadership` runs it in the elected process."""

    async def run(self, orphaned: bool) -> None:
        """Serve until cancelled. ``orphaned``: the previous holder is gone, and may have left work half done."""
        ...

    def hurry(self) -> None:
        """Finish the current work within `GRACE_S`; a cancellation follows."""
        ...


class Leadership:
    """Held by one of the candidate processes, chosen by rendezvous hashing over the live ones.

    While their views differ, two processes may hold it at once: a holder must tolerate that.
    """

    def __init__(self, nc: Client, subject: str, name: str, holder: Leader, store: str = "") -> None:
        self._membership = Membership(nc, subject, name, self._update_incumbent, store=store)
        self._name = name
        self._holder = holder
        self._serving: anyio.CancelScope | None = None
        self._incumbent: str | None = None
        self._orphaned = False
        self._news = anyio.Event()

    @property
    def held(self) -> bool:
        """Whether this process is the leader."""
        return self._serving is not None

    async def run(self) -> None:
        """Be a candidate until cancelled, and serve while this process is the leader."""
        # The other processes learn that this one has left only after it has finished its current work.
        members = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_within, members, self._membership.run)
            try:
                while True:
                    while self._incumbent != self._name:
                        self._news = anyio.Event()
                        await self._news.wait()
                    await self._serve()
            finally:
                members.cancel()

    async def _serve(self) -> None:
        try:
            with anyio.CancelScope() as self._serving:
                await self._holder.run(self._orphaned)
        finally:
            self._serving = None

    def hurry(self) -> None:
        """Prepare for a cancellation, as `Leader.hurry`."""
        self._holder.hurry()

    def _update_incumbent(self) -> None:
        live = self._membership.live()
        before, self._incumbent = self._incumbent, owner(0, live)
        if before != self._incumbent:
            self._orphaned = before not in live if before else len(live) == 1
        if self._incumbent != self._name and self._serving is not None:
            self._holder.hurry()
            self._serving.cancel()
        self._news.set()


async def _within(scope: anyio.CancelScope, body: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await body()


async def persistently(what: str, body: Callable[[], Awaitable[None]]) -> None:
    """Run a task that should never end, and restart it after each failure: an observer must not break the process."""
    failed = 0
    while True:
        started = anyio.current_time()
        try:
            await body()
        except Exception:
            logger.exception("task failed and is restarted", what=what)
        failed = 1 if anyio.current_time() - started > RETRY_PAUSE_MAX_S else failed + 1
        await anyio.sleep(backoff_s(failed, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S))


@asynccontextmanager
async def holding(nc: Client, holders: Mapping[str, Leader], store: str) -> AsyncGenerator[None]:
    """Be a candidate for the length of the block; the keys of ``holders`` are the subjects of the elections.

    ``store`` identifies the stream that the work is about.
    """
    me = uuid4().hex
    async with background_tasks() as tasks:
        for subject, holder in holders.items():
            tasks.start_soon(persistently, subject, Leadership(nc, subject, me, holder, store).run)
        try:
            yield
        finally:
            for holder in holders.values():
                holder.hurry()
