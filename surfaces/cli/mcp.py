"""``callboard mcp``: workflows as tools for agents, over the Model Context Protocol."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Address, import_from_option
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.option("--http", "address", type=Address(), help="Serve streamable HTTP at this address, instead of stdio.")
@click.option(
    "--folder",
    "folders",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Where definitions lie that may be read; default: the working directory. May be given several times.",
)
@import_from_option
@settings_options
@click.pass_context
def mcp(
    ctx: click.Context,
    settings: Settings,
    address: tuple[str, int] | None,
    folders: tuple[str, ...],
    import_from: tuple[str, ...],
) -> None:
    """Serve workflows as tools for agents: list, validate, start, watch, answer.

    Speaks MCP on stdin and stdout, or at http://HOST:PORT/mcp. It connects to the server that --nats names, or to the
    running server of the data directory. Without one it starts its own server and worker for as long as it runs.

    \b
    claude mcp add callboard -- callboard mcp --folder workflows --import-from workflows/tools
    callboard mcp --http 127.0.0.1:8722
    """
    from pathlib import Path

    import anyio

    from callboard.surfaces.cli.mcp_action import Serving, serve
    from callboard.surfaces.cli.settings import configured, forget_json

    if address is None:
        # On stdout nothing is said but the protocol, not even an error.
        forget_json(ctx)
    config = configured(settings, level="warning")
    sources = tuple(Path(folder).absolute() for folder in import_from)
    ctx.exit(anyio.run(serve, Serving(config, settings, folders or (".",), sources, address)))
