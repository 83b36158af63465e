"""A connection to a NATS server without accounts, which no other test uses."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import nats
from nats.aio.client import Client

SERVER = Path(sys.executable).parent / "nats-server"


@asynccontextmanager
async def connection(folder: Path) -> AsyncGenerator[Client]:
    command = [str(SERVER), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder)]
    process = await anyio.open_process(command, stdout=None, stderr=None)
    try:
        with anyio.fail_after(30):
            while not (ports := _ports(folder)):  # noqa: ASYNC110 - the file comes from another process
                await anyio.sleep(0.01)
        client = await nats.connect(json.loads(ports)["nats"][0])
        try:
            yield client
        finally:
            await client.close()
    finally:
        process.terminate()
        await process.aclose()


def _ports(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*.ports"))
