"""Serving HTTP: a connection to a server that stands, and the application, until a signal comes."""

import signal

import anyio
import click

from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.api.run_lists import Listings
from callboard.runtime.api.verbs import Verbs
from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Settings
from callboard.runtime.http.app import http_app
from callboard.runtime.http.serving import LOOPBACK, check_address, listening, serve_app, url_of
from callboard.runtime.operations.reach import reach
from callboard.runtime.operations.results import compact
from callboard.runtime.settings.config import Config


async def serve(config: Config, settings: Settings, host: str, port: int) -> int:
    """Serve until a signal comes; return the exit code.

    :raises OperatorError: if there is no server to speak to, or the address cannot be served
    """
    token = config.http_token.get_secret_value() if config.http_token else None
    check_address(host, port, token, "http")
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, listening(host, port, "http") as bound:
        async with (
            reach(config, reads=False, name="callboard http", refused_wait_s=None) as connection,
            anyio.create_task_group() as tasks,
        ):
            verbs = Verbs(connection.log, Definitions(), Listings(connection.log, tasks)).all()
            secrets = {name: one.revealed() for name, one in config.webhooks.items()}
            app = http_app(
                connection.log, config.tenant, verbs, token=token, loopback=host in LOOPBACK, webhooks=secrets
            )
            tasks.start_soon(serve_app, app, bound)
            url = f"{url_of(bound)}/api/{config.tenant}"
            click.echo(compact({"url": url}) if settings.as_json else f"Serving {url}")
            async for _first in signals:
                break
            tasks.cancel_scope.cancel()
    return exits.OK
