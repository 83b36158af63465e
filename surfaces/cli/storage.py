"""``callboard archive, import, cool, warm, purge, forget, retention``: where runs are kept, and removing them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import NAME_ONE, Many, all_option, where_option
from callboard.surfaces.cli.output import confirm, progress, say

if TYPE_CHECKING:
    from callboard.service.retention.retention import ExpiryResult


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--all", "everything", is_flag=True, help="All runs of the tenant.")
@click.option("--where", "-w", "question", metavar="QUESTION", help="All runs that match.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), required=True, metavar="FILE", help="The file to write."
)
@click.option("--children", is_flag=True, help="Include their child runs.")
@operation
async def archive(
    call: OperationCall, runs: tuple[str, ...], everything: bool, question: str | None, output: str, children: bool
) -> None:
    """Write runs to one FILE: their events, large values and definitions, compressed, with digests.

    The name of FILE ends in .callboard. Commands that read a run accept FILE or FILE#RUN in place of RUN.
    """
    import anyio

    from callboard.bus.errors import CallboardError
    from callboard.service.operations.archives import archive_runs
    from callboard.surfaces.cli.runs import find_runs, parse_question

    if sum((bool(runs), everything, question is not None)) != 1:
        raise click.UsageError("name runs, or pass --all or --where")
    if not output.endswith(".callboard"):
        raise click.BadParameter("expected a file name that ends in .callboard", param_hint="--output")
    wanted, path = parse_question(question), Path(output)
    async with call.connect() as connection:
        named = list(dict.fromkeys(runs)) or await find_runs(connection, wanted)
        with progress(len(named)) as done:
            try:
                found = await archive_runs(
                    connection.log, call.config.tenant, named, path, children=children, progress=done
                )
            except OSError as error:
                message = f"the file cannot be written: {error.strerror}"
                raise CallboardError("file.unwritable", message, output) from error
    size = (await anyio.Path(path).stat()).st_size
    going = sum(not one.status for one in found)
    rest = f"; {going} had not ended" if going else ""
    count = f"{len(found)} run{'' if len(found) == 1 else 's'}"
    call.answer({"file": output, "bytes": size, "runs": found}, f"Wrote {count} to {output}, {size} bytes{rest}")


@click.command("import")
@click.argument("file", metavar="FILE[#RUN]")
@click.option("--as", "id", metavar="ID", help="Import the run under this id.")
@operation
async def import_file(call: OperationCall, file: str, id: str | None) -> None:
    """Put the runs of an archive, or one of them, into the store.

    A run that the store already has is skipped, so an interrupted import can be repeated. If the store has another run
    with the same id, that run is refused. Only runs that have ended are imported.
    """
    from callboard.bus.nats.archive import Archive
    from callboard.bus.subjects import is_name
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.files.run_files import in_file
    from callboard.service.operations.archives import import_as, import_runs

    named = in_file(file)
    if named is None or not named.is_archive:
        raise UsageInvalid(f"{file!r} is not an archive; expected a file name that ends in .callboard", "FILE")
    if id is not None and not (id and is_name(id)):
        raise UsageInvalid(f"{id!r} is not a valid run id", "--as")
    archive = Archive(named.path)
    # --as names one run. Without it, and without a RUN, all runs are imported.
    runs = [archive.run(named.run)] if named.run is not None or id is not None else archive.runs
    async with call.connect(founds=True) as connection:
        with progress(len(runs)) as done:
            if id is None:
                found = await import_runs(connection.log, call.config.tenant, archive, runs, done)
            else:
                found = [await import_as(connection.log, call.config.tenant, archive, runs[0], id)]
    call.answer(found, (f"{one.run}  {one.verdict}, {one.events} events" for one in found))


@click.command()
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


@click.command()
@click.argument("run")
@operation
async def warm(call: OperationCall, run: str) -> None:
    """Move RUN from cold storage back to the stream."""
    from callboard.bus.nats.cooling import warm_run

    async with call.connect() as connection:
        events = await warm_run(connection.log, connection.client.ref(run))
    call.answer({"run": run, "events": events}, f"restored {run}, {events} events")


@click.command()
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


@click.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@operation
async def forget(call: OperationCall, name: str, yes: bool) -> None:
    """Destroy the encryption key NAME: the contents of runs started with `--encryption-key NAME` are lost permanently.

    The log, and every copy of it, still shows that these runs existed, when they ran and how they ended.
    """
    from callboard.projections.lists.where import Both, Term
    from callboard.service.operations.removal import destroy_key
    from callboard.service.operations.run_lists import listings
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


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show which runs would be removed, and which cannot be.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@operation
async def retention(call: OperationCall, dry_run: bool, yes: bool) -> None:
    """Apply the rules of the table `retention` in the configuration once, now.

    `callboard up` and `callboard worker` apply them regularly. A rule can archive runs before they are purged. Runs in
    progress stay, and so do runs that share events with a fork.
    """
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.operations.run_lists import listings
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
