"""Leadership: work that one process does at a time, though any number of them offer to do it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import uuid4

import anyio
import structlog
from nats.aio.client import Client

from callboard.lib.backoff import backoff_s
from callboard.runtime.cluster.membership import Membership
from callboard.runtime.cluster.ownership import owner

logger = structlog.get_logger(__name__)

RETRY_PAUSE_S = 0.25
"""First pause after a failure; doubled up to `RETRY_PAUSE_MAX_S`."""

RETRY_PAUSE_MAX_S = 30.0

GRACE_S = 1.0
"""How long a holder that has to stop may take to finish what it has in hand."""


class Leader(Protocol):
    """Work that one process does at a time, such as an exporter; `Leadership` runs it where it falls to this one."""

    async def run(self, orphaned: bool) -> None:
        """Serve until cancelled. ``orphaned``: whoever served before is gone, and may have left things half done."""
        ...

    def hurry(self) -> None:
        """What is in hand may be finished within `GRACE_S`; a cancellation follows."""
        ...


class Leadership:
    """Held by one of the processes that stand for it, chosen by rendezvous hashing over those that live.

    Views may differ for a moment, and then two hold it: a holder must be able to stand that.
    """

    def __init__(self, nc: Client, subject: str, name: str, holder: Leader, store: str = "") -> None:
        self._membership = Membership(nc, subject, name, self._changed, store=store)
        self._name = name
        self._holder = holder
        self._serving: anyio.CancelScope | None = None
        self._incumbent: str | None = None
        self._orphaned = False
        self._news = anyio.Event()

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._serving is not None

    async def run(self) -> None:
        """Stand for election, and lead whenever it is ours, until cancelled."""
        # The others learn that we are gone only after we have finished what we had in hand.
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

    def _changed(self) -> None:
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
    """Run something that should never end, again whenever it fails: what only watches must not break the rest."""
    failed = 0
    while True:
        started = anyio.current_time()
        try:
            await body()
        except Exception:
            logger.exception("failed and starts again", what=what)
        failed = 1 if anyio.current_time() - started > RETRY_PAUSE_MAX_S else failed + 1
        await anyio.sleep(backoff_s(failed, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S))


@asynccontextmanager
async def holding(nc: Client, holders: Mapping[str, Leader], store: str) -> AsyncGenerator[None]:
    """Offer to lead for the length of the block; the holders stand by the subjects on which it is settled who does.

    ``store`` is the mark of the stream that the work is about.
    """
    me = uuid4().hex
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for subject, holder in holders.items():
            tasks.start_soon(persistently, subject, Leadership(nc, subject, me, holder, store).run)
        try:
            yield
        except Exception as caught:
            # Raised below: the task group would wrap it.
            error = caught
        finally:
            for holder in holders.values():
                holder.hurry()
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error
