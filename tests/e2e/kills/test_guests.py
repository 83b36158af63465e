"""Guests: workers that came for runs of their own, beside workers for all, alone, and when the others leave or die."""

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Cancel, Signal
from callboard.runtime.client.client import Client
from callboard.runtime.cluster.ownership import owner
from tests.support.family_interpreters import child_of
from tests.support.worker_interpreters import play
from tests.support.worker_processes import (
    Fleet,
    check_run,
    claimers,
    end_payload,
    open_fleet,
    recorded_run,
    run_in,
    say,
    say_start,
    settled,
    until,
    until_end,
    until_type,
)

PARTITIONS = 4


def one_in_each_partition(word: str) -> list[str]:
    return [run_in(partition, PARTITIONS, word) for partition in range(PARTITIONS)]


async def claimed(fleet: Fleet, client: Client, runs: Sequence[str]) -> set[str]:
    """Wait until runs have ended; check them, and return who has performed any."""
    found: set[str] = set()
    for run_id in runs:
        recorded = await until_end(client, run_id)
        check_run(recorded, fleet.carried(run_id))
        found.update(claimers(recorded))
    return found


async def started(client: Client, runs: Sequence[str], worker: str = "", count: int = 1) -> None:
    for run_id in runs:
        verdict = await client.start(play("steps", run_id, {"count": count}), worker=worker)
        assert verdict.status == "accepted", verdict.problems


async def test_a_guest_performs_what_names_it_and_nothing_else(tmp_path: Path) -> None:
    mine, others = one_in_each_partition("mine"), one_in_each_partition("others")
    async with open_fleet(tmp_path, partitions=PARTITIONS) as fleet, fleet.connection() as connection:
        await fleet.hire("host")
        await fleet.hire("guest", guest=True)
        await started(connection.client, mine, "guest")
        await started(connection.client, others)
        assert await claimed(fleet, connection.client, mine) == {"guest"}
        assert await claimed(fleet, connection.client, others) == {"host"}


async def test_a_guest_says_itself_whether_it_can_perform_a_run(tmp_path: Path) -> None:
    """The worker for all takes no scripts; the guest does."""
    async with open_fleet(tmp_path, partitions=PARTITIONS) as fleet, fleet.connection() as connection:
        await fleet.hire("host", allow_scripts=False)
        await fleet.hire("guest", guest=True)
        refused = await connection.client.start(play("steps", "refused", {"count": 1}))
        assert {problem.code for problem in refused.problems} == {"start.script", "model.scripts_refused"}
        await started(connection.client, ["taken"], "guest")
        assert await claimed(fleet, connection.client, ["taken"]) == {"guest"}


async def test_a_start_that_names_nobody_who_lives_goes_to_whoever_is_there(tmp_path: Path) -> None:
    async with open_fleet(tmp_path, partitions=PARTITIONS) as fleet, fleet.connection() as connection:
        await fleet.hire("host")
        await started(connection.client, ["run"], "long gone")
        assert await claimed(fleet, connection.client, ["run"]) == {"host"}


async def test_where_nobody_else_is_guests_share_all_there_is(tmp_path: Path) -> None:
    alone, together, late = (one_in_each_partition(word) for word in ("alone", "together", "late"))
    async with open_fleet(tmp_path, partitions=PARTITIONS) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("one", guest=True)
        await started(client, alone)
        assert await claimed(fleet, client, alone) == {"one"}
        await fleet.hire("two", guest=True)
        await settled(client, ["one", "two"])
        await started(client, together)
        assert await claimed(fleet, client, together) == {owner(i, ["one", "two"]) for i in range(PARTITIONS)}
        # A worker for all takes everything over.
        await fleet.hire("host")
        await settled(client, ["host"])
        await started(client, late)
        assert await claimed(fleet, client, late) == {"host"}


@pytest.mark.parametrize("dies", [False, True])
async def test_when_the_last_worker_for_all_goes_a_guest_goes_on(dies: bool, tmp_path: Path) -> None:
    async with open_fleet(tmp_path, partitions=PARTITIONS) as fleet, fleet.connection() as connection:
        client = connection.client
        host = await fleet.hire("host", drain_s=0.0)
        await fleet.hire("guest", guest=True)
        runs = one_in_each_partition("left")
        for run_id in runs:
            await say_start(client, play("unwinds", run_id))
        for run_id in runs:
            await until(client, run_id, lambda event: event.key == "endless[1]#1.1!long")
        if dies:
            await host.kill()
        else:
            host.send(signal.SIGTERM)
        for run_id in runs:
            await until(client, run_id, lambda event: event.epoch == 2, "a second claim")
            await say(client, run_id, "cancel", Cancel())
        assert await claimed(fleet, client, runs) == {"host", "guest"}


async def test_a_run_comes_back_to_its_guest_from_every_rest(tmp_path: Path) -> None:
    """Its alarm and its answers are read by a worker for all, who has not got the tools."""
    runs = one_in_each_partition("resting")
    async with open_fleet(tmp_path, partitions=PARTITIONS) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("host")
        guest = await fleet.hire("guest", guest=True)
        for run_id in runs:
            await client.start(play("waits", run_id, {"sleep_s": 0.5}), worker="guest")
        for run_id in runs:
            await until_type(client, run_id, ev.HumanAsked.type)
        await guest.emptied()
        for run_id in runs:
            await say(client, run_id, "answer", Answer(interaction="person#1.1!ask", user_response="Ada"))
            await until_type(client, run_id, ev.SignalAwaited.type)
        await guest.emptied()
        # Once the guest has gone, they are anybody's.
        await say(client, runs[0], "signal", Signal(name="go"))
        assert await claimed(fleet, client, runs[:1]) == {"guest"}
        guest.send(signal.SIGTERM)
        await guest.died()
        for run_id in runs[1:]:
            await say(client, run_id, "signal", Signal(name="go"))
        assert await claimed(fleet, client, runs[1:]) == {"guest", "host"}


async def test_child_runs_of_a_guest_stay_with_it(tmp_path: Path) -> None:
    runs = one_in_each_partition("parent")
    async with open_fleet(tmp_path, partitions=PARTITIONS) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("host")
        await fleet.hire("guest", guest=True)
        for run_id in runs:
            await client.start(play("keeps", run_id, {"times": 1}), worker="guest")
        for run_id in runs:
            assert end_payload(await until_end(client, run_id)).status == "completed"
            assert claimers(await recorded_run(connection, child_of(run_id))) == ["guest"]
        assert await claimed(fleet, client, runs) == {"guest"}
