"""Bootstrap: creates a worker from configuration, connection, log, admission and services."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from math import inf
from uuid import uuid4

import anyio
import structlog
from anyio import to_thread

from callboard.actors.programs.orphan_cleanup import sweep
from callboard.bus.errors import ClockSkewed
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.queue import Outbox
from callboard.features.notify.notices import send_notices
from callboard.lib.concurrency import background_tasks
from callboard.runtime.client.connection import Connection
from callboard.runtime.cluster.leader import persistently
from callboard.runtime.cluster.membership import ALL_BACK_S, name_worker
from callboard.runtime.worker.collector import settled_collector
from callboard.runtime.worker.store_watch import StoreWatch
from callboard.runtime.worker.worker import Worker
from callboard.service.worker.features import features_of
from callboard.service.worker.services import Services

log = structlog.get_logger(__name__)


def worker_name() -> str:
    """Return a name that no other worker has or had."""
    return name_worker(os.getpid(), uuid4().hex[:6])


@asynccontextmanager
async def open_worker(
    connection: Connection,
    env: Mapping[str, str] | None = None,
    *,
    guest: bool = False,
    server_up_at: float | None = None,
    name: str = "",
) -> AsyncGenerator[Worker]:
    """Run a worker during the block; it is ready when the block begins. ``name`` is its name, if it has been given one.

    A ``guest`` performs the runs that name it, and others only if all workers are guests. ``server_up_at`` is when
    the embedded server of the data directory became ready, if the parent of this process runs it.

    :raises ClockSkewed: if the clock of this machine differs too much from the server's
    """
    config = connection.config
    if abs(ahead_s := connection.log.clock.ahead_s) > config.clock_skew_max_s:
        raise ClockSkewed(ahead_s, config.clock_skew_max_s)
    name = name or worker_name()
    if swept := await to_thread.run_sync(sweep):
        log.warning("programs.swept", pids=swept, why="a worker and the keepers of its programs were killed")
    with suppress(NoAnswer):
        # If the server does not answer, the current way of committing stays.
        await connection.log.choose_commit(
            group_commit=None if config.group_commit == "auto" else config.group_commit == "on"
        )
    outbox = Outbox(connection.nc)
    lent = os.environ if env is None else env
    services = Services(config, connection.nc, outbox, worker=name, env=lent, log=connection.log, guest=guest)
    await services.outgoing.prepare()
    watch = StoreWatch(connection, nearby=server_up_at is not None)
    up_at = connection.server.up_at if connection.server is not None else server_up_at
    worker = Worker(
        connection.nc,
        connection.log,
        outbox,
        services,
        services.admission,
        ack_wait_s=config.ack_wait_s,
        runs_active_max=config.runs_active_max,
        guest=guest,
        fullness=lambda: watch.share,
        has_model=config.model is not None,
        all_back_at=up_at + ALL_BACK_S if up_at is not None else inf,
    )
    # A guest that does not run the server sends no notices: its rules may differ from those of the other workers.
    rules = config.notify if not guest or connection.server is not None else {}
    async with send_notices(connection, rules, lent) as notices, background_tasks() as tasks:
        for feature in features_of(worker, services, connection, outbox, watch, notices, guest=guest):
            tasks.start_soon(persistently, feature.name, feature.run)
        tasks.start_soon(worker.run)
        await worker.ready.wait()
        try:
            with settled_collector():
                yield worker
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await services.aclose()
