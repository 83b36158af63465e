"""The first moments of a running worker: its server comes up while Python still imports what performs runs."""

from contextlib import AsyncExitStack
from importlib import import_module
from threading import Thread

from callboard.bus.errors import StoreLocked
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.lib.threads import quick_turns
from callboard.surfaces.cli.child_processes import Standing
from callboard.surfaces.cli.settings import Settings

PERFORMING = "callboard.surfaces.cli.worker_action"


async def begin(standing: Standing, settings: Settings) -> int:
    """Stand until a signal comes and all workers are drained; return the exit code.

    :raises OperatorError: whatever keeps server or worker from working
    """
    async with AsyncExitStack() as stack:
        with quick_turns():
            imports = Thread(target=import_module, args=(PERFORMING,), name="imports")
            imports.start()
            try:
                server = await _server_of_ours(stack, standing)
            except BaseException:
                # The process ends with this error. A thread that still imports then would fail with one of its own.
                imports.join()
                raise
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
