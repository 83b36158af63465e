"""The standby: restarts the embedded server of a data directory when the process that ran it ends or crashes.

Every process that has joined such a server is ready to; the lock of the data directory decides which of them runs it.
The server keeps its address, so clients reconnect automatically.
"""

from collections.abc import Callable
from contextlib import suppress

import anyio

from callboard.bus.errors import ServerFailed, StoreLocked
from callboard.bus.nats.credentials import without_secrets
from callboard.bus.nats.server.data_directory import standing_by
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.nats.stream import stream_of
from callboard.bus.subjects import Subjects
from callboard.runtime.settings.config import Config

LOOK_S = 0.1
"""How often the connection is checked."""


async def stand_by(config: Config, url: str, connected: Callable[[], bool], took_over: Callable[[], None]) -> None:
    """Watch the server at a URL until cancelled, and run it once no other process does.

    :raises ServerFailed: if the server cannot be run at its address
    :raises OperatorError: if it cannot be run for any other reason
    """
    with standing_by(config.data_dir):
        while True:
            await anyio.sleep(LOOK_S)
            if connected():
                continue
            with suppress(StoreLocked):  # the server runs again, or another process is about to run it
                async with EmbeddedServer(config.data_dir, sync=config.sync) as server:
                    if server.url != url:
                        raise ServerFailed(
                            f"another program now uses the address {without_secrets(url)}", str(server.log_path)
                        )
                    server.stage_in_memory(stream_of(Subjects(config.prefix)))
                    took_over()
                    await anyio.sleep_forever()
