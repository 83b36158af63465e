"""``callboard start``: hand a run to a server that stands."""

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Order, Settings, settings_options, start_options


@click.command(epilog=exits.EXIT_CODES)
@start_options
@settings_options
def start(order: Order, settings: Settings) -> None:
    """Start a run at a server that stands, and print its id.

    The run is durable once this returns. `callboard up` is such a server.
    """
    import anyio

    from callboard.runtime.cli.ordering import ordered
    from callboard.runtime.cli.settings import configured
    from callboard.runtime.cli.starting import publish

    anyio.run(publish, ordered(order), configured(settings), settings, order.file)
