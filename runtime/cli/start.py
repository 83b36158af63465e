"""``callboard start``: hand a run to a server that stands."""

from functools import partial

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Settings, is_file, settings_options, start_options
from callboard.runtime.operations.start_request import StartRequest


@click.command(epilog=exits.EXIT_CODES)
@partial(start_options, names=True)
@settings_options
def start(request: StartRequest, settings: Settings) -> None:
    """Start a run at a server that stands, and print its id.

    FILE may also be the name of a registered definition (`callboard push`). The run is durable once this returns.
    `callboard up` is such a server.
    """
    import anyio

    from callboard.runtime.cli.settings import configured
    from callboard.runtime.cli.starting import publish
    from callboard.runtime.operations.start_messages import prepared, prepared_by_name

    what = prepared(request) if is_file(request.file) else prepared_by_name(request)
    anyio.run(publish, what, configured(settings), settings, request.file)
