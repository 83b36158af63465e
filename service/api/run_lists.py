"""Listings: the runs and the open questions of each tenant, folded live from the log for as long as somebody asks.

The first question about a tenant reads its past, of the runs what the index has not got yet; later ones only wait
until the fold has come as far as the log.
"""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import anyio.abc

from callboard.bus.log.forks import origin_of
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.prices import Prices, list_prices
from callboard.bus.subjects import RunRef
from callboard.features.index.index_follower import Following
from callboard.features.index.store import By, RunIndex, Spending
from callboard.projections.lists.questions import TYPES, Question, Questions
from callboard.projections.lists.runs import RowStatus, RunRow
from callboard.projections.lists.where import Both, Where
from callboard.projections.projection import fold
from callboard.runtime.run.log import events_of, read_run
from callboard.runtime.run.orphans import UNREADABLE, is_orphan
from callboard.service.api.live_projection import Kept
from callboard.service.api.statuses import Statuses, depends

QUESTIONS_MAX = 10_000
"""Open questions kept per tenant, the newest; older ones are in the log."""

TENANTS_MAX = 8
"""Tenants whose listings are kept; the one that nobody has asked for the longest is put away first."""

T = TypeVar("T")


class RunPage(NamedTuple):
    """Runs of a list, whether there are more, and the stream sequence up to which that is true of all runs."""

    runs: list[RunRow]
    more: bool
    sequence: int


class _Followed(Protocol):
    failed: bool

    async def run(self) -> None: ...

    def give_up(self) -> None: ...


F = TypeVar("F", bound=_Followed)


class Listings:
    """The listings of a process. Use it inside the task group that it is given.

    ``folder`` is where the index of the runs outlives it; None: nowhere. ``prices`` say what runs have cost: the list
    prices, if none are given.
    """

    def __init__(
        self,
        log: JetStreamLog,
        tasks: anyio.abc.TaskGroup,
        folder: Path | None = None,
        tenants_max: int = TENANTS_MAX,
        prices: Prices | None = None,
    ) -> None:
        self.prices = prices or list_prices()
        self._log = log
        self._tasks = tasks
        self._folder = folder
        self._runs = _PerTenant[Following](tenants_max)
        self._statuses = Statuses(log)
        self._questions = _PerTenant[Kept[Questions]](tenants_max)

    def begin(self, tenant: str) -> None:
        """Begin to read a tenant's past before anybody asks."""
        self._kept_runs(tenant)
        self._kept_questions(tenant)

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def page(self, tenant: str, where: Where, limit: int, before: str | None = None) -> RunPage:
        """Return the first so many runs that are wanted, the newest first, as they stand in the log now.

        :raises KeyError: if ``before`` is not listed
        :raises NoAnswer: if the log does not answer, or the index does not keep up
        """

        def select(index: RunIndex) -> tuple[list[RunRow], int]:
            return index.select(where, limit + 1, before), index.sequence

        found, sequence = await self._ask(tenant, where, select)
        return RunPage(await self._statuses.told(tenant, found[:limit]), len(found) > limit, sequence)

    async def matching(self, tenant: str, where: Where) -> int:
        """How many runs are wanted. Raises as `page`."""
        return await self._ask(tenant, where, lambda index: index.matching(where))

    async def ids(self, tenant: str, where: Where) -> list[str]:
        """The ids of all runs that are wanted, the oldest first. Raises as `page`."""
        return await self._ask(tenant, where, lambda index: index.ids(where))

    async def rows(self, tenant: str) -> list[RunRow]:
        """A row for every run of the tenant, the newest first. Raises as `page`."""
        return await self._ask(tenant, Both(()), RunIndex.rows)

    async def counts(self, tenant: str) -> dict[RowStatus, int]:
        """How many runs there are of each status; of a run at work it is coarse. Raises as `page`."""
        return await self._ask(tenant, Both(()), RunIndex.counts)

    async def costs(self, tenant: str, where: Where, by: By) -> list[Spending]:
        """What the runs that are wanted have cost. Raises as `page`."""
        return await self._ask(tenant, where, lambda index: index.costs(where, by))

    async def versions(self, tenant: str) -> dict[str, int]:
        """How many runs there are of each definition, by hash. Raises as `page`."""
        return await self._ask(tenant, Both(()), RunIndex.versions)

    async def _ask(self, tenant: str, where: Where, question: Callable[[RunIndex], T]) -> T:
        following = self._kept_runs(tenant)
        await following.caught_up()
        if depends(where):
            # How runs at work stand only their own events say: all of them once, and then those that have come since.
            at_work = await following.ask(RunIndex.at_work)
            statuses = await self._statuses.all(tenant, at_work)
            await following.ask(lambda index: index.tell(statuses))
        return await following.ask(question)

    def _kept_runs(self, tenant: str) -> Following:
        return self._runs.of(tenant) or self._begun(
            self._runs, tenant, Following(self._log, tenant, self._folder, self.prices)
        )

    # -- questions ----------------------------------------------------------------------------------------------------

    async def questions(self, tenant: str) -> list[Question]:
        """Return the questions that are open in the tenant's runs as the log has them now, the oldest first.

        :raises NoAnswer: if the log does not answer, or the fold does not keep up
        """
        asked = (await self._kept_questions(tenant).caught_up()).view()
        following = self._kept_runs(tenant)
        await following.caught_up()
        # What a fork has of its origin is no event of its own that could be followed.
        shared = [await self._shared(RunRef(tenant, run)) for run in await following.ask(RunIndex.forks_open)]
        return sorted((one for some in (asked, *shared) for one in some), key=lambda one: one.since)

    async def _shared(self, fork: RunRef) -> list[Question]:
        """The questions that a fork's origin had asked, and that are open in it."""
        try:
            recorded = await read_run(self._log, fork)
        except UNREADABLE:
            if await is_orphan(self._log, fork):
                return []  # one that nobody can perform keeps no others from being told
            raise
        forked = origin_of(recorded[0].event) if recorded else None
        found = fold(Questions(), events_of(recorded))
        return [one for one in found if forked is not None and one.n <= forked.n]

    def _kept_questions(self, tenant: str) -> Kept[Questions]:
        filters = [self._log.subjects.events(tenant, event_type=one) for one in TYPES]
        kept = self._questions.of(tenant)
        return kept or self._begun(self._questions, tenant, Kept(self._log, filters, Questions(QUESTIONS_MAX)))

    def _begun(self, of: "_PerTenant[F]", tenant: str, kept: F) -> F:
        of.put(tenant, kept)
        self._tasks.start_soon(kept.run)
        return kept


class _PerTenant(Generic[F]):
    """What is kept of each tenant, of so many at once."""

    def __init__(self, tenants_max: int) -> None:
        self._tenants_max = tenants_max
        self._kept: OrderedDict[str, F] = OrderedDict()

    def of(self, tenant: str) -> F | None:
        """Return what is kept of a tenant, if it still follows the log."""
        kept = self._kept.get(tenant)
        if kept is None or kept.failed:
            return None
        self._kept.move_to_end(tenant)
        return kept

    def put(self, tenant: str, kept: F) -> None:
        self._kept[tenant] = kept
        self._kept.move_to_end(tenant)
        if len(self._kept) > self._tenants_max:
            _, oldest = self._kept.popitem(last=False)
            oldest.give_up()
