"""Serving MCP: a connection, a worker beside it if the server is ours, and the transport, until the client leaves."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from callboard.features.access.rates import Rates
from callboard.features.access.tokens import Tokens
from callboard.features.index.files import FOLDER
from callboard.features.telemetry.exporters import open_exporters
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.bootstrap import open_worker
from callboard.runtime.worker.worker import Worker
from callboard.service.api.connection import Connection
from callboard.service.api.run_lists import Listings
from callboard.service.api.service import open_service
from callboard.service.operations.reach import join
from callboard.service.operations.results import compact
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.process import stop_signals, surroundings
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.address import LOOPBACK, check_address, listening, url_of
from callboard.surfaces.mcp.http import PATH, serve_http
from callboard.surfaces.mcp.library import library
from callboard.surfaces.mcp.server import mcp_server
from callboard.surfaces.mcp.stdio import diverted, open_stdio
from callboard.surfaces.mcp.tools import Tools

DRAIN_WAIT_S = 5.0
"""How long effects of our own worker may finish when we stop; runs continue from the log with the next worker."""


class Serving(Struct, frozen=True):
    """Where to serve (None: stdin and stdout), which folders have definitions, and which more have Python tools."""

    config: Config
    settings: Settings
    folders: tuple[str, ...]
    import_from: tuple[Path, ...]
    address: tuple[str, int] | None


async def serve(serving: Serving) -> int:
    """Serve until the client leaves or a signal comes; return the exit code.

    :raises OperatorError: whatever keeps server, worker or address from being usable
    """
    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(*stop_signals()))

        async def until_signal() -> None:
            async for _first in signals:
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_signal)
            await (_over_stdio(serving) if serving.address is None else _over_http(serving, *serving.address))
            tasks.cancel_scope.cancel()
    return exits.OK


async def _over_stdio(serving: Serving) -> None:
    # Before anything else: whatever is started or printed from here on must not reach the client.
    async with diverted() as (reads, writes), _tools(serving) as tools:
        server = mcp_server(tools)
        async with open_stdio(reads, writes) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


async def _over_http(serving: Serving, host: str, port: int) -> None:
    config = serving.config
    token = config.mcp_token.get_secret_value() if config.mcp_token else None
    tokens = Tokens(config.oidc, config.tenant) if config.oidc is not None else None
    if tokens is None:
        check_address(host, port, token, "mcp")
    rates = Rates(config.http_rate_per_s, config.http_burst)
    access = Access(token, open=host in LOOPBACK, tokens=tokens, rates=rates)
    with listening(host, port, "mcp") as bound:
        async with _tools(serving) as tools:
            url = f"{url_of(bound)}{PATH}"
            say(compact({"url": url}) if serving.settings.as_json else f"Serving MCP at {url}")
            await serve_http(mcp_server(tools), bound, host, access, config.oidc.issuer if config.oidc else None)


@asynccontextmanager
async def _tools(serving: Serving) -> AsyncGenerator[Tools]:
    shelves = library(serving.folders, [serving.config.data_dir])
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            join(serving.config, name="callboard mcp", say=partial(say, err=True))
        )
        performer = ""
        if serving.config.embedded or serving.import_from:
            folders = (*shelves.folders, *serving.import_from)
            worker = await stack.enter_async_context(_own_worker(connection, folders))
            # Whoever names places of tools means our worker; otherwise one that represents all is as good.
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
async def _own_worker(connection: Connection, folders: tuple[Path, ...]) -> AsyncGenerator[Worker]:
    """Work for as long as we live, and answer requests: other commands find us over the data directory."""
    async with AsyncExitStack() as stack:
        env = stack.enter_context(surroundings(None, *folders))
        await stack.enter_async_context(open_exporters(connection))
        worker = await stack.enter_async_context(open_worker(connection, env, guest=True))
        await stack.enter_async_context(open_service(connection))
        try:
            yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await worker.drain(DRAIN_WAIT_S)
