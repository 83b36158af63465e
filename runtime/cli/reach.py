"""Reaching a server: the configured one, else the embedded one that runs over the data directory.

A command that only reads starts the embedded server itself if none runs, for as long as it takes. One that wants
something done needs a server that stays.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from callboard.bus.connection import REFUSED_WAIT_S
from callboard.bus.errors import StoreLocked
from callboard.bus.server import READY_WAIT_S
from callboard.bus.serverstore import running_url
from callboard.runtime.cli.errors import NoServer
from callboard.runtime.config import Config
from callboard.runtime.house import House, open_house

POLL_S = 0.05


@asynccontextmanager
async def reach(
    config: Config, *, reads: bool, name: str, refused_wait_s: float | None = REFUSED_WAIT_S
) -> AsyncGenerator[House]:
    """Connect to the server; ``reads`` says that the command only reads, ``refused_wait_s`` is as in `open_house`.

    :raises NoServer: if none runs, and none may be started for this
    :raises OperatorError: whatever keeps the server from being usable
    """
    if config.nats_url is None and (url := running_url(config.data_dir)):
        config = config.model_copy(update={"nats_url": url})
    if config.nats_url is None and not reads:
        remedy = "Start one with `callboard up` (in another terminal), or name one with --nats."
        raise NoServer(str(config.data_dir), remedy)
    if config.nats_url is None and not (Path(config.data_dir) / "nats" / "jetstream").is_dir():
        remedy = "There is no store either. Name its directory with --data-dir, or begin with `callboard run FILE`."
        raise NoServer(str(config.data_dir), remedy)
    async with AsyncExitStack() as stack:
        yield await _opened(stack, config, name, refused_wait_s)


@asynccontextmanager
async def join(config: Config, *, name: str) -> AsyncGenerator[House]:
    """Connect to the server that stands; where none does, start the embedded one: then the house has a ``server``.

    :raises OperatorError: whatever keeps the server from being usable
    """
    if config.nats_url is None and (url := running_url(config.data_dir)):
        config = config.model_copy(update={"nats_url": url})
    async with AsyncExitStack() as stack:
        yield await _opened(stack, config, name, None)


async def _opened(stack: AsyncExitStack, config: Config, name: str, refused_wait_s: float | None) -> House:
    """Open the house; if another process is just starting or stopping the server of this store, wait until it has."""
    until = anyio.current_time() + READY_WAIT_S
    while True:
        try:
            return await stack.enter_async_context(open_house(config, name, refused_wait_s=refused_wait_s))
        except StoreLocked:
            if anyio.current_time() >= until:
                raise
        await anyio.sleep(POLL_S)
        if url := running_url(config.data_dir):
            config = config.model_copy(update={"nats_url": url})
