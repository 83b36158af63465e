"""Retention at the command line: what rules would take out of the log, doing it, and the process that does it."""

import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack

import anyio
import msgspec

from callboard.features.retention.expiry import Expired
from callboard.features.retention.office import OFFICE, Office, round_of
from callboard.runtime.cluster.leader import holding
from callboard.runtime.settings.config import Config
from callboard.service.api.connection import open_connection
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.run_listing import listings
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.child_processes import Standing, lifeline
from callboard.surfaces.cli.output import confirmed, say
from callboard.surfaces.cli.settings import Settings

SHOWN_MAX = 10
"""How many runs of a rule are shown, of those that go and of those that stay."""


async def attend(standing: Standing) -> None:
    """Be the child process that carries the rules out whenever the office falls to it."""
    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM))
        await stack.enter_async_context(lifeline())
        connection = await stack.enter_async_context(
            open_connection(standing.config, "callboard retention", gaps_expected=True)
        )
        office = {f"{connection.log.subjects.prefix}.office.{OFFICE}": Office(connection)}
        await stack.enter_async_context(holding(connection.nc, office, connection.log.store))
        async for _first in signals:
            break


async def carry_out(dry: bool, yes: bool, config: Config, settings: Settings) -> int:
    """Carry the rules out, or say what would go; return the exit code.

    :raises UsageInvalid: if there are no rules, or no one could be asked
    :raises CallboardError: whatever keeps the store from being used
    """
    if not config.retention:
        raise UsageInvalid("the configuration has no rules: there is no table `retention` in it", "retention")
    if settings.as_json and not (yes or dry):
        raise UsageInvalid("with --json nobody is asked: say --yes, or --dry-run", "--yes")
    async with reach(config, reads=dry, name="callboard retention") as connection, listings(connection) as found:
        if not (dry or yes):
            _show(await round_of(connection.log, found, connection.config, dry=True), "would go", err=True)
            if not confirmed("Take them out of the log for good?"):
                return exits.OK
        done = await round_of(connection.log, found, connection.config, dry=dry)
    if settings.as_json:
        say(compact(msgspec.to_builtins(done)))
    else:
        _show(done, "would go" if dry else "gone", err=False)
    return exits.OK


def _show(done: Sequence[Expired], what: str, *, err: bool) -> None:
    for one in done:
        count = f"{len(one.runs)} run{'' if len(one.runs) == 1 else 's'}"
        stay = f", {len(one.stays)} cannot" if one.stays else ""
        say(f"{one.rule}: {count} of {one.tenant} {what}{stay}", err=err)
        for run in one.runs[:SHOWN_MAX]:
            say(f"  {run}", err=err)
        if len(one.runs) > SHOWN_MAX:
            say(f"  … and {len(one.runs) - SHOWN_MAX} more", err=err)
        for stays in one.stays[:SHOWN_MAX]:
            say(f"  {stays.run}  {stays.code}: {stays.message}", err=err)
