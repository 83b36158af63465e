"""Several workers: runs and commands reach their worker while workers join, leave, drain, compete and die."""

import json
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Cancel, Pause, Resume, Signal
from callboard.bus.errors import RunLost
from callboard.bus.log.port import Behind
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.queue import redeliver_now
from callboard.bus.subjects import RunRef, partition_of
from callboard.lib.processes import own_process
from callboard.runtime.client.client import Client
from callboard.runtime.cluster.code_hosts import owner
from callboard.runtime.run.activation import ActivationEnd
from callboard.runtime.run.log import read_run
from callboard.runtime.worker import assignment
from callboard.runtime.worker.worker import Worker
from callboard.service.worker.bootstrap import open_worker
from callboard.testing.checks import check_log
from tests.support.run_harness import RunHarness
from tests.support.worker_interpreters import INTERPRETERS, play
from tests.support.worker_process import Kill
from tests.support.worker_processes import (
    KILLED,
    PATIENCE_S,
    Fleet,
    check_run,
    check_writers,
    claimers,
    end_payload,
    one_in_each,
    open_client,
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
from tests.support.workflows import document

PARTITIONS = 4
NEVER_S = 3_600.0
FIGHTS = 12


class Gate:
    """A file that effects wait for."""

    def __init__(self, home: Path) -> None:
        self._file = home / "gate"
        self.until = {"until": str(self._file)}

    @property
    def opened(self) -> bool:
        return self._file.exists()

    def open(self) -> None:
        self._file.touch()


async def start_and_hold(client: Client, gate: Gate, runs: Sequence[str]) -> None:
    """Start runs of one effect that waits at a gate, and wait until all effects have begun."""
    for run_id in runs:
        await say_start(client, play("steps", run_id, {"count": 1, "each": gate.until}))
    for run_id in runs:
        await until_type(client, run_id, ev.EffectCall.type)


async def wait_for_end(fleet: Fleet, client: Client, runs: Sequence[str]) -> dict[str, list[Recorded]]:
    """Wait until runs have ended; check them."""
    found: dict[str, list[Recorded]] = {}
    for run_id in runs:
        found[run_id] = await until_end(client, run_id)
        check_run(found[run_id], fleet.carried(run_id))
    return found


async def test_partitions_move_to_a_joining_worker_and_active_runs_stay(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    runs = one_in_each(PARTITIONS, "early")
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("a")
        await start_and_hold(client, gate, runs)
        await fleet.hire("b")
        await settled(client, ["a", "b"])
        gate.open()
        for run_id, recorded in (await wait_for_end(fleet, client, runs)).items():
            assert claimers(recorded) == ["a"], run_id
            assert len(fleet.carried(run_id)) == 1


async def test_active_runs_stay_when_another_worker_dies(tmp_path: Path) -> None:
    """Runs of others in the dead worker's partitions are not taken over."""
    gate = Gate(tmp_path)
    names = ["a", "b", "c"]
    of_b = [p for p in range(PARTITIONS) if owner(p, names) == "b" and owner(p, ["a", "c"]) == "c"]
    early = [run_in(partition, PARTITIONS, "early") for partition in of_b]
    late = [run_in(partition, PARTITIONS, "late") for partition in of_b]
    assert of_b
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("a")
        await start_and_hold(client, gate, early)
        b, _c = await fleet.hire("b"), await fleet.hire("c")
        await settled(client, names)
        before = {run_id: claimers(await recorded_run(client, run_id)) for run_id in early}
        await start_and_hold(client, gate, late)
        await b.kill()
        for run_id in late:
            await until(client, run_id, lambda event: event.epoch == 2, "a second claim")
        gate.open()
        for run_id, recorded in (await wait_for_end(fleet, client, late)).items():
            assert claimers(recorded) == ["b", "c"], run_id
        for run_id, recorded in (await wait_for_end(fleet, client, early)).items():
            assert claimers(recorded) == before[run_id], run_id


@pytest.mark.skipif(not own_process(), reason="processes have no names here")
async def test_a_run_of_a_killed_worker_is_claimed_before_other_workers_have_had_time_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the death of the server and of all workers: the one that had the run cannot come back."""
    monkeypatch.setattr(assignment, "settle_times", lambda **_held: (NEVER_S, NEVER_S))
    start = {"definition": {"source": json.dumps(document({"a": {}}, []))}, "run_id": "held", "model": "scripted"}
    script = {"turns": {"a": [{"text": "late", "delay_ms": 600_000}]}}
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        a = await fleet.hire("a")
        await say_start(client, {**start, "script": script})
        await until_type(client, "held", ev.ModelCall.type)
        await a.kill()
        async with fleet.connection() as connection, open_worker(connection) as worker:
            recorded = await until(client, "held", lambda event: event.epoch == 2, "a second claim")
        assert claimers(recorded) == ["a", worker.name]


@pytest.mark.parametrize("order", ["forwards, then claims", "claims, then forwards"])
async def test_of_two_workers_that_wait_for_a_lost_one_only_the_reader_claims_its_run(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they wait, both read in the log that the lost worker has the run."""
    monkeypatch.setattr(assignment, "settle_times", lambda **_held: (NEVER_S, NEVER_S))
    monkeypatch.setattr(assignment, "has_ended", lambda _process: False)
    reader = next(name for name in map(str, range(99)) if owner(0, ["early", name]) == name)
    waits = {"early": anyio.Event(), reader: anyio.Event()}
    forwards = anyio.Event()

    async def know(self: assignment.Assignment, worker: str, process: str) -> bool:
        waits[self._worker].set()  # pyright: ignore[reportPrivateUsage]
        return await known(self, worker, process)

    def forward(self: Worker, worker: str, *given: Any) -> None:
        assert (self.name, worker) == ("early", reader)
        forwards.set()
        forwarded(self, worker, *given)

    def settle(worker: Worker) -> None:
        worker._assignment._membership.settled.set()  # pyright: ignore[reportPrivateUsage]

    known, forwarded = assignment.Assignment.know, Worker._forward  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(assignment.Assignment, "know", know)
    monkeypatch.setattr(Worker, "_forward", forward)
    run_id = run_in(0, PARTITIONS, "held")
    start = {"definition": {"source": json.dumps(document({"a": {}}, []))}, "run_id": run_id, "model": "scripted"}
    script = {"turns": {"a": [{"text": "late", "delay_ms": 600_000}]}}
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        lost = await fleet.hire("lost")
        await say_start(client, {**start, "script": script})
        await until_type(client, run_id, ev.ModelCall.type)
        await lost.kill()
        async with AsyncExitStack() as stack:
            workers: dict[str, Worker] = {}
            for name in waits:
                connection = await stack.enter_async_context(fleet.connection())
                workers[name] = await stack.enter_async_context(open_worker(connection, name=name))
                with anyio.fail_after(PATIENCE_S):
                    await waits[name].wait()
            for step in order.split(", then "):
                settle(workers["early" if step == "forwards" else reader])
                with anyio.fail_after(PATIENCE_S):
                    if step == "forwards":
                        await forwards.wait()
                    else:
                        recorded = await until(client, run_id, lambda event: event.epoch == 2, "a second claim")
                        assert claimers(recorded) == ["lost", reader]


async def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    """Only an effect that the dead worker was performing may be repeated."""
    runs = [f"run-{i}" for i in range(48)]
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        for name in ("a", "b", "c"):
            await fleet.hire(name)
        await settled(client, ["a", "b", "c"])
        for run_id in runs:
            await say_start(client, play("steps", run_id, {"count": 3, "each": {"after": 0.05}}))
        async with client.follow(event_type=ev.EffectResult.type) as feed:
            seen = 0
            async for _recorded in feed:
                seen += 1
                if seen == len(runs):
                    break
        await fleet.workers["b"].kill()
        for run_id, recorded in (await wait_for_end(fleet, client, runs)).items():
            assert end_payload(recorded).output == [0, 1, 2]
            assert claimers(recorded)[:-1] in ([], ["b"]), run_id
            carried = fleet.carried(run_id)
            assert len(carried) - len({one.key for one in carried}) <= 1
        killed_in = [run_id for run_id in runs if fleet.carried(run_id)[0].worker == "b"]
        assert killed_in


# -- drain -------------------------------------------------------------------------------------------------------------


async def test_a_draining_worker_hands_over_its_runs_without_repeating_effects(tmp_path: Path) -> None:
    runs = [f"run-{i}" for i in range(8)]
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        a = await fleet.hire("a")
        for run_id in runs:
            await say_start(client, play("steps", run_id, {"count": 3, "each": {"after": 0.3}}))
        for run_id in runs:
            await until_type(client, run_id, ev.EffectCall.type)
        await fleet.hire("b")
        a.send(signal.SIGTERM)
        assert await a.died() == 0
        for run_id, recorded in (await wait_for_end(fleet, client, runs)).items():
            assert end_payload(recorded).output == list(range(3))
            assert len(fleet.carried(run_id)) == 3
            assert claimers(recorded)[-1] == "b"


async def test_a_run_at_a_draining_worker_can_be_cancelled(tmp_path: Path) -> None:
    """While the worker waits for the effect."""
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        a = await fleet.hire("a", drain_s=8.0)
        await say_start(client, play("unwinds", "run"))
        await until(client, "run", lambda event: event.key == "endless[1]#1.1!long")
        await fleet.hire("b")
        a.send(signal.SIGTERM)
        verdict = await client.tell("run", "cancel", Cancel())
        assert verdict.status == "accepted"
        (recorded,) = (await wait_for_end(fleet, client, ["run"])).values()
        assert end_payload(recorded).status == "cancelled"
        cancelled = next(item.event for item in recorded if item.event.type == ev.CancelRequested.type)
        first = next(item.event for item in recorded if item.event.key == "endless[0]#1.1!long")
        # The draining worker itself recorded the cancellation.
        assert cancelled.epoch == first.epoch


# -- commands ----------------------------------------------------------------------------------------------------------


async def test_commands_reach_an_active_run_at_a_full_worker(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    async with open_client(tmp_path, runs_active_max=1) as (fleet, client):
        await fleet.hire("a")
        await say_start(client, play("gated", "first", gate.until))
        await until_type(client, "first", ev.EffectCall.type)
        for i in range(5):
            await say_start(client, play("steps", f"waiting-{i}", {"count": 1}))
        assert (await client.tell("first", "pause", Pause())).status == "accepted"
        await until_type(client, "first", ev.RunPaused.type)
        gate.open()
        await until_type(client, "first", ev.RunParked.type)
        await say(client, "first", "resume", Resume())
        assert end_payload(await until_end(client, "first")).output == "through"
        await say_start(client, play("unwinds", "second"))
        await until(client, "second", lambda event: event.key == "endless[1]#1.1!long")
        await say(client, "second", "cancel", Cancel())
        assert end_payload(await until_end(client, "second")).status == "cancelled"
        await wait_for_end(fleet, client, ["first", "second", *(f"waiting-{i}" for i in range(5))])


@pytest.mark.parametrize("where", ["queued", "parked"])
async def test_a_waiting_run_can_be_cancelled_at_a_full_worker(where: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    async with open_client(tmp_path, runs_active_max=1) as (fleet, client):
        await fleet.hire("a")
        if where == "parked":
            await say_start(client, play("waits", "other", {"sleep_s": 3600}))
            await until_type(client, "other", ev.RunParked.type)
        await start_and_hold(client, gate, ["busy"])
        if where == "queued":
            await client.start(play("waits", "other", {"sleep_s": 3600}))
        await say(client, "other", "cancel", Cancel())
        recorded = await until_end(client, "other")
        assert end_payload(recorded).status == "cancelled"
        assert not gate.opened
        gate.open()
        await wait_for_end(fleet, client, ["busy", "other"])


async def test_a_command_that_is_delivered_twice_acts_once(tmp_path: Path) -> None:
    async with open_client(tmp_path, partitions=1) as (fleet, client):
        await fleet.hire("a")
        # The run stays active, so its start and all later messages are not acknowledged.
        await say_start(client, play("unwinds", "run"))
        await until(client, "run", lambda event: event.key == "endless[1]#1.1!long")
        for name in ("one", "two"):
            await say(client, "run", "signal", Signal(name=name))
        await until(
            client, "run", lambda event: event.type == ev.SignalReceived.type and b"two" in bytes(event.payload)
        )
        await redeliver_now(client.log.requests, client.log.stream, "partition-0")
        await say(client, "run", "signal", Signal(name="three"))
        await say(client, "run", "cancel", Cancel())
        recorded = await until_end(client, "run")
        check_run(recorded, fleet.carried("run"))
        signals = [item.event.cause for item in recorded if item.event.type == ev.SignalReceived.type]
        assert len(signals) == len(set(signals)) == 3
        assert claimers(recorded) == ["a"]


async def test_commands_reach_a_run_whose_partition_has_moved(tmp_path: Path) -> None:
    runs = one_in_each(PARTITIONS, "early")
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("a")
        for run_id in runs:
            await say_start(client, play("unwinds", run_id))
        for run_id in runs:
            await until(client, run_id, lambda event: event.key == "endless[1]#1.1!long")
        await fleet.hire("b")
        await settled(client, ["a", "b"])
        before = {run_id: claimers(await recorded_run(client, run_id)) for run_id in runs}
        for run_id in runs:
            await say(client, run_id, "cancel", Cancel())
        for run_id, recorded in (await wait_for_end(fleet, client, runs)).items():
            assert end_payload(recorded).status == "cancelled"
            assert claimers(recorded) == before[run_id], run_id


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_repeated_start_is_a_duplicate_and_a_late_tell_is_refused(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (fleet, client):
        await fleet.hire("a")
        started = [await client.start(play("steps", "run", {"count": 1})) for _ in range(2)]
        assert [(verdict.status, verdict.run_id, verdict.duplicate) for verdict in started] == [
            ("accepted", "run", False),
            ("accepted", "run", True),
        ]
        await until_end(client, "run")
        again = await client.start(play("steps", "run", {"count": 7}))
        assert (again.status, again.run_id, again.duplicate) == ("accepted", "run", True)
        for run_id, code in (("run", "run.finished"), ("nobody", "run.unknown")):
            verdict = await client.tell(run_id, "cancel", Cancel())
            assert verdict.status == "rejected"
            assert [problem.code for problem in verdict.problems] == [code]
        (recorded,) = (await wait_for_end(fleet, client, ["run"])).values()
        assert claimers(recorded) == ["a"]


async def test_a_tell_waits_for_a_start_that_a_dead_worker_holds(tmp_path: Path) -> None:
    async with open_client(tmp_path, ack_wait_s=3.0) as (fleet, client):
        victim = await fleet.hire("a", kill=Kill("before", "append", 1))
        await say_start(client, play("unwinds", "run"))
        assert await victim.died() == KILLED
        await fleet.hire("b")
        verdict = await client.tell("run", "cancel", Cancel())
        assert verdict.status == "accepted"
        assert end_payload(await until_end(client, "run")).status == "cancelled"


# -- parking -----------------------------------------------------------------------------------------------------------


async def test_a_parked_run_is_unloaded_and_woken_by_its_alarm(tmp_path: Path) -> None:
    runs = [f"run-{i}" for i in range(3)]
    async with open_client(tmp_path) as (fleet, client):
        a = await fleet.hire("a")
        for run_id in runs:
            await say_start(client, play("waits", run_id, {"sleep_s": 2.0}))
        for run_id in runs:
            await until_type(client, run_id, ev.RunParked.type)
        await a.emptied()
        for run_id in runs:
            assert (await recorded_run(client, run_id))[-1].event.type == ev.RunParked.type
        for run_id in runs:
            recorded = await until(client, run_id, lambda event: event.type == ev.HumanAsked.type)
            assert claimers(recorded) == ["a", "a"]
            await say(client, run_id, "answer", Answer(interaction="person#1.1!ask", user_response="Ada"))
            await say(client, run_id, "signal", Signal(name="go"))
        for recorded in (await wait_for_end(fleet, client, runs)).values():
            assert end_payload(recorded).output == ["Ada", None, ["part.0", "part.1"]]


async def test_an_alarm_that_fires_without_a_worker_is_not_lost(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (fleet, client):
        a = await fleet.hire("a")
        await say_start(client, play("waits", "run", {"sleep_s": 1.0}))
        await until_type(client, "run", ev.RunParked.type)
        await a.kill()
        due = client.log.subjects.due(partition_of(client.ref("run"), client.log.partitions), client.ref("run"))
        fired = await client.log.nc.jetstream().subscribe(due, ordered_consumer=True)
        await fired.next_msg(timeout=PATIENCE_S)
        await fired.unsubscribe()
        assert (await recorded_run(client, "run"))[-1].event.type == ev.RunParked.type
        await fleet.hire("b")
        recorded = await until_type(client, "run", ev.HumanAsked.type)
        assert ev.TimerFired.type in {item.event.type for item in recorded}
        assert claimers(recorded) == ["a", "b"]


# -- conflicts ---------------------------------------------------------------------------------------------------------


async def test_a_suspended_worker_that_lost_its_runs_does_no_harm(tmp_path: Path) -> None:
    """Another worker takes its runs while it is stopped; then it continues with its old state."""
    gate = Gate(tmp_path)
    runs = one_in_each(PARTITIONS, "run")
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        a = await fleet.hire("a")
        await start_and_hold(client, gate, runs)
        a.send(signal.SIGSTOP)
        await fleet.hire("b")
        for run_id in runs:
            await until(client, run_id, lambda event: event.epoch == 2 and event.type == ev.RunClaimed.type)
        gate.open()
        ended = {run_id: await until_end(client, run_id) for run_id in runs}
        a.send(signal.SIGCONT)
        await settled(client, ["a", "b"])
        for run_id, recorded in (await wait_for_end(fleet, client, runs)).items():
            assert claimers(recorded) == ["a", "b"]
            assert [item.id for item in await recorded_run(client, run_id)] == [item.id for item in ended[run_id]]
        # It drops each run when its next append fails.
        await a.emptied()
        assert a.status is None


async def test_a_start_that_is_routed_again_does_not_move_its_run(tmp_path: Path) -> None:
    """It reaches the owner of the partition, which does not perform the run."""
    gate = Gate(tmp_path)
    partition = next(p for p in range(PARTITIONS) if owner(p, ["a", "b"]) == "b")
    run_id = run_in(partition, PARTITIONS, "run")
    async with open_client(tmp_path, partitions=PARTITIONS) as (fleet, client):
        await fleet.hire("a")
        await start_and_hold(client, gate, [run_id])
        await fleet.hire("b")
        await settled(client, ["a", "b"])
        before = claimers(await recorded_run(client, run_id))
        command = client.log.subjects.command(partition, client.ref(run_id), "start")
        await client.log.nc.jetstream().publish(command, b"{}")
        # Commands of a partition are processed in order, so this start has been processed by now.
        await settled(client, ["a", "b"])
        gate.open()
        (recorded,) = (await wait_for_end(fleet, client, [run_id])).values()
        assert claimers(recorded) == before


async def test_only_one_of_two_claimants_performs_a_run(tmp_path: Path) -> None:
    """Two run actors on separate connections, without workers that would coordinate them."""
    script: dict[str, Any] = {}
    lost = 0
    async with open_fleet(tmp_path) as fleet, fleet.connection() as left, fleet.connection() as right:
        rivals = [
            RunHarness(INTERPRETERS, script, log=connection.log, worker=name)
            for connection, name in ((left, "l"), (right, "r"))
        ]
        for i in range(FIGHTS):
            ref = await rivals[0].accept("steps", f"run-{i}", input={"count": 4})
            endings: list[ActivationEnd] = []

            async def claim(harness: RunHarness, ref: RunRef, found: list[ActivationEnd]) -> None:
                nonlocal lost
                try:
                    found.append(await harness.perform(ref))
                except (RunLost, Behind):
                    lost += 1

            async with anyio.create_task_group() as tasks:
                for harness in rivals:
                    tasks.start_soon(claim, harness, ref, endings)
            recorded = await read_run(left.log, ref)
            assert [ending == ActivationEnd.ENDED for ending in endings].count(True) == 1
            check_log([item.event for item in recorded])
            check_writers(recorded)
            assert end_payload(recorded).status == "completed"
        assert lost > FIGHTS // 2
