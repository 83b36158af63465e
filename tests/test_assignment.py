"""Which queues a worker reads, when its leaving and a change of who lives come together."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.queue import Outbox, Puller
from callboard.runtime.api.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.runtime.worker import assignment as module
from callboard.runtime.worker.assignment import Assignment

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
