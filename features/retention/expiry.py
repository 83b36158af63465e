"""Expiring runs: the runs that a rule selects are archived, if the rule says so, and purged, unless still needed."""

import datetime as dt
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import Gone
from callboard.bus.subjects import token
from callboard.projections.lists.where import Both, Either, Term, Where
from callboard.runtime.settings.retention_settings import RetentionRule
from callboard.runtime.settings.rule_settings import question
from callboard.service.client.client import Client, UnknownRun
from callboard.service.operations.archives import archive_runs
from callboard.service.operations.run_lists import Listings
from callboard.service.operations.run_purge import FORKED, CannotPurge, check_purge, purge_run

BY = "retention"
"""The author in the marks of purged runs. The reason in a mark is the rule."""

SUFFIX = ".callboard"

SILENT_MAX = 3
"""The number of consecutive runs without an answer of the log after which the round is given up."""


class Stays(Struct, frozen=True):
    """A run that a rule has selected and that cannot be purged."""

    run: str
    code: str
    message: str


class Expired(Struct, frozen=True):
    """The result of a rule for a tenant: the runs that were purged, or would be, and those that stay."""

    rule: str
    tenant: str
    runs: list[str]
    stays: list[Stays]


def rule_query(rule: RetentionRule, now: dt.datetime) -> Where:
    """Return the query of a rule at an instant."""
    over = Term("ended", "<", now.timestamp() - rule.age_s)
    statuses = Either(tuple(Term("status", "=", one) for one in rule.status))
    definitions = Either(tuple(Term("definition", "=", one) for one in rule.definition))
    tests = [over, *(one for one in (statuses, definitions) if one.parts)]
    return Both((*tests, question(rule.where)))


class Expiry:
    """Applies rules to the runs of one tenant. If ``dry``, it purges nothing.

    If several rules select a run, the first one applies.
    """

    def __init__(self, log: JetStreamLog, found: Listings, tenant: str, *, dry: bool) -> None:
        self._client = Client(log, tenant)
        self._found = found
        self._dry = dry
        self._seen: set[str] = set()
        self._gone: set[str] = set()

    async def carry_out(self, name: str, rule: RetentionRule, now: dt.datetime) -> Expired:
        """Apply a rule.

        :raises NoAnswer: if the log does not answer for several runs; if it is only for one or two, these stay
        """
        runs = [
            run for run in await self._found.ids(self._client.tenant, rule_query(rule, now)) if run not in self._seen
        ]
        self._seen.update(runs)
        gone, stays = await self._each(runs, name, rule)
        # The oldest first, so that children are purged with their parents. Then the newest first, so that runs whose
        # forks were purged can be purged, too.
        forked = [one.run for one in reversed(stays) if one.code == FORKED]
        more, still = await self._each(forked, name, rule)
        stays = [*(one for one in stays if one.code != FORKED), *still]
        return Expired(name, self._client.tenant, [*gone, *more], stays)

    async def _each(self, runs: Sequence[str], name: str, rule: RetentionRule) -> tuple[list[str], list[Stays]]:
        gone, stays, silent = list[str](), list[Stays](), 0
        for run in runs:
            try:
                await self._expire(run, name, rule)
            except NoAnswer as error:
                # Workers finish a purge that has begun. The next round selects the other runs again.
                silent += 1
                if silent == SILENT_MAX:
                    raise
                stays.append(Stays(run, "log.no_answer", f"the log did not answer: {error}"))
                continue
            except UnknownRun:
                # It was purged with its parent.
                silent = 0
                continue
            except CannotPurge as error:
                stays.append(Stays(run, error.code, error.message))
            except OSError as error:
                told = f"it cannot be archived: {error.strerror or error}"
                stays.append(Stays(run, "file.unwritable", told))
            else:
                gone.append(run)
                self._gone.add(run)
            silent = 0
        return gone, stays

    async def _expire(self, run: str, name: str, rule: RetentionRule) -> None:
        # In a dry run, forks that would have been purged by now still exist, and must not count.
        await check_purge(self._client, run, self._gone)
        if self._dry:
            return
        if rule.archive_to is not None:
            await self._archive(run, rule.archive_to)
        await purge_run(self._client, run, Gone(by=BY, reason=name))

    async def _archive(self, run: str, folder: Path) -> None:
        """Write a run with its children to a separate file, whose name is the same at every attempt."""
        tenant = self._client.tenant
        path = folder / token(tenant) / f"{token(run)}{SUFFIX}"
        await to_thread.run_sync(partial(path.parent.mkdir, parents=True, exist_ok=True))
        await archive_runs(self._client.log, tenant, [run], path, children=True, progress=lambda _done: None)
