"""``callboard http``: the runtime over HTTP."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Address
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.option(
    "--listen",
    "address",
    type=Address(),
    default="127.0.0.1:8723",
    show_default=True,
    help="Where to serve; port 0 takes a free one. Anywhere but on the loopback CALLBOARD_HTTP_TOKEN is needed.",
)
@settings_options
@click.pass_context
def http(ctx: click.Context, settings: Settings, address: tuple[str, int]) -> None:
    """Serve the runtime over HTTP: start runs, send commands, read and follow.

    This process performs no runs. It connects to the server that --nats names, or to the running server of the data
    directory. /openapi.json describes the interface.
    """
    import anyio

    from callboard.surfaces.cli.http_action import serve
    from callboard.surfaces.cli.settings import configured

    ctx.exit(anyio.run(serve, configured(settings, level="warning"), settings, *address))
