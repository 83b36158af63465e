"""Writing runs to an archive, and bringing them into a store, at the command line."""

from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.bus.nats.archive import Archive
from callboard.bus.subjects import is_name
from callboard.projections.lists.where import Where
from callboard.runtime.settings.config import Config
from callboard.service.operations.archives import archive_runs, import_as, import_runs
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.run_files import in_file
from callboard.surfaces.cli.output import progress, say
from callboard.surfaces.cli.run_selection import found_runs
from callboard.surfaces.cli.settings import Settings


class Chosen(Struct, frozen=True):
    """The runs that are to be archived, those that are wanted if none is named, and where."""

    runs: tuple[str, ...]
    question: Where
    output: str
    children: bool


async def write(chosen: Chosen, config: Config, settings: Settings) -> None:
    """Write runs to an archive and say how many.

    :raises UnknownRun: if the run does not exist
    :raises CallboardError: ``file.unwritable``
    """
    async with reach(config, reads=True, name="callboard archive") as connection:
        runs = list(dict.fromkeys(chosen.runs)) or await found_runs(connection, chosen.question)
        path = Path(chosen.output)
        with progress(len(runs)) as done:
            try:
                found = await archive_runs(
                    connection.log, config.tenant, runs, path, children=chosen.children, progress=done
                )
            except OSError as error:
                message = f"the file cannot be written: {error.strerror}"
                raise CallboardError("file.unwritable", message, chosen.output) from error
    size = (await anyio.Path(path).stat()).st_size
    if settings.as_json:
        say(compact({"file": chosen.output, "bytes": size, "runs": msgspec.to_builtins(found)}))
        return
    going = sum(not one.status for one in found)
    rest = f"; {going} had not ended" if going else ""
    say(f"Wrote {_count(len(found))} to {chosen.output}, {size} bytes{rest}")


async def bring_in(file: str, id: str | None, config: Config, settings: Settings) -> None:
    """Put the runs of an archive into the store and say what became of each. Raises as `import_runs`, `import_as`."""
    named = in_file(file)
    if named is None or not named.is_archive:
        raise UsageInvalid(f"{file!r} is no archive: its name ends in .callboard", "FILE")
    if id is not None and not (id and is_name(id)):
        raise UsageInvalid(f"{id!r} is no id that a run can have", "--as")
    archive = Archive(named.path)
    # With another id only one can be meant; without, and with none named, all are.
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
