"""Serving HTTP: a connection to a server that stands, and the application, until a signal comes."""

import signal

import anyio
import click

from callboard.runtime.access.keys import Keys
from callboard.runtime.access.rates import Rates
from callboard.runtime.access.tokens import Tokens
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.api.connection import Connection
from callboard.runtime.api.run_lists import Listings
from callboard.runtime.api.verbs import Verbs
from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Settings
from callboard.runtime.http.access import Access
from callboard.runtime.http.app import http_app
from callboard.runtime.http.catalogue import Catalogue
from callboard.runtime.http.metrics import Metrics
from callboard.runtime.http.readings import Readings
from callboard.runtime.http.serving import LOOPBACK, check_address, listening, serve_app, url_of
from callboard.runtime.operations.reach import reach
from callboard.runtime.operations.results import compact
from callboard.runtime.settings.config import Config


async def serve(config: Config, settings: Settings, host: str, port: int) -> int:
    """Serve until a signal comes; return the exit code.

    :raises OperatorError: if there is no server to speak to, or the address cannot be served
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, listening(host, port, "http") as bound:
        async with (
            reach(config, reads=False, name="callboard http", refused_wait_s=None) as connection,
            anyio.create_task_group() as tasks,
        ):
            listings = Listings(connection.log, tasks)
            listings.begin(config.tenant)
            verbs = Verbs(connection.log, Definitions(), listings).all()
            verbs = {**verbs, **Readings(connection).all(), **Catalogue(connection).all()}
            access = await _access(config, connection, host, port)
            metrics = Metrics(connection, listings, tasks)
            secrets = {name: one.revealed() for name, one in config.webhooks.items()}
            app = http_app(connection.log, config.tenant, verbs, access=access, webhooks=secrets, metrics=metrics)
            tasks.start_soon(serve_app, app, bound)
            url = f"{url_of(bound)}/api/{config.tenant}"
            click.echo(compact({"url": url}) if settings.as_json else f"Serving {url}")
            async for _first in signals:
                break
            tasks.cancel_scope.cancel()
    return exits.OK


async def _access(config: Config, connection: Connection, host: str, port: int) -> Access:
    """Return who is let in.

    :raises AddressUnusable: if nobody could be known at an address that others reach
    """
    token = config.http_token.get_secret_value() if config.http_token else None
    keys = Keys(connection.log, config.tenant, config.replicas)
    tokens = Tokens(config.oidc, config.tenant) if config.oidc is not None else None
    if tokens is None and (host in LOOPBACK or not await keys.any()):
        check_address(host, port, token, "http")
    rates = Rates(config.http_rate_per_s, config.http_burst)
    return Access(token, open=host in LOOPBACK, keys=keys, tokens=tokens, rates=rates)
