"""The server dies and restarts several times while runs are performed: nothing is lost or repeated."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Signal
from callboard.bus.log.recorded import Recorded
from callboard.bus.log.successors import successor_of
from callboard.runtime.client.client import Client
from tests.support.simulation import World
from tests.support.worker_interpreters import play
from tests.support.worker_processes import (
    Fleet,
    attend,
    check_run,
    end_payload,
    open_client,
    open_fleet,
    say,
    say_start,
    until,
    until_end,
)

RUNS = 20
DEATHS = 3

CHAINS = 2
SIGNALS = 9
"""Number of chains, and of the signals that each of them takes, three in each of its runs."""


async def kill_server(fleet: Fleet, client: Client, deaths: int, outcomes_between: int) -> None:
    """Kill the server ``deaths`` times, each after a number of further outcomes."""
    async with client.follow(event_type=ev.EffectResult.type) as feed:
        seen = 0
        async for _recorded in feed:
            seen += 1
            if seen % outcomes_between == 0:
                fleet.server.kill()
                deaths -= 1
            if not deaths:
                return


@pytest.mark.parametrize(("sync", "group_commit"), [("100ms", "off"), ("always", "on")])
async def test_runs_under_load_survive_deaths_of_the_server(sync: str, group_commit: str, tmp_path: Path) -> None:
    runs = [f"run-{i}" for i in range(RUNS)]
    ended: dict[str, Sequence[Recorded]] = {}
    async with (
        open_fleet(tmp_path, sync=sync, group_commit=group_commit, ack_wait_s=5.0) as fleet,
        fleet.connection() as connection,
    ):
        client = connection.client
        for name in ("a", "b"):
            await fleet.hire(name)

        async def follow(run_id: str) -> None:
            ended[run_id] = await until_end(client, run_id)

        chains = [f"chain-{i}" for i in range(CHAINS)]
        taken: dict[str, list[Recorded]] = {}

        async def send_signals(run_id: str) -> None:
            for n in range(SIGNALS):
                await say(client, run_id, "signal", Signal("item", data=n))
            taken[run_id] = await follow_chain(client, run_id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill_server, fleet, client, DEATHS, RUNS)
            for run_id in chains:
                await say_start(client, play("links", run_id, {"each": 3, "total": SIGNALS}))
                tasks.start_soon(send_signals, run_id)
            for run_id in runs:
                await say_start(client, play("steps", run_id, {"count": 5, "each": {"after": 0.1}}))
                tasks.start_soon(follow, run_id)
        for run_id, recorded in ended.items():
            check_run(recorded, fleet.carried(run_id))
            assert end_payload(recorded).output == list(range(5))
            carried = [one.key for one in fleet.carried(run_id)]
            assert len(carried) == len(set(carried)), "a death of the server repeats no effect"
        for recorded in taken.values():
            # A signal may be passed on while the next one is routed to the newest run: their order may change.
            assert sorted(end_payload(recorded).output) == list(range(SIGNALS))
            causes = [item.event.cause for item in recorded if item.event.cause and item.event.n > 1]
            assert len(causes) == len(set(causes)) == SIGNALS
        assert all(worker.status is None for worker in fleet.workers.values())


async def follow_chain(client: Client, run_id: str) -> list[Recorded]:
    """Follow a run, and those that continue it, to the end of the last one; return their events."""
    found: list[Recorded] = []
    following: str | None = run_id
    while following is not None:
        found += await until_end(client, following)
        following = successor_of(found[-1].event)
    return found


async def test_parked_runs_wake_after_the_server_died(tmp_path: Path) -> None:
    """It dies when all runs are parked for their alarms, and again during answers and signals."""
    runs = [f"run-{i}" for i in range(8)]
    world = World(answers={"person#1.1!ask": ["Ada"]}, signals={"go": 7})
    ended: dict[str, Sequence[Recorded]] = {}
    async with open_client(tmp_path, sync="100ms", ack_wait_s=2.0) as (fleet, client):
        await fleet.hire("a")

        async def follow(run_id: str) -> None:
            ended[run_id] = await attend(client, run_id, world)

        async with anyio.create_task_group() as tasks, client.follow(event_type=ev.RunParked.type) as feed:
            for run_id in runs:
                await say_start(client, play("waits", run_id, {"sleep_s": 2.0}))
                tasks.start_soon(follow, run_id)
            parked = 0
            async for _recorded in feed:
                parked += 1
                if parked in (len(runs), len(runs) * 3 // 2):
                    fleet.server.kill()
                if parked > len(runs) * 3 // 2:
                    break
        for run_id, recorded in ended.items():
            check_run(recorded, fleet.carried(run_id))
            assert end_payload(recorded).output == ["Ada", 7, ["part.0", "part.1"]]


async def test_a_worker_receives_messages_once_the_server_is_back(tmp_path: Path) -> None:
    """A start and a cancel take effect without waiting for a timeout."""
    async with open_client(tmp_path, sync="100ms", ack_wait_s=30.0) as (fleet, client):
        await fleet.hire("a")
        assert (await client.start(play("unwinds", "first"))).status == "accepted"
        await until(client, "first", lambda event: event.key == "endless[1]#1.1!long")
        fleet.server.kill()
        await fleet.back()
        assert (await client.start(play("steps", "second", {"count": 1}))).status == "accepted"
        assert (await client.tell("first", "cancel", Cancel())).status == "accepted"
        assert end_payload(await until_end(client, "first")).status == "cancelled"
        assert end_payload(await until_end(client, "second")).status == "completed"
