"""``callboard start``: hand a run to a server that stands."""

from functools import partial

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Order, Settings, settings_options, start_options


@click.command(epilog=exits.EXIT_CODES)
@partial(start_options, names=True)
@settings_options
def start(order: Order, settings: Settings) -> None:
    """Start a run at a server that stands, and print its id.

    FILE may also be the name of a registered definition (`callboard push`). The run is durable once this returns.
    `callboard up` is such a server.
    """
    from pathlib import Path

    import anyio

    from callboard.runtime.cli.ordering import ordered, ordered_by_name
    from callboard.runtime.cli.settings import configured
    from callboard.runtime.cli.starting import publish

    what = ordered(order) if Path(order.file).is_file() else ordered_by_name(order)
    anyio.run(publish, what, configured(settings), settings, order.file)
