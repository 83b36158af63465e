"""Listings: the runs and the open questions of each tenant, folded live from the log for as long as somebody asks.

The first question about a tenant reads its past; later ones only wait until the fold has come as far as the log.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

import anyio.abc

from callboard.bus.jetstream import JetStreamLog
from callboard.projections.questions import TYPES, Question, Questions
from callboard.projections.runs import RunRow, Runs
from callboard.runtime.api.keeping import Kept

RUNS_MAX = 10_000
"""Runs listed per tenant, the newest; older ones are in the log."""

QUESTIONS_MAX = 10_000
"""Open questions kept per tenant, the newest; older ones are in the log."""

TENANTS_MAX = 64
"""Tenants whose listings are kept; the one that nobody has asked for the longest is put away first."""


V = TypeVar("V")


class Listings:
    """The listings of a process. Use it inside the task group that it is given."""

    def __init__(self, log: JetStreamLog, tasks: anyio.abc.TaskGroup, tenants_max: int = TENANTS_MAX) -> None:
        self._log = log
        self._tasks = tasks
        self._runs = _PerTenant[list[RunRow]](tenants_max)
        self._questions = _PerTenant[list[Question]](tenants_max)

    async def rows(self, tenant: str) -> list[RunRow]:
        """Return the tenant's runs as the log has them now, the newest first.

        :raises NoAnswer: if the log does not answer, or the fold does not keep up
        """
        kept = self._runs.of(tenant)
        if kept is None:
            filters = [self._log.subjects.events(tenant, event_type="run.>")]
            kept = self._runs.put(tenant, Kept(self._log, filters, Runs(RUNS_MAX)))
            self._tasks.start_soon(kept.run)
        return await kept.view()

    async def questions(self, tenant: str) -> list[Question]:
        """Return the questions that are open in the tenant's runs as the log has them now, the oldest first.

        :raises NoAnswer: if the log does not answer, or the fold does not keep up
        """
        kept = self._questions.of(tenant)
        if kept is None:
            filters = [self._log.subjects.events(tenant, event_type=one) for one in TYPES]
            kept = self._questions.put(tenant, Kept(self._log, filters, Questions(QUESTIONS_MAX)))
            self._tasks.start_soon(kept.run)
        return await kept.view()


class _PerTenant(Generic[V]):
    """What is kept of each tenant, of so many at once."""

    def __init__(self, tenants_max: int) -> None:
        self._tenants_max = tenants_max
        self._kept: OrderedDict[str, Kept[V]] = OrderedDict()

    def of(self, tenant: str) -> Kept[V] | None:
        """Return what is kept of a tenant, if it still follows the log."""
        kept = self._kept.get(tenant)
        if kept is None or kept.failed:
            return None
        self._kept.move_to_end(tenant)
        return kept

    def put(self, tenant: str, kept: Kept[V]) -> Kept[V]:
        self._kept[tenant] = kept
        self._kept.move_to_end(tenant)
        if len(self._kept) > self._tenants_max:
            _, oldest = self._kept.popitem(last=False)
            oldest.give_up()
        return kept
