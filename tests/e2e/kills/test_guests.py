"""Guests: workers for their own runs, beside hosts (workers for all runs), alone, and after hosts leave or die."""

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Cancel, Signal
from callboard.runtime.client.client import Client
from callboard.runtime.cluster.code_hosts import owner
from tests.support.family_interpreters import child_of
from tests.support.worker_interpreters import play
from tests.support.worker_processes import (
    Fleet,
    check_run,
    claimers,
    end_payload,
    one_in_each,
    open_client,
    recorded_run,
    say,
    say_start,
    settled,
    until,
    until_end,
    until_type,
)

PARTITIONS = 4


async def wait_for_claimers(fleet: Fleet, client: Client, runs: Sequence[str]) -> set[str]:
    """Wait until runs have ended; check them, and return the workers that performed them."""
    found: set[str] = set()
    for run_id in runs:
        recorded = await until_end(client, run_id)
        check_run(recorded, fleet.carried(run_id))
        found.update(claimers(recorded))
    return found


async def start_runs(client: Client, runs: Sequence[str], worker: str = "", count: int = 1) -> None:
    for run_id in runs:
        verdict = await client.start(play("steps", run_id, {"count": count}), worker=worker)
        assert verdict.status == "accepted", verdict.problems


async def test_a_guest_performs_only_runs_that_name_it(tmp_path: Path) -> None:
    mine, others = one_in_each(PARTITIONS, "mine"), one_in_each(PARTITIONS, "others")
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("host")
        await fleet.hire("guest", guest=True)
        await start_runs(client, mine, "guest")
        await start_runs(client, others)
        assert await wait_for_claimers(fleet, client, mine) == {"guest"}
        assert await wait_for_claimers(fleet, client, others) == {"host"}


async def test_a_guest_accepts_starts_by_its_own_settings(tmp_path: Path) -> None:
    """The host takes no scripts; the guest does."""
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("host", allow_scripts=False)
        await fleet.hire("guest", guest=True)
        refused = await client.start(play("steps", "refused", {"count": 1}))
        assert {problem.code for problem in refused.problems} == {"start.script", "model.scripts_refused"}
        await start_runs(client, ["taken"], "guest")
        assert await wait_for_claimers(fleet, client, ["taken"]) == {"guest"}


async def test_a_start_that_names_a_missing_worker_goes_to_another(tmp_path: Path) -> None:
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("host")
        await start_runs(client, ["run"], "long gone")
        assert await wait_for_claimers(fleet, client, ["run"]) == {"host"}


async def test_guests_without_a_host_share_all_runs(tmp_path: Path) -> None:
    alone, together, late = (one_in_each(PARTITIONS, word) for word in ("alone", "together", "late"))
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("one", guest=True)
        await start_runs(client, alone)
        assert await wait_for_claimers(fleet, client, alone) == {"one"}
        await fleet.hire("two", guest=True)
        await settled(client, ["one", "two"])
        await start_runs(client, together)
        assert await wait_for_claimers(fleet, client, together) == {owner(i, ["one", "two"]) for i in range(PARTITIONS)}
        # A host takes all runs.
        await fleet.hire("host")
        await settled(client, ["host"])
        await start_runs(client, late)
        assert await wait_for_claimers(fleet, client, late) == {"host"}


@pytest.mark.parametrize("dies", [False, True])
async def test_a_guest_takes_over_when_the_last_host_leaves(dies: bool, tmp_path: Path) -> None:
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        host = await fleet.hire("host", drain_s=0.0)
        await fleet.hire("guest", guest=True)
        runs = one_in_each(PARTITIONS, "left")
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
        assert await wait_for_claimers(fleet, client, runs) == {"host", "guest"}


async def test_a_parked_run_returns_to_its_guest(tmp_path: Path) -> None:
    """A host without the tools reads its alarm and its answers."""
    runs = one_in_each(PARTITIONS, "resting")
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
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
        # After the guest has left, any worker performs them.
        await say(client, runs[0], "signal", Signal(name="go"))
        assert await wait_for_claimers(fleet, client, runs[:1]) == {"guest"}
        guest.send(signal.SIGTERM)
        await guest.died()
        for run_id in runs[1:]:
            await say(client, run_id, "signal", Signal(name="go"))
        assert await wait_for_claimers(fleet, client, runs[1:]) == {"guest", "host"}


async def test_child_runs_of_a_guest_stay_with_it(tmp_path: Path) -> None:
    runs = one_in_each(PARTITIONS, "parent")
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("host")
        await fleet.hire("guest", guest=True)
        for run_id in runs:
            await client.start(play("keeps", run_id, {"times": 1}), worker="guest")
        for run_id in runs:
            assert end_payload(await until_end(client, run_id)).status == "completed"
            assert claimers(await recorded_run(client, child_of(run_id))) == ["guest"]
        assert await wait_for_claimers(fleet, client, runs) == {"guest"}
