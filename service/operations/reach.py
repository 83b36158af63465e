"""Reaching a server: the configured one, else the embedded one that runs over the data directory.

A command that only reads starts the embedded server itself if none runs, for as long as it takes. One that wants
something done needs a server that stays; one that performs runs itself brings it along, or joins it and stands by.
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
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.standby import stand_by
from callboard.service.api.connection import Connection, open_connection
from callboard.service.operations.errors import NoServer

POLL_S = 0.05

Say = Callable[[str], None]
"""Tells people something that is no result."""


@asynccontextmanager
async def reach(
    config: Config, *, reads: bool, name: str, founds: bool = False, refused_wait_s: float | None = REFUSED_WAIT_S
) -> AsyncGenerator[Connection]:
    """Connect to the server; ``refused_wait_s`` is as in `open_connection`.

    ``reads`` says that the command needs no server that stays, ``founds`` that it makes the store if there is none.

    :raises NoServer: if none runs, and none may be started for this
    :raises OperatorError: whatever keeps the server from being usable
    """
    if config.nats_url is None and (url := await _running(config.data_dir)):
        config = config.at(url)
    if config.nats_url is None and not reads:
        remedy = "Start one with `callboard up` (in another terminal), or name one with --nats."
        raise NoServer(str(config.data_dir), remedy)
    if config.nats_url is None and not founds and not (Path(config.data_dir) / "nats" / "jetstream").is_dir():
        remedy = "There is no store either. Name its directory with --data-dir, or begin with `callboard run FILE`."
        raise NoServer(str(config.data_dir), remedy)
    async with AsyncExitStack() as stack:
        yield await _opened(stack, config, name, refused_wait_s)


async def _running(data_dir: Path) -> str | None:
    """The URL of the server that runs over a data directory; one that is just changing hands is waited for."""
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
    """Connect to the server that stands; where none does, run the embedded one: then the connection has a ``server``.

    A server that another process runs over the data directory is run on here when that one goes; ``say`` tells people.
    ``server`` is ours, if it stands already.

    :raises OperatorError: whatever keeps the server from being usable
    """
    async with AsyncExitStack() as stack:
        if server is not None:
            yield await stack.enter_async_context(open_connection(config, name, server=server))
        else:
            yield await _entered(stack, config, name, say)


async def _entered(stack: AsyncExitStack, config: Config, name: str, say: Say) -> Connection:
    until = anyio.current_time() + READY_WAIT_S
    while True:
        url = running_url(config.data_dir) if config.nats_url is None else None
        try:
            return await stack.enter_async_context(
                _joined(config, url, name, say) if url else open_connection(config, name)
            )
        except StoreLocked:
            # Another process is just starting or stopping the server of this store.
            if anyio.current_time() >= until:
                raise
        await anyio.sleep(POLL_S)


@asynccontextmanager
async def _joined(config: Config, url: str, name: str, say: Say) -> AsyncGenerator[Connection]:
    """Connect to the server that another process runs over the data directory, and stand by it."""
    nc: Client | None = None
    error: Exception | None = None

    def connected() -> bool:
        return nc is not None and nc.is_connected

    def took_over() -> None:
        say("The command that ran the server has gone; this one runs it now.")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stand_by, config, url, connected, took_over)
        try:
            there = config.at(url)
            async with open_connection(there, name, gaps_expected=True) as connection:
                nc = connection.nc
                say(f"Joined the server at {without_secrets(url)}, which another command runs over {config.data_dir}.")
                yield connection
        except Exception as caught:
            # Raised below: the task group would wrap it.
            error = caught
        finally:
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error


async def _opened(stack: AsyncExitStack, config: Config, name: str, refused_wait_s: float | None) -> Connection:
    """Connect; if another process is just starting or stopping the server of this store, wait until it has."""
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
