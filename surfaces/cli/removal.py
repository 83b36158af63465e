"""``callboard purge, forget, retention``: remove runs, or what they said, from the log."""

import signal
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
    from callboard.features.retention.expiry import Expired
    from callboard.runtime.settings.config import Config
    from callboard.surfaces.cli.bulk import Many
    from callboard.surfaces.cli.child_processes import ProcessOptions


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@where_option
@all_option
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@click.option("--by", metavar="NAME", help="Who says so; kept with the id.")
@click.option("--reason", metavar="TEXT", default="", help="Why; kept with the id.")
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
    """Purge a run, or all that a question finds; return the exit code.

    :raises UnknownRun: if the run does not exist
    :raises CannotPurge: if it is still needed
    :raises CallboardError: if there is no server
    """
    from callboard.service.operations.bulk import BulkResult, purge_all
    from callboard.surfaces.cli.bulk import BulkRun, do_many

    if isinstance(whom, str):
        return await _purge_one(whom, yes, mark, config, settings)

    async def purge(many: BulkRun) -> list[BulkResult]:
        return await purge_all(many.client, many.runs, mark, many.progress)

    return await do_many(whom, "purge", purge, config, settings)


async def _purge_one(run: str, yes: bool, mark: "Gone", config: "Config", settings: Settings) -> int:
    from callboard.service.operations.errors import UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.service.operations.run_purge import purge_run

    if settings.as_json and not yes:
        raise UsageInvalid("with --json nobody is asked: say --yes", "--yes")
    async with reach(config, reads=False, name="callboard purge") as connection:
        if not yes and not confirm(f"Remove {run} for good?"):
            return exits.OK
        removed = await purge_run(connection.client, run, mark)
    say(compact({"run": run, "messages": removed}) if settings.as_json else f"purged {run}, {removed} messages")
    return exits.OK


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@settings_options
def forget(settings: Settings, name: str, yes: bool) -> None:
    """Destroy the key NAME: what runs that were started with `--encryption-key NAME` have said is lost permanently.

    That they ran, when, and what became of them stays readable, in the log and in every copy of it.
    """
    import anyio

    code = anyio.run(forget_key, name, yes, load_config(settings), settings)
    click.get_current_context().exit(code)


async def forget_key(name: str, yes: bool, config: "Config", settings: Settings) -> int:
    """Destroy a key; return the exit code.

    :raises UsageInvalid: if no one could be asked
    :raises KeyInUse: if runs that are encrypted with it continue
    :raises KeyUnknown: if the key does not exist
    :raises CallboardError: if there is no server
    """
    from callboard.projections.lists.where import Both, Term
    from callboard.service.operations.errors import UsageInvalid
    from callboard.service.operations.key_destruction import forget as destroy_key
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.service.operations.run_listing import listings

    if settings.as_json and not yes:
        raise UsageInvalid("with --json nobody is asked: say --yes", "--yes")
    of_key = Term("encryption_key", "=", name)
    async with reach(config, reads=False, name="callboard forget") as connection, listings(connection) as found:
        runs = await found.ids(config.tenant, of_key)
        ended = set(await found.ids(config.tenant, Both((of_key, Term("ended", ">=", 0.0)))))
        count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
        if not yes and not confirm(f"Forget for good what {count} said under the key {name}?"):
            return exits.OK
        await destroy_key(connection.log, config.tenant, name, [run for run in runs if run not in ended])
    told = {"encryption_key": name, "runs": len(runs)}
    say(compact(told) if settings.as_json else f"forgot {name}: what {count} said can no longer be read")
    return exits.OK


@click.command(epilog=exits.EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Only show what would go, and what cannot.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@settings_options
def retention(settings: Settings, dry_run: bool, yes: bool) -> None:
    """Carry out the rules of the table `retention` in the configuration once, now.

    `callboard up` and `callboard worker` do so by themselves. Runs that go are purged, and archived before if the rule
    says so; those that continue stay, and those that forks share.
    """
    import anyio

    code = anyio.run(apply_retention, dry_run, yes, load_config(settings), settings)
    click.get_current_context().exit(code)


RUNS_SHOWN_MAX = 10
"""How many runs of a rule are shown, of those that go and of those that stay."""


async def attend_retention(standing: "ProcessOptions") -> None:
    """Be the child process that carries the rules out whenever the office falls to it."""
    import anyio

    from callboard.features.retention.office import OFFICE, Office
    from callboard.runtime.cluster.leader import holding
    from callboard.service.api.connection import open_connection
    from callboard.surfaces.cli.child_processes import watch_parent

    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM))
        await stack.enter_async_context(watch_parent())
        connection = await stack.enter_async_context(
            open_connection(standing.config, "callboard retention", gaps_expected=True)
        )
        office = {f"{connection.log.subjects.prefix}.office.{OFFICE}": Office(connection)}
        await stack.enter_async_context(holding(connection.nc, office, connection.log.store))
        async for _first in signals:
            break


async def apply_retention(dry: bool, yes: bool, config: "Config", settings: Settings) -> int:
    """Carry the rules out, or say what would go; return the exit code.

    :raises UsageInvalid: if there are no rules, or no one could be asked
    :raises CallboardError: whatever keeps the store from being used
    """
    import msgspec

    from callboard.features.retention.office import round_of
    from callboard.service.operations.errors import UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.service.operations.run_listing import listings

    if not config.retention:
        raise UsageInvalid("the configuration has no rules: there is no table `retention` in it", "retention")
    if settings.as_json and not (yes or dry):
        raise UsageInvalid("with --json nobody is asked: say --yes, or --dry-run", "--yes")
    async with reach(config, reads=dry, name="callboard retention") as connection, listings(connection) as found:
        if not (dry or yes):
            _show_expired(await round_of(connection.log, found, connection.config, dry=True), "would go", err=True)
            if not confirm("Take them out of the log for good?"):
                return exits.OK
        done = await round_of(connection.log, found, connection.config, dry=dry)
    if settings.as_json:
        say(compact(msgspec.to_builtins(done)))
    else:
        _show_expired(done, "would go" if dry else "gone", err=False)
    return exits.OK


def _show_expired(done: "Sequence[Expired]", what: str, *, err: bool) -> None:
    for one in done:
        count = f"{len(one.runs)} run{'' if len(one.runs) == 1 else 's'}"
        stay = f", {len(one.stays)} cannot" if one.stays else ""
        say(f"{one.rule}: {count} of {one.tenant} {what}{stay}", err=err)
        for run in one.runs[:RUNS_SHOWN_MAX]:
            say(f"  {run}", err=err)
        if len(one.runs) > RUNS_SHOWN_MAX:
            say(f"  … and {len(one.runs) - RUNS_SHOWN_MAX} more", err=err)
        for stays in one.stays[:RUNS_SHOWN_MAX]:
            say(f"  {stays.run}  {stays.code}: {stays.message}", err=err)
