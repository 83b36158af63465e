"""``callboard definitions``: what is registered, and what travels with it."""

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name", required=False)
@settings_options
def definitions(settings: Settings, name: str | None) -> None:
    """List the registered definitions; with NAME, or a hash, show one.

    `callboard push` registers them.
    """
    import anyio

    from callboard.runtime.cli.registered import list_definitions, show_definition
    from callboard.runtime.cli.settings import configured

    config = configured(settings)
    if name is None:
        anyio.run(list_definitions, config, settings)
    else:
        anyio.run(show_definition, config, settings, name)
