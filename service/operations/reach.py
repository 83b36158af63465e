"""Connects commands to a server: the configured one, or else the embedded server of the data directory.

A command that only reads starts the embedded server temporarily if it does not run. A command that sends requests needs
a server that keeps running. A command that performs runs itself starts the embedded server, or joins a running one and
takes over if that ends.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
from nats.aio.client import Client

from callboard.bus.errors import StoreLocked
from callboard.bus.nats.connection import REFUSED_WAIT_S
from callboard.bus.nats.credentials import without_secrets
from callboard.bus.nats.server.data_directory import is_stood_by, running_url
from callboard.bus.nats.server.embedded import READY_WAIT_S, EmbeddedServer
from callboard.lib.concurrency import background_tasks
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.client.errors import NoServer
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.standby import stand_by

POLL_S = 0.05

Say = Callable[[str], None]
"""Prints a message for people, apart from the results."""


@asynccontextmanager
async def reach(
    config: Config, *, reads: bool, name: str, founds: bool = False, refused_wait_s: float | None = REFUSED_WAIT_S
) -> AsyncGenerator[Connection]:
    """Connect to the server; see `open_connection` for ``refused_wait_s``.

    ``reads`` permits to start the embedded server temporarily, ``founds`` to create the store if it does not exist.

    :raises NoServer: if no server runs, and the command may not start one
    :raises OperatorError: if the server cannot be used
    """
    if config.nats_url is None and (url := await _running(config.data_dir)):
        config = config.at(url)
    if config.nats_url is None and not reads:
        remedy = "Start one with `callboard up` (in another terminal), or name one with --nats."
        raise NoServer(str(config.data_dir), remedy)
    if config.nats_url is None and not founds and not (Path(config.data_dir) / "nats" / "jetstream").is_dir():
        remedy = (
            "There is no store either. Name its directory with --data-dir, or create one with `callboard run FILE`."
        )
        raise NoServer(str(config.data_dir), remedy)
    async with AsyncExitStack() as stack:
        yield await _open(stack, config, name, refused_wait_s)


async def _running(data_dir: Path) -> str | None:
    """Return the URL of the running server of a data directory. If a process is taking it over, wait for that."""
    with anyio.move_on_after(READY_WAIT_S):
        while (url := running_url(data_dir)) is None:
            if not is_stood_by(data_dir):
                return None
            await anyio.sleep(POLL_S)
        return url
    return None


@asynccontextmanager
async def join(
    config: Config, *, name: str, say: Say, server: EmbeddedServer | None = None
) -> AsyncGenerator[Connection]:
    """Connect to the running server. If none runs, start the embedded one: then the connection has a ``server``.

    If another process runs the embedded server, this process takes it over when that one ends, and reports it with
    ``say``. ``server`` is the embedded server, if this process has started it already.

    :raises OperatorError: if the server cannot be used
    """
    async with AsyncExitStack() as stack:
        if server is not None:
            yield await stack.enter_async_context(open_connection(config, name, server=server))
        else:
            yield await _enter(stack, config, name, say)


async def _enter(stack: AsyncExitStack, config: Config, name: str, say: Say) -> Connection:
    until = anyio.current_time() + READY_WAIT_S
    while True:
        url = running_url(config.data_dir) if config.nats_url is None else None
        try:
            return await stack.enter_async_context(
                _join_running(config, url, name, say) if url else open_connection(config, name)
            )
        except StoreLocked:
            # Another process is starting or stopping the server of this store.
            if anyio.current_time() >= until:
                raise
        await anyio.sleep(POLL_S)


@asynccontextmanager
async def _join_running(config: Config, url: str, name: str, say: Say) -> AsyncGenerator[Connection]:
    """Connect to the server that another process runs for the data directory, and be ready to take it over."""
    nc: Client | None = None

    def is_connected() -> bool:
        return nc is not None and nc.is_connected

    def report_takeover() -> None:
        say("The command that ran the server has ended; this command runs it now.")

    async with background_tasks() as tasks:
        tasks.start_soon(stand_by, config, url, is_connected, report_takeover)
        there = config.at(url)
        async with open_connection(there, name, gaps_expected=True) as connection:
            nc = connection.nc
            say(f"Joined the server at {without_secrets(url)}, which another command runs for {config.data_dir}.")
            yield connection


async def _open(stack: AsyncExitStack, config: Config, name: str, refused_wait_s: float | None) -> Connection:
    """Connect. If another process is starting or stopping the server of this store, wait for that."""
    until = anyio.current_time() + READY_WAIT_S
    while True:
        try:
            return await stack.enter_async_context(open_connection(config, name, refused_wait_s=refused_wait_s))
        except StoreLocked:
            if anyio.current_time() >= until:
                raise
        await anyio.sleep(POLL_S)
        if url := running_url(config.data_dir):
            config = config.at(url)
