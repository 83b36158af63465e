"""The standby: runs the server over a data directory on when the process that ran it goes, whether in order or not.

Whoever has joined such a server stands by, each for itself; the lock of the data directory decides which one of them it
is. The server comes back at the address that it had, so clients find it again by themselves.
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
"""How often we look whether the connection is there."""


async def stand_by(config: Config, url: str, connected: Callable[[], bool], took_over: Callable[[], None]) -> None:
    """Stand by the server at a URL until cancelled, and run it once nobody else does.

    :raises ServerFailed: if the server cannot be run on at its address
    :raises OperatorError: whatever else keeps it from being run
    """
    with standing_by(config.data_dir):
        while True:
            await anyio.sleep(LOOK_S)
            if connected():
                continue
            with suppress(StoreLocked):  # it stands again, or somebody else is about to run it
                async with EmbeddedServer(config.data_dir, sync=config.sync) as server:
                    if server.url != url:
                        raise ServerFailed(
                            f"{without_secrets(url)} has been taken by somebody else meanwhile", str(server.log_path)
                        )
                    server.stage_in_memory(stream_of(Subjects(config.prefix)))
                    took_over()
                    await anyio.sleep_forever()
