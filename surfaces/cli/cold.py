"""``callboard cool, warm``: move runs to cold storage, and back."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.surfaces.cli.child_processes import ProcessOptions


@click.command(epilog=exits.EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Only show how many runs would be moved.")
@settings_options
def cool(settings: Settings, dry_run: bool) -> None:
    """Apply the table `cold` of the configuration once, now: move ended runs to cold storage, and compact it.

    `callboard up` and `callboard worker` do this regularly. Runs in cold storage are read like any other.
    """
    import anyio

    anyio.run(cool_now, dry_run, load_config(settings), settings)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@settings_options
def warm(settings: Settings, run: str) -> None:
    """Move RUN from cold storage back to the stream."""
    import anyio

    anyio.run(warm_now, run, load_config(settings), settings)


async def cool_now(dry: bool, config: "Config", settings: Settings) -> None:
    """Apply the rule, or print what it would move.

    :raises UsageInvalid: if there is no rule
    :raises CallboardError: if the store cannot be used
    """
    import msgspec

    from callboard.bus.nats.cooling import compact, merge
    from callboard.features.cold.office import round_of
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact as compact_json

    if config.cold is None:
        raise UsageInvalid("the configuration has no table `cold`", "cold")
    async with reach(config, reads=True, name="callboard cool") as connection:
        done = await round_of(connection.log, connection.config, dry=dry)
        if not dry and connection.log.cold.store is not None:
            await compact(connection.log, connection.log.cold.store)
            await merge(connection.log, connection.log.cold.store)
    if settings.as_json:
        say(compact_json(msgspec.to_builtins(done)))
        return
    for one in done:
        count = f"{len(one.runs)} run{'' if len(one.runs) == 1 else 's'}"
        say(f"{count} of {one.tenant} {'would be moved' if dry else 'moved'} to cold storage")


async def warm_now(run: str, config: "Config", settings: Settings) -> None:
    """Restore a run.

    :raises NotCold: if it is not in cold storage
    :raises CallboardError: if the store cannot be used
    """
    from callboard.bus.nats.cooling import warm_run
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard warm") as connection:
        events = await warm_run(connection.log, connection.client.ref(run))
    say(compact({"run": run, "events": events}) if settings.as_json else f"restored {run}, {events} events")


async def attend_cold(process_options: "ProcessOptions") -> None:
    """Run as a child process that moves runs while it holds the office, until SIGTERM."""
    import signal

    import anyio

    from callboard.features.cold.office import OFFICE, Office
    from callboard.runtime.client.connection import open_connection
    from callboard.runtime.cluster.leader import holding
    from callboard.surfaces.cli.child_processes import watch_parent

    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM))
        await stack.enter_async_context(watch_parent())
        connection = await stack.enter_async_context(
            open_connection(process_options.config, "callboard cold", gaps_expected=True)
        )
        office = {f"{connection.log.subjects.prefix}.office.{OFFICE}": Office(connection)}
        await stack.enter_async_context(holding(connection.nc, office, connection.log.store))
        async for _first in signals:
            break
