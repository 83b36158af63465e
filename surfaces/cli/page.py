"""``callboard page``: runs from a file of events, in a browser, without a running server."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Address
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--listen",
    "address",
    type=Address(),
    default="127.0.0.1:0",
    show_default=True,
    help="Where to serve, on the loopback; port 0 takes a free one.",
)
@settings_options
@click.pass_context
def page(ctx: click.Context, settings: Settings, file: str, address: tuple[str, int]) -> None:
    """Look at the runs of a file of events in a browser.

    FILE is an archive, or has one event per line, as the page exports them or `callboard trace RUN --format events`
    prints them. The runs are read-only, and the server ends with the command. The page of runs in progress is at the
    address of `callboard up` or `callboard http`.
    """
    import anyio

    from callboard.surfaces.cli.page_action import serve
    from callboard.surfaces.cli.settings import configured

    ctx.exit(anyio.run(serve, configured(settings, level="warning"), settings, file, *address))
