"""Which queues a worker reads, when its leaving and a change of who lives come together; and what comes twice."""

import json
from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.nats.queue import Delivery, Outbox, Puller, redeliver_now
from callboard.runtime.admission.admission import Admission
from callboard.runtime.admission.command_routing import ADMISSION
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import open_connection
from callboard.runtime.cluster.membership import HELLO_WAIT_BUSY_S, HELLO_WAIT_GUEST_S, HELLO_WAIT_S
from callboard.runtime.settings.config import load
from callboard.runtime.worker import assignment as module
from callboard.runtime.worker.assignment import Assignment, hello_waits
from callboard.runtime.worker.worker import Worker
from callboard.service.worker.bootstrap import open_worker

PATIENCE_S = 30.0


async def test_who_leaves_takes_no_queue_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that it was about to: what it reads and gives back would come round to it again and again."""
    read: list[str] = []

    class Noted(Puller):
        def __init__(self, nc: Any, stream: str, durable: str, *rest: Any) -> None:
            read.append(durable)
            super().__init__(nc, stream, durable, *rest)

    async def held(*_: Any) -> int:
        return await ensure(*_) + 1

    async def leave_meanwhile(*_: Any) -> None:
        await assignment.leave()

    ensure = module.ensure_consumer
    monkeypatch.setattr(module, "Puller", Noted)
    monkeypatch.setattr(module, "ensure_consumer", held)
    monkeypatch.setattr(module, "redeliver_now", leave_meanwhile)
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


async def test_a_start_that_comes_again_while_it_is_admitted_is_admitted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted: list[int] = []
    came: list[int] = []
    under_way, came_again, go_on = anyio.Event(), anyio.Event(), anyio.Event()

    async def slowly(self: Admission, delivery: Delivery) -> None:
        admitted.append(delivery.sequence)
        under_way.set()
        await go_on.wait()
        await admit(self, delivery)

    def noted(self: Worker, delivery: Delivery) -> None:
        looked_at(self, delivery)
        came.append(delivery.sequence)
        if len(came) > 1:
            came_again.set()

    admit, looked_at = Admission.admit, Worker._begin_admission  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Admission, "admit", slowly)
    monkeypatch.setattr(Worker, "_begin_admission", noted)
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
                await under_way.wait()
                await redeliver_now(log.requests, log.stream, ADMISSION)
                await came_again.wait()
                go_on.set()
    assert came == admitted * 2


@pytest.mark.parametrize(
    ("held", "guest", "back_in_s", "waits"),
    [
        # Nobody could lose anything: who is alone, guest or not, begins at once.
        (False, False, 5.0, (HELLO_WAIT_S, 0.0)),
        (False, True, 5.0, (HELLO_WAIT_S, 0.0)),
        # Somebody holds commands: who hears of nobody waits until those are back who may be on their way.
        (True, False, 0.1, (HELLO_WAIT_BUSY_S, 0.1)),
        (True, False, -3.0, (HELLO_WAIT_BUSY_S, 0.0)),
        # A guest gives them all the time.
        (True, True, -3.0, (HELLO_WAIT_GUEST_S, inf)),
    ],
)
def test_others_are_waited_for_as_long_as_they_may_lose_something(
    held: bool, guest: bool, back_in_s: float, waits: tuple[float, float]
) -> None:
    assert hello_waits(held=held, guest=guest, back_in_s=back_in_s) == waits
    assert HELLO_WAIT_S < HELLO_WAIT_BUSY_S < HELLO_WAIT_GUEST_S
