"""The composition root: wires configuration, server, connection, log, worker and client together; nothing else does."""

import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import anyio
from nats.aio.client import Client as Connection

from callboard.bus.connection import ConnectionWatch, connected
from callboard.bus.jetstream import JetStreamLog, open_log
from callboard.bus.queue import Outbox
from callboard.bus.server import EmbeddedServer
from callboard.bus.subjects import Subjects
from callboard.runtime.admission import Admission
from callboard.runtime.client import Client
from callboard.runtime.company import Company
from callboard.runtime.config import Config
from callboard.runtime.worker import Worker


@dataclass(frozen=True, slots=True)
class House:
    """A connection with the log behind it; ``server`` is the embedded one, if it is ours."""

    config: Config
    nc: Connection
    log: JetStreamLog
    server: EmbeddedServer | None

    @property
    def client(self) -> Client:
        return Client(self.nc, self.log, self.config.tenant)


@asynccontextmanager
async def open_house(
    config: Config, name: str = "callboard", *, refused_wait_s: float | None = None
) -> AsyncGenerator[House]:
    """Connect to the configured server, starting the embedded one if none is named.

    ``refused_wait_s`` is how long to go on where nobody listens; None: as long as for any other reason.

    :raises OperatorError: whatever keeps the server, the connection or the stream from being usable
    """
    async with AsyncExitStack() as stack:
        server: EmbeddedServer | None = None
        url = config.nats_url
        if url is None:
            server = await stack.enter_async_context(EmbeddedServer(config.data_dir, sync=config.sync))
            url = server.url
        watch = ConnectionWatch(name, refused_wait_s=refused_wait_s)
        nc = await stack.enter_async_context(connected(url, name=name, credentials=config.credentials(), watch=watch))
        log = await open_log(
            nc,
            Subjects(config.prefix),
            partitions=config.partitions,
            replicas=config.replicas,
            group_commit=_group_commit(config, server),
        )
        yield House(config, nc, log, server)


def _group_commit(config: Config, server: EmbeddedServer | None) -> bool:
    """Group commit pays where every append is synced, which we know of our own server only."""
    if config.group_commit == "auto":
        return server is not None and config.sync == "always"
    return config.group_commit == "on"


def worker_name() -> str:
    """A name for this worker that no other has, nor had."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
    return f"{host}-{os.getpid()}-{uuid4().hex[:6]}"


@asynccontextmanager
async def open_worker(house: House, env: Mapping[str, str] | None = None) -> AsyncGenerator[Worker]:
    """Run a worker for the length of the block; it is there when the block begins."""
    config = house.config
    name = worker_name()
    outbox = Outbox(house.nc)
    company = Company(config, house.nc, outbox, worker=name, env=os.environ if env is None else env, log=house.log)
    admission = Admission(house.log, outbox, worker=name, definitions=company.definitions, check=company.check)
    worker = Worker(
        house.nc,
        house.log,
        outbox,
        company,
        admission,
        ack_wait_s=config.ack_wait_s,
        runs_active_max=config.runs_active_max,
    )
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.ready.wait()
        try:
            yield worker
        except Exception as caught:
            # Raised below: the task group would wrap it.
            error = caught
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await company.aclose()
    if error is not None:
        raise error
