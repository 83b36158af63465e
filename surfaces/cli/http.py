"""``callboard http``: the runtime over HTTP."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Address, Settings, settings_options


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
    """Serve the runtime over HTTP: start, tell, look, follow.

    Its own process beside the workers: it joins the server that --nats names, or the one that stands over the data
    directory, and performs nothing itself. /openapi.json says what there is.
    """
    import anyio

    from callboard.surfaces.cli.http_action import serve
    from callboard.surfaces.cli.settings import configured

    ctx.exit(anyio.run(serve, configured(settings, level="warning"), settings, *address))
