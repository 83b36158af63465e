"""Whom a new worker waits for: nobody where nobody listens, as long as others may be on their way, and no longer."""

from math import inf
from pathlib import Path

import anyio
from structlog.testing import capture_logs

from callboard.bus.nats.connection import open_nats_connection
from callboard.runtime.cluster.membership import Membership
from tests.support.lane_server import AccountServer

PATIENCE_S = 30.0
LONG_S = 3_600.0


class Member:
    """A worker among others, on a connection of its own."""

    def __init__(self, membership: Membership, changed: anyio.Event) -> None:
        self.membership = membership
        self.changed = changed


async def member(tasks: anyio.abc.TaskGroup, url: str, name: str, *waits: float, store: str = "") -> Member:
    changed = anyio.Event()
    connection = open_nats_connection(url, name=name)
    nc = await connection.__aenter__()
    joined = Member(Membership(nc, "beat", name, changed.set, store=store), changed)

    async def live() -> None:
        try:
            await joined.membership.run(*waits)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.__aexit__(None, None, None)

    tasks.start_soon(live)
    return joined


async def test_where_nobody_listens_nobody_is_waited_for(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", LONG_S, 0.0)
        with anyio.fail_after(PATIENCE_S):
            await first.changed.wait()
        assert first.membership.live() == {"first"}
        # Who listens is waited for: until it answers.
        second = await member(tasks, server.url, "second", LONG_S, 0.0)
        with anyio.fail_after(PATIENCE_S):
            await second.changed.wait()
        assert second.membership.live() == {"first", "second"}
        tasks.cancel_scope.cancel()


async def test_whoever_may_be_on_the_way_is_waited_for_though_nobody_listens(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", LONG_S, LONG_S / 2)
        second = await member(tasks, server.url, "second", LONG_S, inf)
        with anyio.fail_after(PATIENCE_S):
            await first.changed.wait()
            await second.changed.wait()
        assert first.membership.live() == second.membership.live() == {"first", "second"}
        tasks.cancel_scope.cancel()


async def test_workers_of_another_stream_are_no_members_and_are_reported_once(tmp_path: Path) -> None:
    """As in two JetStream domains of one account: each stream needs all of its partitions read."""
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        with capture_logs() as logs:
            first = await member(tasks, server.url, "first", 0.0, store="hub")
            with anyio.fail_after(PATIENCE_S):
                await first.changed.wait()
            # Its hello has been heard when a worker of the same stream, which says it later, is known.
            strange = await member(tasks, server.url, "strange", 0.0, store="leaf")
            with anyio.fail_after(PATIENCE_S):
                await strange.changed.wait()
            await strange.membership.beat()
            first.changed = anyio.Event()
            first.membership._changed = first.changed.set  # pyright: ignore[reportPrivateUsage]
            await member(tasks, server.url, "older", 0.0)
            with anyio.fail_after(PATIENCE_S):
                await first.changed.wait()
        assert first.membership.live() == {"first", "older"}
        told = [entry for entry in logs if "uses another stream" in entry["event"]]
        assert [entry["other_store"] for entry in told if entry["worker"] == "strange"] == ["leaf"]
        tasks.cancel_scope.cancel()
