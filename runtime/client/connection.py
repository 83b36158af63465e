"""The connection to the server and its log, for programs that only talk to the runtime."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.cold_runs import ColdRuns
from callboard.bus.nats.connection import ConnectionWatch, open_nats_connection
from callboard.bus.nats.credentials import ServerCredentials
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.segment_bucket import SegmentBucket
from callboard.bus.nats.segment_cache import SegmentCache
from callboard.bus.nats.segments import SegmentFolder, SegmentStore
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.subjects import Subjects
from callboard.runtime.client.client import Client
from callboard.runtime.settings.config import Config

CACHE_FOLDER = "cold-cache"
"""The folder in the data directory for blocks of segments that were read from an object store."""


class Connection(Struct, frozen=True):
    """A connection and its log. ``server`` is the embedded server, if this process uses one."""

    config: Config
    nc: ReconnectingClient
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
    """Connect to the configured server. Without one, start the embedded server and connect to it.

    ``refused_wait_s`` limits the attempts while the address refuses connections; None: the limit of all other failures
    applies. ``gaps_expected`` suppresses the warnings when the server goes away and returns. ``server`` is the embedded
    server of the configured data directory, if this process has started it already.

    :raises OperatorError: if the server, the connection or the stream cannot be used
    """
    async with AsyncExitStack() as stack:
        if server is None and config.nats_url is None:
            server = await stack.enter_async_context(EmbeddedServer(config.data_dir, sync=config.sync))
        url = server.url if server is not None else config.nats_url or ""
        credentials = config.credentials() if server is None else ServerCredentials()
        watch = ConnectionWatch(name, refused_wait_s=refused_wait_s, gaps_expected=gaps_expected)
        nc = await stack.enter_async_context(
            open_nats_connection(
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
            group_commit=group_commits(config, server),
            ours=server is not None,
        )
        if server is not None:
            server.stage_in_memory(log.stream)
        log.cold = ColdRuns(log, _segments(config))
        yield Connection(config, nc, log, server)


def _segments(config: Config) -> SegmentStore:
    """Return the place of the segments of cold storage."""
    rule = config.cold
    if rule is None or rule.to is None:
        return SegmentFolder(config.cold_folder())
    return SegmentCache(SegmentBucket(rule.to, rule.endpoint), config.data_dir / CACHE_FOLDER)


def group_commits(config: Config, server: EmbeddedServer | None) -> bool:
    """Whether to use group commit. It pays off where every append is synced, which is known of the embedded server
    only."""
    if config.group_commit == "auto":
        return server is not None and config.sync == "always"
    return config.group_commit == "on"
