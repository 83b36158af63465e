"""``callboard archive, import``: runs into one file, and from there into a store."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import progress, say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.projections.lists.where import Where
    from callboard.runtime.settings.config import Config


@click.command(epilog=exits.EXIT_CODES)
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--all", "everything", is_flag=True, help="All runs of the tenant.")
@click.option("--where", "-w", "question", metavar="QUESTION", help="All runs that match.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), required=True, metavar="FILE", help="The file to write."
)
@click.option("--children", is_flag=True, help="Include their child runs.")
@settings_options
def archive(
    settings: Settings, runs: tuple[str, ...], everything: bool, question: str | None, output: str, children: bool
) -> None:
    """Write runs to one FILE: their events, large values and definitions, compressed, with digests.

    The name of FILE ends in .callboard. Commands that read a run accept FILE or FILE#RUN in place of RUN.
    """
    import anyio

    from callboard.surfaces.cli.runs import parse_question

    if sum((bool(runs), everything, question is not None)) != 1:
        raise click.UsageError("name runs, or pass --all or --where")
    if not output.endswith(".callboard"):
        raise click.BadParameter("expected a file name that ends in .callboard", param_hint="--output")
    anyio.run(
        write_archive, ArchiveRequest(runs, parse_question(question), output, children), load_config(settings), settings
    )


@click.command("import", epilog=exits.EXIT_CODES)
@click.argument("file", metavar="FILE[#RUN]")
@click.option("--as", "id", metavar="ID", help="Import the run under this id.")
@settings_options
def import_file(settings: Settings, file: str, id: str | None) -> None:
    """Put the runs of an archive, or one of them, into the store.

    A run that the store already has is skipped, so an interrupted import can be repeated. If the store has another run
    with the same id, that run is refused. Only runs that have ended are imported.
    """
    import anyio

    anyio.run(import_archive, file, id, load_config(settings), settings)


class ArchiveRequest(NamedTuple):
    """The runs to archive, the question that selects them if none is named, and the file."""

    runs: tuple[str, ...]
    question: "Where"
    output: str
    children: bool


async def write_archive(request: ArchiveRequest, config: "Config", settings: Settings) -> None:
    """Write runs to an archive and print how many.

    :raises UnknownRun: if the run does not exist
    :raises CallboardError: ``file.unwritable``
    """
    import anyio
    import msgspec

    from callboard.bus.errors import CallboardError
    from callboard.service.operations.archives import archive_runs
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.surfaces.cli.runs import find_runs

    async with reach(config, reads=True, name="callboard archive") as connection:
        runs = list(dict.fromkeys(request.runs)) or await find_runs(connection, request.question)
        path = Path(request.output)
        with progress(len(runs)) as done:
            try:
                found = await archive_runs(
                    connection.log, config.tenant, runs, path, children=request.children, progress=done
                )
            except OSError as error:
                message = f"the file cannot be written: {error.strerror}"
                raise CallboardError("file.unwritable", message, request.output) from error
    size = (await anyio.Path(path).stat()).st_size
    if settings.as_json:
        say(compact({"file": request.output, "bytes": size, "runs": msgspec.to_builtins(found)}))
        return
    going = sum(not one.status for one in found)
    rest = f"; {going} had not ended" if going else ""
    say(f"Wrote {_count(len(found))} to {request.output}, {size} bytes{rest}")


async def import_archive(file: str, id: str | None, config: "Config", settings: Settings) -> None:
    """Put the runs of an archive into the store and print the verdict on each. Raises as `import_runs`, `import_as`."""
    import msgspec

    from callboard.bus.nats.archive import Archive
    from callboard.bus.subjects import is_name
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.files.run_files import in_file
    from callboard.service.operations.archives import import_as, import_runs
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    named = in_file(file)
    if named is None or not named.is_archive:
        raise UsageInvalid(f"{file!r} is not an archive; expected a file name that ends in .callboard", "FILE")
    if id is not None and not (id and is_name(id)):
        raise UsageInvalid(f"{id!r} is not a valid run id", "--as")
    archive = Archive(named.path)
    # --as names one run. Without it, and without a RUN, all runs are imported.
    runs = [archive.run(named.run)] if named.run is not None or id is not None else archive.runs
    async with reach(config, reads=True, founds=True, name="callboard import") as connection:
        with progress(len(runs)) as done:
            if id is None:
                found = await import_runs(connection.log, config.tenant, archive, runs, done)
            else:
                found = [await import_as(connection.log, config.tenant, archive, runs[0], id)]
    if settings.as_json:
        say(compact(msgspec.to_builtins(found)))
        return
    for one in found:
        say(f"{one.run}  {one.verdict}, {one.events} events")


def _count(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
