"""``callboard cool, warm``: move runs to cold storage, and back."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation


@click.command(epilog=exits.EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Only show how many runs would be moved.")
@operation
async def cool(call: OperationCall, dry_run: bool) -> None:
    """Apply the table `cold` of the configuration once, now: move ended runs to cold storage, and compact it.

    `callboard up` and `callboard worker` do this regularly. Runs in cold storage are read like any other.
    """
    from callboard.bus.nats.cooling import compact, merge
    from callboard.features.cold.cooling_leader import round_of
    from callboard.runtime.client.errors import UsageInvalid

    if call.config.cold is None:
        raise UsageInvalid("the configuration has no table `cold`", "cold")
    async with call.connect() as connection:
        done = await round_of(connection.log, connection.config, dry=dry_run)
        if not dry_run and connection.log.cold.store is not None:
            await compact(connection.log, connection.log.cold.store)
            await merge(connection.log, connection.log.cold.store)
    moved = "would be moved" if dry_run else "moved"
    counts = [(f"{len(one.runs)} run{'' if len(one.runs) == 1 else 's'}", one.tenant) for one in done]
    call.answer(done, (f"{count} of {tenant} {moved} to cold storage" for count, tenant in counts))


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@operation
async def warm(call: OperationCall, run: str) -> None:
    """Move RUN from cold storage back to the stream."""
    from callboard.bus.nats.cooling import warm_run

    async with call.connect() as connection:
        events = await warm_run(connection.log, connection.client.ref(run))
    call.answer({"run": run, "events": events}, f"restored {run}, {events} events")
