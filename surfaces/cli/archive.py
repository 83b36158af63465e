"""``callboard archive, import``: runs into one file, and from there into a store."""

from pathlib import Path

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.output import progress


@click.command(epilog=exits.EXIT_CODES)
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


@click.command("import", epilog=exits.EXIT_CODES)
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
