"""Retention: the leader applies the rules at regular intervals, in one process at a time.

The runs that a rule selects are archived, if the rule says so, and purged, unless still needed. The leader runs in a
separate process, so that runs do not wait while it reads, archives and purges.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import structlog
from anyio import to_thread
from msgspec import Struct

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.subjects import token
from callboard.projections.lists.where import Both, Either, Term, Where
from callboard.runtime.client.client import Client, UnknownRun
from callboard.runtime.client.connection import Connection
from callboard.runtime.settings.config import Config
from callboard.runtime.settings.retention_settings import RetentionRule
from callboard.runtime.settings.rule_settings import question
from callboard.service.operations.archives import archive_runs
from callboard.service.operations.removal import FORKED, CannotPurge, check_purge, purge_run
from callboard.service.operations.run_lists import Listings, listings

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


class ExpiryResult(Struct, frozen=True):
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

    async def carry_out(self, name: str, rule: RetentionRule, now: dt.datetime) -> ExpiryResult:
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
        return ExpiryResult(name, self._client.tenant, [*gone, *more], stays)

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
        await purge_run(self._client, run, PurgeMark(by=BY, reason=name))

    async def _archive(self, run: str, folder: Path) -> None:
        """Write a run with its children to a separate file, whose name is the same at every attempt."""
        tenant = self._client.tenant
        path = folder / token(tenant) / f"{token(run)}{SUFFIX}"
        await to_thread.run_sync(partial(path.parent.mkdir, parents=True, exist_ok=True))
        await archive_runs(self._client.log, tenant, [run], path, children=True, progress=lambda _done: None)


logger = structlog.get_logger(__name__)

LEADERSHIP = "retention"

FIRST_S = 10.0
"""The delay of the first round, because a server may have been started only for a short look."""

TOLD_MAX = 10_000
"""The maximum number of remaining runs whose log messages are remembered, so that they are not repeated."""

SHOWN_MAX = 10


def tenants_of(config: Config, rules: Mapping[str, RetentionRule]) -> dict[str, dict[str, RetentionRule]]:
    """Return the rules of each tenant that has any. A rule without tenants is for the tenant of the configuration."""
    found: dict[str, dict[str, RetentionRule]] = {}
    for name, rule in rules.items():
        for tenant in rule.tenant or (config.tenant,):
            found.setdefault(tenant, {})[name] = rule
    return found


async def round_of(log: JetStreamLog, found: Listings, config: Config, *, dry: bool) -> list[ExpiryResult]:
    """Apply all rules once, or with ``dry`` only report the runs that would be purged.

    :raises NoAnswer: if the log does not answer
    """
    now = dt.datetime.now(dt.UTC)
    done: list[ExpiryResult] = []
    for tenant, rules in tenants_of(config, config.retention).items():
        expiry = Expiry(log, found, tenant, dry=dry)
        done += [await expiry.carry_out(name, rule, now) for name, rule in rules.items()]
    return done


class RetentionLeader:
    """Applies the rules at regular intervals. A `Leader`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._told: dict[tuple[str, str, str], None] = {}

    async def run(self, orphaned: bool) -> None:
        """Apply the rules until cancelled."""
        every_s = self._connection.config.retention_every_s
        await anyio.sleep(min(FIRST_S, every_s))
        async with listings(self._connection) as found:
            while True:
                try:
                    self._tell(await round_of(self._connection.log, found, self._connection.config, dry=False))
                except NoAnswer as error:
                    logger.warning("retention waits for the log", error=str(error))
                await anyio.sleep(every_s)

    def hurry(self) -> None:
        """Do nothing, because workers finish purges that were interrupted."""

    def _tell(self, done: list[ExpiryResult]) -> None:
        for one in done:
            if one.runs:
                logger.info("runs were purged", rule=one.rule, tenant=one.tenant, runs=len(one.runs))
            new = [stays for stays in one.stays if (one.tenant, stays.run, stays.code) not in self._told]
            self._told |= {(one.tenant, stays.run, stays.code): None for stays in new}
            if new:
                codes = dict(Counter(stays.code for stays in new))
                first = [f"{stays.run}: {stays.message}" for stays in new[:SHOWN_MAX]]
                logger.warning("runs could not be purged", rule=one.rule, tenant=one.tenant, codes=codes, first=first)
        while len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
