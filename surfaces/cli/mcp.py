"""``callboard mcp``: workflows as tools for agents, over the Model Context Protocol."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import AddressType, import_from_option
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, disable_json, load_config, settings_options

if TYPE_CHECKING:
    from callboard.runtime.client.connection import Connection
    from callboard.runtime.settings.config import Config
    from callboard.runtime.worker.worker import Worker
    from callboard.surfaces.mcp.tools import Tools


@click.command()
@click.option("--http", "address", type=AddressType(), help="Serve streamable HTTP at this address, instead of stdio.")
@click.option(
    "--folder",
    "folders",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="A folder of definitions that may be read; default: the working directory. May be repeated.",
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

    The protocol is MCP on stdin and stdout, or at http://HOST:PORT/mcp. The command connects to the server that --nats
    names, or to the running server of the data directory; without one, it runs its own server and worker.

    \b
    claude mcp add callboard -- callboard mcp --folder workflows --import-from workflows/tools
    callboard mcp --http 127.0.0.1:8722
    """
    from pathlib import Path

    import anyio

    if address is None:
        # Stdout carries only the protocol, so errors go to stderr.
        disable_json(ctx)
    config = load_config(settings, level="warning")
    sources = tuple(Path(folder).absolute() for folder in import_from)
    ctx.exit(anyio.run(serve_until_client_leaves, _McpOptions(config, settings, folders or (".",), sources, address)))


DRAIN_WAIT_S = 5.0
"""How long running effects of the worker may finish when the command stops; the next worker continues the runs."""


class _McpOptions(NamedTuple):
    """Options of the MCP server: its address (None: stdin and stdout), folders of definitions and of Python tools."""

    config: "Config"
    settings: Settings
    folders: tuple[str, ...]
    import_from: tuple[Path, ...]
    address: tuple[str, int] | None


async def serve_until_client_leaves(serving: _McpOptions) -> int:
    """Serve until the client disconnects or a signal arrives; return the exit code.

    :raises OperatorError: if the server, the worker or the address cannot be used
    """
    import anyio

    from callboard.surfaces.cli.process import stop_signals

    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(*stop_signals()))

        async def until_signal() -> None:
            async for _first in signals:
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_signal)
            await (_serve_stdio(serving) if serving.address is None else _serve_http(serving, *serving.address))
            tasks.cancel_scope.cancel()
    return exits.OK


async def _serve_stdio(serving: _McpOptions) -> None:
    from callboard.surfaces.mcp.server import mcp_server
    from callboard.surfaces.mcp.stdio import divert_stdio, open_stdio

    # First of all, divert stdout: output of tools and libraries must not reach the client.
    async with divert_stdio() as (reads, writes), _open_tools(serving) as tools:
        server = mcp_server(tools)
        async with open_stdio(reads, writes) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


async def _serve_http(serving: _McpOptions, host: str, port: int) -> None:
    from callboard.features.access.rates import Rates
    from callboard.features.access.tokens import Tokens
    from callboard.service.operations.results import compact
    from callboard.surfaces.http.access import Access
    from callboard.surfaces.http.address import LOOPBACK, check_address, listening, url_of
    from callboard.surfaces.mcp.http import PATH, serve_http
    from callboard.surfaces.mcp.server import mcp_server

    config = serving.config
    token = config.mcp_token.get_secret_value() if config.mcp_token else None
    tokens = Tokens(config.oidc, config.tenant) if config.oidc is not None else None
    if tokens is None:
        check_address(host, port, token, "mcp")
    rates = Rates(config.http_rate_per_s, config.http_burst)
    access = Access(token, open=host in LOOPBACK, tokens=tokens, rates=rates)
    with listening(host, port, "mcp") as bound:
        async with _open_tools(serving) as tools:
            url = f"{url_of(bound)}{PATH}"
            say(compact({"url": url}) if serving.settings.as_json else f"Serving MCP at {url}")
            await serve_http(mcp_server(tools), bound, host, access, config.oidc.issuer if config.oidc else None)


@asynccontextmanager
async def _open_tools(serving: _McpOptions) -> "AsyncGenerator[Tools]":
    import anyio

    from callboard.features.index.files import FOLDER
    from callboard.service.operations.reach import join
    from callboard.service.operations.run_lists import Listings
    from callboard.surfaces.mcp.library import library
    from callboard.surfaces.mcp.tools import Tools

    shelves = library(serving.folders, [serving.config.data_dir])
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            join(serving.config, name="callboard mcp", say=partial(say, err=True))
        )
        performer = ""
        if serving.config.embedded or serving.import_from:
            folders = (*shelves.folders, *serving.import_from)
            worker = await stack.enter_async_context(_open_worker(connection, folders))
            # With --import-from, only this worker has the tools; otherwise any worker may perform a run.
            performer = worker.name if serving.import_from else ""
        tasks = await stack.enter_async_context(anyio.create_task_group())
        try:
            yield Tools(
                connection,
                shelves,
                Listings(
                    connection.log, tasks, connection.config.data_dir / FOLDER, prices=connection.config.price_table()
                ),
                performer,
            )
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _open_worker(connection: "Connection", folders: tuple[Path, ...]) -> "AsyncGenerator[Worker]":
    """Run a worker and the service for the length of the block; other commands find them over the data directory."""
    import anyio

    from callboard.features.telemetry.exporters import open_exporters
    from callboard.service.worker.bootstrap import open_worker
    from callboard.surfaces.cli.process import worker_environment
    from callboard.surfaces.nats.micro_service import open_service

    async with AsyncExitStack() as stack:
        env = stack.enter_context(worker_environment(None, *folders))
        await stack.enter_async_context(open_exporters(connection))
        worker = await stack.enter_async_context(open_worker(connection, env, guest=True))
        await stack.enter_async_context(open_service(connection))
        try:
            yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await worker.drain(DRAIN_WAIT_S)
