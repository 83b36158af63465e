"""``callboard purge, forget, retention``: remove runs, or their contents, from the log."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import NAME_ONE, all_option, where_option
from callboard.surfaces.cli.output import confirm, say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.bus.nats.purge import Gone
    from callboard.runtime.settings.config import Config
    from callboard.service.retention.office import Expired
    from callboard.surfaces.cli.bulk import Many
    from callboard.surfaces.cli.child_processes import ProcessOptions


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@where_option
@all_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--by", metavar="NAME", help="The name of the person who does it; stored with the id.")
@click.option("--reason", metavar="TEXT", default="", help="The reason; stored with the id.")
@settings_options
def purge(
    settings: Settings,
    run: str | None,
    question: str | None,
    everything: bool,
    yes: bool,
    by: str | None,
    reason: str,
) -> None:
    """Remove RUN from the log, with its child runs: events, large values, its start and its commands.

    A removed run cannot be restored, and its id is not used again. Runs in progress stay, and so do runs that share
    events with a fork. `--where 'ended>90d'` selects runs that ended more than 90 days ago.
    """
    if sum((run is not None, question is not None, everything)) != 1:
        raise click.UsageError(NAME_ONE)
    import anyio

    from callboard.bus.nats.purge import Gone
    from callboard.surfaces.cli.bulk import Many

    whom = run if run is not None else Many(question, yes, None)
    code = anyio.run(purge_many, whom, yes, Gone(by=by, reason=reason), load_config(settings), settings)
    click.get_current_context().exit(code)


async def purge_many(whom: "Many | str", yes: bool, mark: "Gone", config: "Config", settings: Settings) -> int:
    """Purge a run, or all runs that match a question; return the exit code.

    :raises UnknownRun: if the run does not exist
    :raises CannotPurge: if the run is still needed
    :raises CallboardError: if no server is running
    """
    from callboard.service.operations.bulk import BulkResult, purge_all
    from callboard.surfaces.cli.bulk import BulkRun, do_many

    if isinstance(whom, str):
        return await _purge_one(whom, yes, mark, config, settings)

    async def purge(many: BulkRun) -> list[BulkResult]:
        return await purge_all(many.client, many.runs, mark, many.progress)

    return await do_many(whom, "purge", purge, config, settings)


async def _purge_one(run: str, yes: bool, mark: "Gone", config: "Config", settings: Settings) -> int:
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.removal import purge_run
    from callboard.service.operations.results import compact

    if settings.as_json and not yes:
        raise UsageInvalid("--json does not prompt; pass --yes to confirm", "--yes")
    async with reach(config, reads=False, name="callboard purge") as connection:
        if not yes and not confirm(f"Remove {run} permanently?"):
            return exits.OK
        removed = await purge_run(connection.client, run, mark)
    say(compact({"run": run, "messages": removed}) if settings.as_json else f"purged {run}, {removed} messages")
    return exits.OK


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@settings_options
def forget(settings: Settings, name: str, yes: bool) -> None:
    """Destroy the encryption key NAME: the contents of runs started with `--encryption-key NAME` are lost permanently.

    The log, and every copy of it, still shows that these runs existed, when they ran and how they ended.
    """
    import anyio

    code = anyio.run(forget_key, name, yes, load_config(settings), settings)
    click.get_current_context().exit(code)


async def forget_key(name: str, yes: bool, config: "Config", settings: Settings) -> int:
    """Destroy a key; return the exit code.

    :raises UsageInvalid: if the confirmation cannot be asked for
    :raises KeyInUse: if runs encrypted with it have not ended
    :raises KeyUnknown: if the key does not exist
    :raises CallboardError: if no server is running
    """
    from callboard.projections.lists.where import Both, Term
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.removal import destroy_key
    from callboard.service.operations.results import compact
    from callboard.service.operations.run_listing import listings

    if settings.as_json and not yes:
        raise UsageInvalid("--json does not prompt; pass --yes to confirm", "--yes")
    of_key = Term("encryption_key", "=", name)
    async with reach(config, reads=False, name="callboard forget") as connection, listings(connection) as found:
        runs = await found.ids(config.tenant, of_key)
        ended = set(await found.ids(config.tenant, Both((of_key, Term("ended", ">=", 0.0)))))
        count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
        if not yes and not confirm(f"Destroy the key {name}, and with it the contents of {count}, permanently?"):
            return exits.OK
        await destroy_key(connection.log, config.tenant, name, [run for run in runs if run not in ended])
    told = {"encryption_key": name, "runs": len(runs)}
    say(
        compact(told)
        if settings.as_json
        else f"destroyed the key {name}: the contents of {count} can no longer be read"
    )
    return exits.OK


@click.command(epilog=exits.EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Only show which runs would be removed, and which cannot be.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@settings_options
def retention(settings: Settings, dry_run: bool, yes: bool) -> None:
    """Apply the rules of the table `retention` in the configuration once, now.

    `callboard up` and `callboard worker` apply them regularly. A rule can archive runs before they are purged. Runs in
    progress stay, and so do runs that share events with a fork.
    """
    import anyio

    code = anyio.run(apply_retention, dry_run, yes, load_config(settings), settings)
    click.get_current_context().exit(code)


RUNS_SHOWN_MAX = 10
"""How many removed and how many kept runs of a rule are shown."""


async def attend_retention(process_options: "ProcessOptions") -> None:
    """Run as a child process that applies the rules while it holds the office, until SIGTERM."""
    import signal

    import anyio

    from callboard.runtime.client.connection import open_connection
    from callboard.runtime.cluster.leader import holding
    from callboard.service.retention.office import OFFICE, Office
    from callboard.surfaces.cli.child_processes import watch_parent

    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM))
        await stack.enter_async_context(watch_parent())
        connection = await stack.enter_async_context(
            open_connection(process_options.config, "callboard retention", gaps_expected=True)
        )
        office = {f"{connection.log.subjects.prefix}.office.{OFFICE}": Office(connection)}
        await stack.enter_async_context(holding(connection.nc, office, connection.log.store))
        async for _first in signals:
            break


async def apply_retention(dry: bool, yes: bool, config: "Config", settings: Settings) -> int:
    """Apply the rules, or print what they would remove; return the exit code.

    :raises UsageInvalid: if there are no rules, or the confirmation cannot be asked for
    :raises CallboardError: if the store cannot be used
    """
    import msgspec

    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.service.operations.run_listing import listings
    from callboard.service.retention.office import round_of

    if not config.retention:
        raise UsageInvalid("the configuration has no table `retention` with rules", "retention")
    if settings.as_json and not (yes or dry):
        raise UsageInvalid("--json does not prompt; pass --yes to confirm, or --dry-run", "--yes")
    async with reach(config, reads=dry, name="callboard retention") as connection, listings(connection) as found:
        if not (dry or yes):
            _show_expired(
                await round_of(connection.log, found, connection.config, dry=True), "would be removed", err=True
            )
            if not confirm("Remove them from the log permanently?"):
                return exits.OK
        done = await round_of(connection.log, found, connection.config, dry=dry)
    if settings.as_json:
        say(compact(msgspec.to_builtins(done)))
    else:
        _show_expired(done, "would be removed" if dry else "removed", err=False)
    return exits.OK


def _show_expired(done: "Sequence[Expired]", what: str, *, err: bool) -> None:
    for one in done:
        count = f"{len(one.runs)} run{'' if len(one.runs) == 1 else 's'}"
        stay = f", {len(one.stays)} cannot be" if one.stays else ""
        say(f"{one.rule}: {count} of {one.tenant} {what}{stay}", err=err)
        for run in one.runs[:RUNS_SHOWN_MAX]:
            say(f"  {run}", err=err)
        if len(one.runs) > RUNS_SHOWN_MAX:
            say(f"  … and {len(one.runs) - RUNS_SHOWN_MAX} more", err=err)
        for stays in one.stays[:RUNS_SHOWN_MAX]:
            say(f"  {stays.run}  {stays.code}: {stays.message}", err=err)
