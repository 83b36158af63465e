"""The first moments of a worker that stands: its server comes up while Python still imports what performs runs."""

import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from importlib import import_module
from threading import Thread

from callboard.bus.errors import StoreLocked
from callboard.bus.server import EmbeddedServer
from callboard.runtime.cli.child_processes import Standing
from callboard.runtime.cli.options import Settings

PERFORMING = "callboard.runtime.cli.serving"

TURN_S = 0.0005
"""How long imports may keep the server from being started: it has a dozen short things to do, each after a wait."""


async def begin(standing: Standing, settings: Settings) -> int:
    """Stand until a signal comes and all workers are drained; return the exit code.

    :raises OperatorError: whatever keeps server or worker from working
    """
    async with AsyncExitStack() as stack:
        with _short_turns():
            Thread(target=import_module, args=(PERFORMING,), name="imports").start()
            server = await _server_of_ours(stack, standing)
        return await import_module(PERFORMING).stand(standing, settings, server)


async def _server_of_ours(stack: AsyncExitStack, standing: Standing) -> EmbeddedServer | None:
    """The embedded server over the data directory; None if it is not for us to start it."""
    config = standing.config
    if standing.joins or config.nats_url is not None:
        return None
    try:
        return await stack.enter_async_context(EmbeddedServer(config.data_dir, sync=config.sync))
    except StoreLocked:
        # It is another process's: whoever joins finds it, or waits for it.
        return None


@contextmanager
def _short_turns() -> Generator[None]:
    """Have threads take turns more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
