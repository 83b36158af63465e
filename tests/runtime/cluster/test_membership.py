"""How long a new worker waits for the other workers of its cluster, and how soon a worker that has ended is lost."""

from math import inf
from pathlib import Path

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from callboard.bus.nats.connection import open_nats_connection
from callboard.lib.processes import own_process
from callboard.runtime.cluster import membership
from callboard.runtime.cluster.membership import Beat, Membership, report_end
from tests.support.lane_server import AccountServer

PATIENCE_S = 30.0
LONG_S = 3_600.0


class Member:
    """A worker with a separate connection."""

    def __init__(self, membership: Membership, changed: anyio.Event) -> None:
        self.membership = membership
        self.changed = changed


async def member(
    tasks: anyio.abc.TaskGroup, url: str, name: str, *times: float, hello_wait_s: float = LONG_S, store: str = ""
) -> Member:
    changed = anyio.Event()
    connection = open_nats_connection(url, name=name)
    nc = await connection.__aenter__()
    joined = Member(Membership(nc, "beat", name, changed.set, store=store), changed)

    async def live() -> None:
        try:
            await joined.membership.run(*times, hello_wait_s=hello_wait_s)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.__aexit__(None, None, None)

    tasks.start_soon(live)
    return joined


async def live(one: Member, workers: set[str]) -> None:
    """Wait until these are the live workers in the view of one of them."""
    with anyio.fail_after(PATIENCE_S):
        while one.membership.live() != workers:
            changed = anyio.Event()
            one.membership._changed = changed.set  # pyright: ignore[reportPrivateUsage]
            await changed.wait()


async def test_a_worker_waits_for_others_only_if_the_server_has_subscribers(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", LONG_S, 0.0)
        with anyio.fail_after(PATIENCE_S):
            await first.changed.wait()
            await first.membership.settled.wait()
        assert first.membership.live() == {"first"}
        # The second worker waits until the first, which is subscribed, answers.
        second = await member(tasks, server.url, "second", LONG_S, 0.0)
        with anyio.fail_after(PATIENCE_S):
            await second.changed.wait()
        assert not second.membership.settled.is_set()
        assert second.membership.live() == {"first", "second"}
        tasks.cancel_scope.cancel()


async def test_a_worker_takes_part_at_once_and_waits_for_expected_others_before_it_claims(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", LONG_S, LONG_S / 2)
        with anyio.fail_after(PATIENCE_S):
            await first.changed.wait()
        second = await member(tasks, server.url, "second", LONG_S, inf)
        with anyio.fail_after(PATIENCE_S):
            await second.changed.wait()
        assert first.membership.live() == second.membership.live() == {"first", "second"}
        assert not first.membership.settled.is_set()
        assert not second.membership.settled.is_set()
        tasks.cancel_scope.cancel()


@pytest.mark.skipif(not own_process(), reason="processes have no names here")
async def test_a_worker_whose_process_has_ended_is_lost_before_it_is_silent_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "BEAT_S", 0.01)
    monkeypatch.setattr(membership, "LOST_AFTER_S", LONG_S)
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", hello_wait_s=0.0)
        async with open_nats_connection(server.url, name="others") as nc:
            ended = f"{own_process().rpartition('.')[0]}.1"
            processes = {"ended": ended, "running": own_process(), "elsewhere": "b7.1.1", "unnamed": ""}
            for worker, process in processes.items():
                await nc.publish("beat", msgspec.json.encode(Beat(worker, "here", process=process)))
        await live(first, {"first", "running", "elsewhere", "unnamed"})
        tasks.cancel_scope.cancel()


async def test_a_worker_whose_end_its_parent_reports_is_lost_at_once(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        first = await member(tasks, server.url, "first", hello_wait_s=0.0)
        async with open_nats_connection(server.url, name="parent") as nc:
            for worker in ("child", "other"):
                await nc.publish("beat", msgspec.json.encode(Beat(worker, "here", store="s")))
            await live(first, {"first", "child", "other"})
            await report_end(nc, "beat", "child", "s")
            await live(first, {"first", "other"})
        tasks.cancel_scope.cancel()


async def test_a_worker_of_another_stream_is_reported_once_and_not_counted(tmp_path: Path) -> None:
    """As in two JetStream domains of one account: each stream needs all of its partitions read."""
    async with AccountServer(tmp_path) as server, anyio.create_task_group() as tasks:
        with capture_logs() as logs:
            first = await member(tasks, server.url, "first", store="hub", hello_wait_s=0.0)
            with anyio.fail_after(PATIENCE_S):
                await first.changed.wait()
            # The first worker has read this hello when it knows a worker that says hello later.
            strange = await member(tasks, server.url, "strange", store="leaf", hello_wait_s=0.0)
            with anyio.fail_after(PATIENCE_S):
                await strange.changed.wait()
            await strange.membership.beat()
            first.changed = anyio.Event()
            first.membership._changed = first.changed.set  # pyright: ignore[reportPrivateUsage]
            await member(tasks, server.url, "older", hello_wait_s=0.0)
            with anyio.fail_after(PATIENCE_S):
                await first.changed.wait()
        assert first.membership.live() == {"first", "older"}
        reports = [entry for entry in logs if "uses another stream" in entry["event"]]
        assert [entry["other_store"] for entry in reports if entry["worker"] == "strange"] == ["leaf"]
        tasks.cancel_scope.cancel()
