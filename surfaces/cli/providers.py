"""``callboard providers``: what calls and middlewares a flow can name, and their contracts."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("uri", required=False)
@settings_options
def providers(uri: str | None, settings: Settings) -> None:
    """List the providers that a flow can name here, or show the contract of one, by URI or by a name such as http.

    Those are the specification's own, Callboard's, and what is installed beside it or named in the configuration as
    `providers.classes`. Needs no server; a worker elsewhere may have others.
    """
    from callboard.surfaces.cli.contracts import list_providers, show_provider
    from callboard.surfaces.cli.settings import configured

    config = configured(settings)
    if uri is None:
        list_providers(config, as_json=settings.as_json)
    else:
        show_provider(config, uri, as_json=settings.as_json)
