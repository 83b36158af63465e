"""``callboard definitions``: what is registered, and what travels with it."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name", required=False)
@click.option("--source", is_flag=True, help="Print its text, and nothing else.")
@settings_options
def definitions(settings: Settings, name: str | None, source: bool) -> None:
    """List the registered definitions; with NAME show one with all its versions, by NAME@VERSION or hash one version.

    `callboard push` registers them, `callboard rollback` goes back to an earlier version.
    """
    import anyio

    from callboard.surfaces.cli.registered import list_definitions, print_source, show_definition
    from callboard.surfaces.cli.settings import configured

    config = configured(settings)
    if name is None and source:
        raise click.UsageError("--source is of one definition: say which")
    if name is None:
        anyio.run(list_definitions, config, settings)
    elif source:
        anyio.run(print_source, config, name)
    else:
        anyio.run(show_definition, config, settings, name)
