"""The connection to the server, with the log behind it: what programs need that only talk to the runtime."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct
from nats.aio.client import Client as NatsClient

from callboard.bus.nats.connection import ConnectionWatch, connected
from callboard.bus.nats.credentials import Credentials
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.subjects import Subjects
from callboard.runtime.settings.config import Config
from callboard.service.api.client import Client


class Connection(Struct, frozen=True):
    """A connection with the log behind it; ``server`` is the embedded one, if it is ours."""

    config: Config
    nc: NatsClient
    log: JetStreamLog
    server: EmbeddedServer | None

    @property
    def client(self) -> Client:
        return Client(self.log, self.config.tenant)


@asynccontextmanager
async def open_connection(
    config: Config,
    name: str = "callboard",
    *,
    refused_wait_s: float | None = None,
    gaps_expected: bool = False,
    server: EmbeddedServer | None = None,
) -> AsyncGenerator[Connection]:
    """Connect to the configured server; if none is named, to the embedded one, which is started unless it stands.

    ``refused_wait_s`` is how long to go on where nobody listens; None: as long as for any other reason.
    ``gaps_expected`` says that no warning is due when the server goes and comes back. ``server`` is the embedded one
    of the configured data directory, if it is ours and stands already.

    :raises OperatorError: whatever keeps the server, the connection or the stream from being usable
    """
    async with AsyncExitStack() as stack:
        if server is None and config.nats_url is None:
            server = await stack.enter_async_context(EmbeddedServer(config.data_dir, sync=config.sync))
        url = server.url if server is not None else config.nats_url or ""
        credentials = config.credentials() if server is None else Credentials()
        watch = ConnectionWatch(name, refused_wait_s=refused_wait_s, gaps_expected=gaps_expected)
        nc = await stack.enter_async_context(
            connected(
                url,
                name=name,
                credentials=credentials,
                watch=watch,
                inbox_prefix=config.nats_inbox_prefix,
                domain=(config.nats_domain or "") if server is None else "",
            )
        )
        log = await open_log(
            nc,
            Subjects(config.prefix),
            partitions=config.partitions,
            replicas=config.replicas,
            group_commit=_group_commit(config, server),
            ours=server is not None,
        )
        if server is not None:
            server.stage_in_memory(log.stream)
        yield Connection(config, nc, log, server)


def _group_commit(config: Config, server: EmbeddedServer | None) -> bool:
    """Group commit pays where every append is synced, which we know of our own server only."""
    if config.group_commit == "auto":
        return server is not None and config.sync == "always"
    return config.group_commit == "on"
