"""``callboard start``: hand a run to a running server."""

from functools import partial

import click

from callboard.service.operations.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options
from callboard.surfaces.cli.start_options import is_file, start_options


@click.command(epilog=exits.EXIT_CODES)
@partial(start_options, names=True)
@settings_options
def start(request: StartRequest, settings: Settings) -> None:
    """Start a run at a running server, and print its id.

    FILE may also be the name of a registered definition (`callboard push`). The run is durable once this returns.
    `callboard up` is such a server.
    """
    import anyio

    from callboard.service.operations.start_messages import prepare, prepare_by_name
    from callboard.surfaces.cli.settings import configured
    from callboard.surfaces.cli.start_action import publish

    what = prepare(request) if is_file(request.file) else prepare_by_name(request)
    anyio.run(publish, what, configured(settings), settings, request.file)
