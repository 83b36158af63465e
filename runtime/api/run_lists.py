"""Listings: the runs and the open questions of each tenant, folded live from the log for as long as somebody asks.

The first question about a tenant reads its past; later ones only wait until the fold has come as far as the log.
"""

from collections import OrderedDict
from typing import Any, Generic, TypeVar

import anyio.abc

from callboard.bus.jetstream import JetStreamLog
from callboard.projections.projection import Projection
from callboard.projections.questions import TYPES, Question, Questions
from callboard.projections.runs import RunRow, Runs
from callboard.runtime.api.keeping import Kept
from callboard.runtime.api.statuses import Statuses

RUNS_MAX = 120_000
"""Runs listed per tenant, the newest; older ones are in the log."""

QUESTIONS_MAX = 10_000
"""Open questions kept per tenant, the newest; older ones are in the log."""

TENANTS_MAX = 8
"""Tenants whose listings are kept; the one that nobody has asked for the longest is put away first."""


P = TypeVar("P", bound=Projection[Any])


class Listings:
    """The listings of a process. Use it inside the task group that it is given."""

    def __init__(self, log: JetStreamLog, tasks: anyio.abc.TaskGroup, tenants_max: int = TENANTS_MAX) -> None:
        self._log = log
        self._tasks = tasks
        self._runs = _PerTenant[Runs](tenants_max)
        self.statuses = Statuses(log)
        self._questions = _PerTenant[Questions](tenants_max)

    def begin(self, tenant: str) -> None:
        """Begin to read a tenant's past before anybody asks."""
        self._kept_runs(tenant)
        self._kept_questions(tenant)

    async def runs(self, tenant: str) -> Runs:
        """Return the tenant's runs as the log has them now; they go on with it.

        :raises NoAnswer: if the log does not answer, or the fold does not keep up
        """
        return await self._kept_runs(tenant).caught_up()

    def _kept_runs(self, tenant: str) -> Kept[Runs]:
        kept = self._runs.of(tenant)
        if kept is None:
            filters = [self._log.subjects.events(tenant, event_type="run.>")]
            kept = self._runs.put(tenant, Kept(self._log, filters, Runs(RUNS_MAX)))
            self._tasks.start_soon(kept.run)
        return kept

    async def rows(self, tenant: str) -> list[RunRow]:
        """Return a row for every run of the tenant, the newest first.

        :raises NoAnswer: as `runs`
        """
        return (await self.runs(tenant)).view()

    async def questions(self, tenant: str) -> list[Question]:
        """Return the questions that are open in the tenant's runs as the log has them now, the oldest first.

        :raises NoAnswer: if the log does not answer, or the fold does not keep up
        """
        return (await self._kept_questions(tenant).caught_up()).view()

    def _kept_questions(self, tenant: str) -> Kept[Questions]:
        kept = self._questions.of(tenant)
        if kept is None:
            filters = [self._log.subjects.events(tenant, event_type=one) for one in TYPES]
            kept = self._questions.put(tenant, Kept(self._log, filters, Questions(QUESTIONS_MAX)))
            self._tasks.start_soon(kept.run)
        return kept


class _PerTenant(Generic[P]):
    """What is kept of each tenant, of so many at once."""

    def __init__(self, tenants_max: int) -> None:
        self._tenants_max = tenants_max
        self._kept: OrderedDict[str, Kept[P]] = OrderedDict()

    def of(self, tenant: str) -> Kept[P] | None:
        """Return what is kept of a tenant, if it still follows the log."""
        kept = self._kept.get(tenant)
        if kept is None or kept.failed:
            return None
        self._kept.move_to_end(tenant)
        return kept

    def put(self, tenant: str, kept: Kept[P]) -> Kept[P]:
        self._kept[tenant] = kept
        self._kept.move_to_end(tenant)
        if len(self._kept) > self._tenants_max:
            _, oldest = self._kept.popitem(last=False)
            oldest.give_up()
        return kept
