"""``callboard purge, forget, retention``: remove runs, or their contents, from the log."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import NAME_ONE, Many, all_option, where_option
from callboard.surfaces.cli.output import confirm, say

if TYPE_CHECKING:
    from callboard.service.retention.retention import ExpiryResult


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@where_option
@all_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--by", metavar="NAME", help="The name of the person who does it; stored with the id.")
@click.option("--reason", metavar="TEXT", default="", help="The reason; stored with the id.")
@operation
async def purge(
    call: OperationCall, run: str | None, question: str | None, everything: bool, yes: bool, by: str | None, reason: str
) -> int:
    """Remove RUN from the log, with its child runs: events, large values, its start and its commands.

    A removed run cannot be restored, and its id is not used again. Runs in progress stay, and so do runs that share
    events with a fork. `--where 'ended>90d'` selects runs that ended more than 90 days ago.
    """
    from callboard.bus.nats.purge import PurgeMark
    from callboard.service.operations.bulk import BulkResult, purge_all
    from callboard.service.operations.removal import purge_run
    from callboard.surfaces.cli.bulk import BulkRun, check_confirmation, do_many

    if sum((run is not None, question is not None, everything)) != 1:
        raise click.UsageError(NAME_ONE)
    mark = PurgeMark(by=by, reason=reason)
    if run is None:

        async def purge_each(many: BulkRun) -> list[BulkResult]:
            return await purge_all(many.client, many.runs, mark, many.progress)

        return await do_many(call, Many(question, yes, None), "purge", purge_each)
    check_confirmation(call, given=yes)
    async with call.connect(reads=False) as connection:
        if yes or confirm(f"Remove {run} permanently?"):
            removed = await purge_run(connection.client, run, mark)
            call.answer({"run": run, "messages": removed}, f"purged {run}, {removed} messages")
    return exits.OK


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@operation
async def forget(call: OperationCall, name: str, yes: bool) -> None:
    """Destroy the encryption key NAME: the contents of runs started with `--encryption-key NAME` are lost permanently.

    The log, and every copy of it, still shows that these runs existed, when they ran and how they ended.
    """
    from callboard.projections.lists.where import Both, Term
    from callboard.service.operations.removal import destroy_key
    from callboard.service.operations.run_listing import listings
    from callboard.surfaces.cli.bulk import check_confirmation

    check_confirmation(call, given=yes)
    of_key, tenant = Term("encryption_key", "=", name), call.config.tenant
    async with call.connect(reads=False) as connection, listings(connection) as found:
        runs = await found.ids(tenant, of_key)
        ended = set(await found.ids(tenant, Both((of_key, Term("ended", ">=", 0.0)))))
        count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
        if not yes and not confirm(f"Destroy the key {name}, and with it the contents of {count}, permanently?"):
            return
        await destroy_key(connection.log, tenant, name, [run for run in runs if run not in ended])
    told = {"encryption_key": name, "runs": len(runs)}
    call.answer(told, f"destroyed the key {name}: the contents of {count} can no longer be read")


@click.command(epilog=exits.EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Only show which runs would be removed, and which cannot be.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@operation
async def retention(call: OperationCall, dry_run: bool, yes: bool) -> None:
    """Apply the rules of the table `retention` in the configuration once, now.

    `callboard up` and `callboard worker` apply them regularly. A rule can archive runs before they are purged. Runs in
    progress stay, and so do runs that share events with a fork.
    """
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.operations.run_listing import listings
    from callboard.service.retention.retention import round_of
    from callboard.surfaces.cli.bulk import check_confirmation

    if not call.config.retention:
        raise UsageInvalid("the configuration has no table `retention` with rules", "retention")
    check_confirmation(call, given=yes or dry_run, more=", or --dry-run")
    async with call.connect(reads=dry_run) as connection, listings(connection) as found:
        if not (dry_run or yes):
            expired = await round_of(connection.log, found, connection.config, dry=True)
            for line in _expired_lines(expired, "would be removed"):
                say(line, err=True)
            if not confirm("Remove them from the log permanently?"):
                return
        done = await round_of(connection.log, found, connection.config, dry=dry_run)
    call.answer(done, _expired_lines(done, "would be removed" if dry_run else "removed"))


RUNS_SHOWN_MAX = 10
"""How many removed and how many kept runs of a rule are shown."""


def _expired_lines(done: "Sequence[ExpiryResult]", what: str) -> Iterator[str]:
    for one in done:
        count = f"{len(one.runs)} run{'' if len(one.runs) == 1 else 's'}"
        stay = f", {len(one.stays)} cannot be" if one.stays else ""
        yield f"{one.rule}: {count} of {one.tenant} {what}{stay}"
        for run in one.runs[:RUNS_SHOWN_MAX]:
            yield f"  {run}"
        if len(one.runs) > RUNS_SHOWN_MAX:
            yield f"  … and {len(one.runs) - RUNS_SHOWN_MAX} more"
        for stays in one.stays[:RUNS_SHOWN_MAX]:
            yield f"  {stays.run}  {stays.code}: {stays.message}"
