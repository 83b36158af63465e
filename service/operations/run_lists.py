"""The lists of runs and open questions of each tenant, folded live from the log.

The first request for a tenant reads its whole log, except for the runs in the index. Later requests only wait until the
fold has caught up with the log. If the fold lags far, a page does not wait for it: it is read from the end of the
log. Only the lists of the most recently requested tenants are kept.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import anyio
import anyio.abc

from callboard.bus.log.forks import origin_of
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.server.data_directory import running_url
from callboard.bus.prices import Prices, list_prices
from callboard.bus.subjects import RunRef
from callboard.features.index.files import FOLDER
from callboard.features.index.index_follower import IndexFollower
from callboard.features.index.newest_runs import NewestRuns, until_enough
from callboard.features.index.queries import By, Order, Property, Spending, ValueCount
from callboard.features.index.store import RunIndex
from callboard.lib.concurrency import background_tasks
from callboard.projections.lists.questions import ClosedQuestion, Question, Questions
from callboard.projections.lists.runs import RowStatus, RunRow, tests_events
from callboard.projections.lists.where import Both, Where
from callboard.projections.projection import fold
from callboard.runtime.client.connection import Connection
from callboard.runtime.run.log import events_of, read_run
from callboard.service.operations.requests import OneVersion
from callboard.service.operations.statuses import UNREADABLE, Statuses, is_orphan

if TYPE_CHECKING:
    from callboard.runtime.admission.versions import Version

INDEX_WAIT_S = 0.1
"""How long a page waits for an index that is being built, before it is read from the end of the log."""

TENANTS_MAX = 8
"""Tenants whose listings are kept; the least recently used one is dropped first."""

T = TypeVar("T")


class RunPage(NamedTuple):
    """Runs of a list, whether there are more, and the stream sequence up to which the list is complete."""

    runs: list[RunRow]
    more: bool
    sequence: int


class Listings:
    """The listings of a process. They follow the log in the given task group.

    ``folder`` is where the index of the runs is kept between processes; without it the index is in memory only.
    ``prices`` are for the costs of runs; default: the list prices.
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
        self._runs = OrderedDict[str, IndexFollower]()
        self._tenants_max = tenants_max
        self._statuses = Statuses(log)

    def begin(self, tenant: str) -> None:
        """Start to read a tenant's log ahead of the first request."""
        self._kept_runs(tenant)

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def page(
        self, tenant: str, where: Where, limit: int, before: str | None = None, order: Order | None = None
    ) -> RunPage:
        """Return up to ``limit`` matching runs in their current state, newest first or in another order, after the
        run ``before``.

        :raises KeyError: if the run ``before`` is not listed
        :raises NoAnswer: if the log does not answer, or the index cannot catch up in time
        """

        def select(index: RunIndex) -> list[RunRow]:
            return index.select(where, limit + 1, before, order)

        newest = await self._newest(tenant, where, limit, before) if order in (None, Order()) else None
        found, sequence = newest or await self._ask_with_end(tenant, where, select)
        return RunPage(await self._statuses.update_rows(tenant, found[:limit]), len(found) > limit, sequence)

    async def _newest(
        self, tenant: str, where: Where, limit: int, before: str | None
    ) -> tuple[list[RunRow], int] | None:
        """Return the rows of a page, one more if there are more, and the sequence up to which the list is complete.

        None if the index has caught up within a short time, or if the newest events of the log do not suffice.
        """
        if tests_events(where):
            return None
        with anyio.move_on_after(INDEX_WAIT_S):
            await self._kept_runs(tenant).caught_up()
            return None
        end = await self._log.last_sequence()
        newest = NewestRuns(self._log, tenant, self.prices, end)
        try:

            def select(index: RunIndex) -> list[RunRow] | None:
                try:
                    return index.select(where, limit + 1, before)
                except KeyError:
                    return None  # This run is older than those read so far.

            rows = await until_enough(newest, select, lambda found: found is not None and len(found) > limit)
        finally:
            newest.index.close()
        if rows is None:
            return None
        if len(rows) <= limit and await self._log.last_message(self._log.subjects.segment_marks(tenant)) is not None:
            return None  # Runs in cold storage are only in the index.
        return rows, end

    async def matching(self, tenant: str, where: Where) -> int:
        """Return the number of matching runs. Raises as `page`."""
        return await self._ask(tenant, where, lambda index: index.matching(where))

    async def ids(self, tenant: str, where: Where) -> list[str]:
        """Return the ids of all matching runs, oldest first. Raises as `page`."""
        return await self._ask(tenant, where, lambda index: index.ids(where))

    async def rows(self, tenant: str) -> list[RunRow]:
        """Return a row for every run of the tenant, newest first. Raises as `page`."""
        return await self._ask(tenant, Both(()), RunIndex.rows)

    async def open_rows(self, tenant: str) -> list[RunRow]:
        """Return a row for every run of the tenant that has not ended, newest first. Raises as `page`."""
        return await self._ask(tenant, Both(()), RunIndex.open_rows)

    async def counts(self, tenant: str) -> dict[RowStatus, int]:
        """Return the number of runs of each status; the statuses of runs at work are coarse. Raises as `page`."""
        return await self._ask(tenant, Both(()), RunIndex.counts)

    async def costs(self, tenant: str, where: Where, by: By) -> list[Spending]:
        """Return the costs of the matching runs, grouped by ``by``. Raises as `page`."""
        return await self._ask(tenant, where, lambda index: index.costs(where, by))

    async def values(self, tenant: str, of: Property, limit: int) -> list[ValueCount]:
        """Return the values of a property that most runs have. Raises as `page`."""
        return await self._ask(tenant, Both(()), lambda index: index.values(of, limit))

    async def versions(self, tenant: str) -> dict[str, int]:
        """Return the number of runs of each definition, by hash. Raises as `page`."""
        return await self._ask(tenant, Both(()), RunIndex.versions)

    async def _ask(self, tenant: str, where: Where, question: Callable[[RunIndex], T]) -> T:
        return (await self._ask_with_end(tenant, where, question))[0]

    async def _ask_with_end(self, tenant: str, where: Where, question: Callable[[RunIndex], T]) -> tuple[T, int]:
        """Return the answer to a question, and a sequence of the stream up to which it is complete.

        That is the end of the stream at the time of the request, since later messages than the index's may be no events
        of runs. So a later answer has no lower sequence.
        """
        following = self._kept_runs(tenant)
        end = await following.caught_up()
        if tests_events(where):
            # Only the events of a run at work show its exact status: all are read once, and later only the new ones.
            at_work = await following.ask(RunIndex.at_work)
            statuses = await self._statuses.all(tenant, at_work)
            await following.ask(lambda index: index.tell(statuses))

        def ask(index: RunIndex) -> tuple[T, int]:
            sequence = index.sequence
            return question(index), max(sequence, end)

        return await following.ask(ask)

    def _kept_runs(self, tenant: str) -> IndexFollower:
        kept = self._runs.get(tenant)
        if kept is None or kept.failed:
            kept = self._runs[tenant] = IndexFollower(self._log, tenant, self._folder, self.prices)
            self._tasks.start_soon(kept.run)
        self._runs.move_to_end(tenant)
        if len(self._runs) > self._tenants_max:
            _, oldest = self._runs.popitem(last=False)
            oldest.give_up()
        return kept

    # -- questions ----------------------------------------------------------------------------------------------------

    async def questions(self, tenant: str) -> list[Question]:
        """Return the questions that are open in the tenant's runs now, oldest first.

        :raises NoAnswer: if the log does not answer, or the projection cannot catch up in time
        """
        following = self._kept_runs(tenant)
        await following.caught_up()
        asked = (await following.questions()).view()
        # A fork shares events with its origin. They are not on the fork's subject, so following does not deliver them.
        shared = [
            await self._read_shared_questions(RunRef(tenant, run)) for run in await following.ask(RunIndex.forks_open)
        ]
        return sorted((one for some in (asked, *shared) for one in some), key=lambda one: one.since)

    async def closed_questions(self, tenant: str) -> list[ClosedQuestion]:
        """Return the questions that were closed last, the last one first. Raises as `questions`."""
        following = self._kept_runs(tenant)
        await following.caught_up()
        return (await following.questions()).list_closed()

    async def _read_shared_questions(self, fork: RunRef) -> list[Question]:
        """Return the questions that are open in a fork, and were asked before the place of the fork."""
        try:
            recorded = await read_run(self._log, fork)
        except UNREADABLE:
            if await is_orphan(self._log, fork):
                return []  # A fork that no worker can perform must not hide the questions of other runs.
            raise
        forked = origin_of(recorded[0].event) if recorded else None
        found = fold(Questions(), events_of(recorded))
        return [one for one in found if forked is not None and one.n <= forked.n]


@asynccontextmanager
async def listings(connection: Connection) -> AsyncGenerator[Listings]:
    """Open the listings of runs for the length of the block."""
    async with background_tasks() as tasks:
        yield Listings(connection.log, tasks, _folder(connection), prices=connection.config.price_table())


def _folder(connection: Connection) -> Path | None:
    """Return the folder of the index, which is next to the store; None if the store is on another machine."""
    config = connection.config
    here = connection.server is not None or running_url(config.data_dir) == config.nats_url
    return config.data_dir / FOLDER if here else None


def list_versions(found: "Sequence[Version]", runs: Mapping[str, int]) -> list[OneVersion]:
    """Return the list of versions for an answer. ``found`` is oldest first, ``runs`` the number of runs by hash."""
    return [
        OneVersion(
            number=one.number,
            hash=one.kept.hash or "",
            language=one.kept.language or "",
            registered_at=one.registered_at,
            by=one.kept.by,
            restores=one.restores,
            in_force=one is found[-1] and not one.withdrawn,
            runs=runs.get(one.kept.hash or "", 0),
        )
        for one in reversed(found)
    ]
