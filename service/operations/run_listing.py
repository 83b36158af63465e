"""Lists of runs for a command, from the index in the data directory and the newer events in the log."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from callboard.bus.nats.server.data_directory import running_url
from callboard.features.index.files import FOLDER
from callboard.runtime.client.connection import Connection
from callboard.service.operations.run_lists import Listings


@asynccontextmanager
async def listings(connection: Connection) -> AsyncGenerator[Listings]:
    """Open the listings of runs for the length of the block."""
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield Listings(connection.log, tasks, _folder(connection), prices=connection.config.price_table())
        except Exception as caught:
            # Raised below, because the task group would wrap it.
            error = caught
        finally:
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error


def _folder(connection: Connection) -> Path | None:
    """Return the folder of the index, which is next to the store; None if the store is on another machine."""
    config = connection.config
    here = connection.server is not None or running_url(config.data_dir) == config.nats_url
    return config.data_dir / FOLDER if here else None
