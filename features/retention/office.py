"""The retention office: it applies the rules at regular intervals, in one process at a time.

It runs in a separate process, so that runs do not wait while it reads, archives and purges.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping

import anyio
import structlog

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.retention.expiry import Expired, Expiry
from callboard.runtime.settings.config import Config
from callboard.runtime.settings.retention_settings import RetentionRule
from callboard.service.client.connection import Connection
from callboard.service.operations.run_listing import listings
from callboard.service.operations.run_lists import Listings

logger = structlog.get_logger(__name__)

OFFICE = "retention"

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


async def round_of(log: JetStreamLog, found: Listings, config: Config, *, dry: bool) -> list[Expired]:
    """Apply all rules once, or with ``dry`` only report the runs that would be purged.

    :raises NoAnswer: if the log does not answer
    """
    now = dt.datetime.now(dt.UTC)
    done: list[Expired] = []
    for tenant, rules in tenants_of(config, config.retention).items():
        expiry = Expiry(log, found, tenant, dry=dry)
        done += [await expiry.carry_out(name, rule, now) for name, rule in rules.items()]
    return done


class Office:
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

    def _tell(self, done: list[Expired]) -> None:
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
