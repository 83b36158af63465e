"""Listings: the runs of each tenant, folded live from the log for as long as somebody asks for them.

The first question about a tenant reads its past; later ones only wait until the fold has come as far as the log.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
import structlog

from callboard.bus.asking import api
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import NoAnswer, Recorded, whole
from callboard.projections.runs import RunRow, Runs

logger = structlog.get_logger(__name__)

RUNS_MAX = 10_000
"""Runs listed per tenant, the newest; older ones are in the log."""

TENANTS_MAX = 64
"""Tenants whose listings are kept; the one that nobody has asked for the longest is put away first."""

CATCH_UP_WAIT_S = 20.0
"""How long a question waits until the fold has come as far as the log."""

_NOT_FOUND = 10037


class Listings:
    """The listings of a process. Use it inside the task group that it is given."""

    def __init__(self, log: JetStreamLog, tasks: anyio.abc.TaskGroup, tenants_max: int = TENANTS_MAX) -> None:
        self._log = log
        self._tasks = tasks
        self._tenants_max = tenants_max
        self._listings: OrderedDict[str, _Listing] = OrderedDict()

    async def rows(self, tenant: str) -> list[RunRow]:
        """Return the tenant's runs as the log has them now, the newest first.

        :raises NoAnswer: if the log does not answer, or the fold does not keep up
        """
        listing = self._listings.get(tenant)
        if listing is None or listing.failed:
            listing = self._listings[tenant] = _Listing(self._log, tenant)
            self._tasks.start_soon(listing.run)
            if len(self._listings) > self._tenants_max:
                _, oldest = self._listings.popitem(last=False)
                oldest.give_up()
        self._listings.move_to_end(tenant)
        return await listing.rows()


class _Listing:
    """One tenant's runs."""

    def __init__(self, log: JetStreamLog, tenant: str) -> None:
        self._log = log
        self._tenant = tenant
        self._filter = log.subjects.events(tenant, event_type="run.>")
        self._runs = Runs(RUNS_MAX)
        self._sequence = 0
        self._grown = anyio.Event()
        self.scope = anyio.CancelScope()
        self.failed = False

    async def run(self) -> None:
        """Fold until cancelled."""
        try:
            with self.scope:
                async with self._log.follow(self._filter, 0) as feed:
                    async for recorded in feed:
                        await self._take(recorded)
        except Exception:
            # The next question begins anew.
            logger.exception("listing failed", tenant=self._tenant)
            self.give_up()

    def give_up(self) -> None:
        """Fold no more; whoever waits is told."""
        self.scope.cancel()
        self.failed = True
        self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, anyio.Event()
        grown.set()

    async def _take(self, recorded: Recorded) -> None:
        try:
            self._runs.apply(recorded.event)
        except msgspec.ValidationError:
            # A member that this needs is stored beside the event; few have any, so they are fetched only now.
            self._runs.apply(await whole(self._log, recorded))
        self._sequence = recorded.sequence
        self._wake()
        await anyio.lowlevel.checkpoint()

    async def rows(self) -> list[RunRow]:
        last = await self._last()
        with anyio.move_on_after(CATCH_UP_WAIT_S):
            while self._sequence < last and not self.failed:
                await self._grown.wait()
        if self._sequence < last:
            raise NoAnswer(f"the listing is at {self._sequence} of {last}")
        return self._runs.view()

    async def _last(self) -> int:
        """Return the sequence of the last event that counts here, 0 if there is none."""
        answer = await api(self._log.requests, f"STREAM.MSG.GET.{self._log.stream}", {"last_by_subj": self._filter})
        if "error" in answer:
            if answer["error"].get("err_code") == _NOT_FOUND:
                return 0
            raise NoAnswer(str(answer["error"].get("description")))
        return answer["message"]["seq"]


Rows = Callable[[str], Awaitable[list[RunRow]]]
"""Takes a tenant."""
