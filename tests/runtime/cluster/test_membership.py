"""How long a new worker waits for the other workers of its cluster."""

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
    """A worker with a separate connection."""

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


async def test_a_worker_waits_for_others_only_if_the_server_has_subscribers(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", LONG_S, 0.0)
        with anyio.fail_after(PATIENCE_S):
            await first.changed.wait()
        assert first.membership.live() == {"first"}
        # The second worker waits until the first, which is subscribed, answers.
        second = await member(tasks, server.url, "second", LONG_S, 0.0)
        with anyio.fail_after(PATIENCE_S):
            await second.changed.wait()
        assert second.membership.live() == {"first", "second"}
        tasks.cancel_scope.cancel()


async def test_a_worker_waits_for_expected_others_without_subscribers(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", LONG_S, LONG_S / 2)
        second = await member(tasks, server.url, "second", LONG_S, inf)
        with anyio.fail_after(PATIENCE_S):
            await first.changed.wait()
            await second.changed.wait()
        assert first.membership.live() == second.membership.live() == {"first", "second"}
        tasks.cancel_scope.cancel()


async def test_a_worker_of_another_stream_is_reported_once_and_not_counted(tmp_path: Path) -> None:
    """As in two JetStream domains of one account: each stream needs all of its partitions read."""
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        with capture_logs() as logs:
            first = await member(tasks, server.url, "first", 0.0, store="hub")
            with anyio.fail_after(PATIENCE_S):
                await first.changed.wait()
            # The first worker has read this hello when it knows a worker that says hello later.
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
        reports = [entry for entry in logs if "uses another stream" in entry["event"]]
        assert [entry["other_store"] for entry in reports if entry["worker"] == "strange"] == ["leaf"]
        tasks.cancel_scope.cancel()
