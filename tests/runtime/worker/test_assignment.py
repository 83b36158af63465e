"""The queues of a worker that leaves during an assignment, redelivered starts, and the wait for other workers."""

import json
from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.nats.queue import Delivery, Outbox, Puller, redeliver_now
from callboard.lib.processes import own_process
from callboard.runtime.admission.admission import Admission
from callboard.runtime.admission.command_routing import ADMISSION
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import open_connection
from callboard.runtime.cluster.membership import SETTLE_GUEST_S, SETTLE_S
from callboard.runtime.settings.config import load
from callboard.runtime.worker import assignment as module
from callboard.runtime.worker.assignment import Assignment, settle_times
from callboard.runtime.worker.worker import Worker
from callboard.service.worker.bootstrap import open_worker

PATIENCE_S = 30.0


async def test_a_worker_that_leaves_takes_no_queue_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would read and return the same commands repeatedly."""
    read: list[str] = []

    class RecordingPuller(Puller):
        def __init__(self, nc: Any, stream: str, durable: str, *rest: Any) -> None:
            read.append(durable)
            super().__init__(nc, stream, durable, *rest)

    async def count_open_commands(*_: Any) -> dict[str, int]:
        return {durable: held + 1 for durable, held in (await ensure(*_)).items()}

    async def leave_then(*_: Any) -> None:
        await assignment.leave()

    ensure = module.ensure_consumers
    monkeypatch.setattr(module, "Puller", RecordingPuller)
    monkeypatch.setattr(module, "ensure_consumers", count_open_commands)
    monkeypatch.setattr(module, "redeliver_now", leave_then)
    flags = {"data_dir": tmp_path, "sync": "100ms", "tenant": "acme", "partitions": 4}
    async with open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection:
        assignment = Assignment(
            connection.nc,
            connection.log,
            Outbox(connection.nc),
            "leaver",
            admit=lambda delivery: delivery.ack(),
            deliver=lambda delivery: delivery.ack(),
            ack_wait_s=1.0,
        )
        await assignment.prepare()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(assignment.run)
            with anyio.fail_after(PATIENCE_S):
                await assignment.ready.wait()
            tasks.cancel_scope.cancel()
    assert read == ["admission"]


async def test_a_start_redelivered_during_its_admission_is_admitted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted: list[int] = []
    delivered: list[int] = []
    admission_began, redelivered, may_admit = anyio.Event(), anyio.Event(), anyio.Event()

    async def admit_slowly(self: Admission, delivery: Delivery) -> None:
        admitted.append(delivery.sequence)
        admission_began.set()
        await may_admit.wait()
        await admit(self, delivery)

    def record_delivery(self: Worker, delivery: Delivery) -> None:
        begin_admission(self, delivery)
        delivered.append(delivery.sequence)
        if len(delivered) > 1:
            redelivered.set()

    admit, begin_admission = Admission.admit, Worker._begin_admission  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Admission, "admit", admit_slowly)
    monkeypatch.setattr(Worker, "_begin_admission", record_delivery)
    flags = {"data_dir": tmp_path, "sync": "100ms", "tenant": "acme", "partitions": 4}
    async with (
        open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection,
        open_worker(connection, env={}),
    ):
        client, log = Client(connection.log, "acme"), connection.log
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                source = json.dumps(
                    {"id": "one", "name": "One", "entry": "a", "nodes": {"a": {"name": "A"}}, "edges": []}
                )
                message = {"definition": {"source": source}, "run_id": "once", "model": "scripted"}
                tasks.start_soon(client.start, message)
                await admission_began.wait()
                await redeliver_now(log.requests, log.stream, ADMISSION)
                await redelivered.wait()
                may_admit.set()
    assert delivered == admitted * 2


@pytest.mark.parametrize(
    ("held", "guest", "back_in_s", "times"),
    [
        # No command is open, so no other worker performs a run.
        (False, False, 5.0, (0.0, 0.0)),
        (False, True, 5.0, (0.0, 0.0)),
        # Commands are open, so it waits until other workers can have reconnected.
        (True, False, 0.1, (SETTLE_S, 0.1)),
        (True, False, -3.0, (SETTLE_S, 0.0)),
        # A guest waits without a bound.
        (True, True, -3.0, (SETTLE_GUEST_S, inf)),
    ],
)
def test_a_new_worker_waits_before_it_claims_if_commands_are_open(
    held: bool, guest: bool, back_in_s: float, times: tuple[float, float]
) -> None:
    assert settle_times(held=held, guest=guest, back_in_s=back_in_s) == times
    assert SETTLE_S < SETTLE_GUEST_S


ENDED = f"{own_process().rpartition('.')[0]}.1"
"""A process that had the id of this one before."""


PROCESSES = {"ended": ENDED, "running": own_process(), "elsewhere": "another-machine.1.1", "unknown": ""}


@pytest.mark.parametrize("old", PROCESSES)
async def test_a_claim_waits_for_a_worker_unless_its_process_has_ended(old: str, tmp_path: Path) -> None:
    process, waits = PROCESSES[old], old != "ended" or not own_process()
    async with open_connection(load({"data_dir": tmp_path}, env={}, cwd=tmp_path), "test") as connection:
        assignment = Assignment(
            connection.nc,
            connection.log,
            Outbox(connection.nc),
            "new",
            admit=lambda delivery: delivery.ack(),
            deliver=lambda delivery: delivery.ack(),
            ack_wait_s=1.0,
        )
        # Its time to wait has not begun, and so does not end.
        with anyio.move_on_after(0.0 if waits else PATIENCE_S) as waiting:
            await assignment.know("old", process)
        assert waiting.cancelled_caught == waits
        assignment._membership.settled.set()  # pyright: ignore[reportPrivateUsage]
        with anyio.fail_after(PATIENCE_S):
            await assignment.know("old", process)
