"""Forgetting at the command line: whose words are about to be lost, and whether they shall be."""

from callboard.projections.lists.where import Both, Term
from callboard.runtime.settings.config import Config
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.key_destruction import forget
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.run_listing import listings
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import confirmed, say
from callboard.surfaces.cli.settings import Settings

_ENDED = Term("ended", ">=", 0.0)


async def forget_key(name: str, yes: bool, config: Config, settings: Settings) -> int:
    """Destroy a key; return the exit code.

    :raises UsageInvalid: if no one could be asked
    :raises KeyInUse: if runs that are encrypted with it continue
    :raises KeyUnknown: if the key does not exist
    :raises CallboardError: if there is no server
    """
    if settings.as_json and not yes:
        raise UsageInvalid("with --json nobody is asked: say --yes", "--yes")
    of_key = Term("encryption_key", "=", name)
    async with reach(config, reads=False, name="callboard forget") as connection, listings(connection) as found:
        runs = await found.ids(config.tenant, of_key)
        ended = set(await found.ids(config.tenant, Both((of_key, _ENDED))))
        count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
        if not yes and not confirmed(f"Forget for good what {count} said under the key {name}?"):
            return exits.OK
        await forget(connection.log, config.tenant, name, [run for run in runs if run not in ended])
    told = {"encryption_key": name, "runs": len(runs)}
    say(compact(told) if settings.as_json else f"forgot {name}: what {count} said can no longer be read")
    return exits.OK
