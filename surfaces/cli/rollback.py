"""``callboard rollback``: have a name mean an earlier version again."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.argument("version", required=False)
@click.option("--by", metavar="NAME", help="Who does so; kept with it.")
@settings_options
def rollback(settings: Settings, name: str, version: str | None, by: str | None) -> None:
    """Have the registered NAME mean an earlier version again: VERSION, or else the one before.

    VERSION is a number, as v2, or a hash or how one begins; `callboard definitions NAME` lists them. It is registered
    once more, so nothing is lost; runs that are under way stay as they are.
    """
    import anyio

    from callboard.surfaces.cli.registered import roll_back
    from callboard.surfaces.cli.settings import configured

    anyio.run(roll_back, configured(settings), settings, name, version, by)
