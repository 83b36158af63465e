"""Purging at the command line: what is about to be removed, whether it shall be, and what became of it."""

from callboard.bus.nats.purge import Gone
from callboard.runtime.settings.config import Config
from callboard.service.operations.bulk import BulkResult, purge_all
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.run_purge import purge_run
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.bulk import Doing, Many, do_many
from callboard.surfaces.cli.output import confirmed, say
from callboard.surfaces.cli.settings import Settings


async def purge_many(whom: Many | str, yes: bool, mark: Gone, config: Config, settings: Settings) -> int:
    """Purge a run, or all that a question finds; return the exit code.

    :raises UnknownRun: if the run does not exist
    :raises CannotPurge: if it is still needed
    :raises CallboardError: if there is no server
    """
    if isinstance(whom, str):
        return await _one(whom, yes, mark, config, settings)

    async def purge(many: Doing) -> list[BulkResult]:
        return await purge_all(many.client, many.runs, mark, many.progress)

    return await do_many(whom, "purge", purge, config, settings)


async def _one(run: str, yes: bool, mark: Gone, config: Config, settings: Settings) -> int:
    if settings.as_json and not yes:
        raise UsageInvalid("with --json nobody is asked: say --yes", "--yes")
    async with reach(config, reads=False, name="callboard purge") as connection:
        if not yes and not confirmed(f"Remove {run} for good?"):
            return exits.OK
        removed = await purge_run(connection.client, run, mark)
    say(compact({"run": run, "messages": removed}) if settings.as_json else f"purged {run}, {removed} messages")
    return exits.OK
