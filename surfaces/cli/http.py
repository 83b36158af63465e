"""``callboard http``: the runtime over HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import AddressType, code_option, host_code

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable
    from pathlib import Path

    from callboard.runtime.client.connection import Connection
    from callboard.runtime.settings.config import Config
    from callboard.surfaces.cli.child_processes import ProcessOptions
    from callboard.surfaces.http.access import Access


@click.command()
@click.option(
    "--listen",
    "address",
    type=AddressType(),
    default="127.0.0.1:8723",
    show_default=True,
    help="The address to serve; port 0 takes a free port. Outside the loopback, CALLBOARD_HTTP_TOKEN is required.",
)
@code_option
@operation
def http(call: OperationCall, address: tuple[str, int], code: tuple[str, ...]) -> "Awaitable[None]":
    """Serve the runtime over HTTP: start runs, send commands, read and follow.

    This process performs no runs. It connects to the server that --nats names, or to the running server of the data
    directory. /openapi.json describes the interface. It replays runs of Python workflows whose --code is given.
    """
    import anyio

    from callboard.service.operations.reach import reach
    from callboard.surfaces.cli.process import stop_signals
    from callboard.surfaces.http.address import listening, url_of

    host_code(code)

    async def serve() -> None:
        config = call.config
        with anyio.open_signal_receiver(*stop_signals()) as signals, listening(*address, "http") as bound:
            async with (
                reach(config, reads=False, name=NAME, refused_wait_s=None) as connection,
                _serve_api(config, connection, bound),
            ):
                url = f"{url_of(bound)}/api/{config.tenant}"
                call.answer({"url": url}, f"Serving {url}")
                async for _first in signals:
                    break

    return serve()


NAME = "callboard http"


async def serve_http_child(process_options: "ProcessOptions") -> None:
    """Serve as a child process, at a bound address, until SIGTERM or until the parent exits."""
    import signal
    import socket

    import anyio

    from callboard.runtime.client.connection import open_connection
    from callboard.surfaces.cli.child_processes import reporting_life, watch_parent

    assert process_options.listener is not None
    config = process_options.config
    _host_code(process_options.code, process_options.kept)
    with anyio.open_signal_receiver(signal.SIGTERM) as signals, socket.socket(fileno=process_options.listener) as bound:
        bound.setblocking(False)
        async with (
            watch_parent(),
            reporting_life(),
            open_connection(config, NAME, gaps_expected=True) as connection,
            _serve_api(config, connection, bound),
        ):
            async for _first in signals:
                break


def _host_code(code: "tuple[str, ...]", kept: "tuple[tuple[str, Path], ...]") -> None:
    """Host code, so that its runs can be replayed here. What cannot be loaded is left out: workers perform the runs."""
    import structlog

    from callboard.bus.errors import CallboardError
    from callboard.runtime.hosting.code_loader import load, load_kept

    loading = {target: partial(load_kept, target, folder) for target, folder in kept}
    for one, host in (loading | {one: partial(load, one) for one in code}).items():
        try:
            host()
        except CallboardError as error:
            structlog.get_logger().warning("code is not hosted by the HTTP process", code=one, error=str(error))


@asynccontextmanager
async def _serve_api(config: "Config", connection: "Connection", bound: "socket.socket") -> AsyncGenerator[None]:
    """Serve for the length of the block."""
    import anyio

    from callboard.features.access.credentials import Credentials
    from callboard.features.access.keyring import keyring_of
    from callboard.features.index.files import FOLDER
    from callboard.runtime.worker.collector import settled_collector
    from callboard.service.operations.run_lists import Listings
    from callboard.surfaces.engine.routes import engine_routes, health_route
    from callboard.surfaces.http.app import http_app
    from callboard.surfaces.http.http_server import serve_app
    from callboard.surfaces.http.metrics import Metrics
    from callboard.surfaces.http.readiness import Readiness
    from callboard.surfaces.http.routes import offered_operations
    from callboard.surfaces.http.sender_secrets import sender_secrets

    host, port, *_ = bound.getsockname()
    async with anyio.create_task_group() as tasks:
        listings = Listings(connection.log, tasks, config.data_dir / FOLDER, prices=config.price_table())
        listings.begin(config.tenant)
        operations = offered_operations(connection, listings)
        access = await access_of(config, connection, host, port)
        metrics = Metrics(connection, listings, tasks)
        configured = {name: one.reveal() for name, one in config.webhooks.items()}
        credentials = Credentials(connection.log, config.tenant, config.replicas)
        secrets = sender_secrets(configured, credentials, partial(keyring_of, config))
        engine = engine_routes(connection.log, config.tenant, operations)
        app = http_app(
            connection.log,
            config.tenant,
            operations,
            access=access,
            secrets=secrets,
            metrics=metrics,
            more=engine,
            open_to_all=[health_route(connection.log, config.tenant)],
        )
        tasks.start_soon(serve_app, app, bound, Readiness(connection.log, config.tenant).find_problem)
        # A collection over the objects of a long run would delay all requests by a tenth of a second.
        with settled_collector():
            yield
        tasks.cancel_scope.cancel()


async def access_of(config: "Config", connection: "Connection", host: str, port: int) -> "Access":
    """Return the access rules: the token, API keys, OIDC and rate limits.

    :raises AddressUnusable: if the address is outside the loopback and no way to authenticate is configured
    """
    from callboard.features.access.keys import ApiKeys
    from callboard.features.access.rates import Rates
    from callboard.features.access.tokens import Tokens
    from callboard.surfaces.http.access import Access
    from callboard.surfaces.http.address import LOOPBACK, check_address

    token = config.http_token.get_secret_value() if config.http_token else None
    keys = ApiKeys(connection.log, config.tenant, config.replicas)
    tokens = Tokens(config.oidc, config.tenant) if config.oidc is not None else None
    if tokens is None and (host in LOOPBACK or not await keys.any()):
        check_address(host, port, token, "http")
    rates = Rates(config.http_rate_per_s, config.http_burst)
    return Access(token, open=host in LOOPBACK, keys=keys, tokens=tokens, rates=rates)
