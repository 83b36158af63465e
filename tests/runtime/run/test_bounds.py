"""Bounds of queues in memory: the commands of a run and the messages to be published."""

from typing import Any

import msgspec

from callboard.bus.log.memory import MemoryLog
from callboard.bus.nats import queue
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.queue import Outbox
from callboard.bus.subjects import RunRef
from callboard.lib.backoff import DOUBLINGS_MAX, backoff_s
from callboard.runtime.run import inbox
from callboard.runtime.run.activation import Command
from callboard.runtime.run.actor import RunActor
from tests.support.run_harness import RunHarness


class RecordingClient(ReconnectingClient):
    """A client that records the published subjects, and is not connected."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[str] = []

    async def publish(self, subject: str, *_: Any, **__: Any) -> None:
        self.published.append(subject)


async def test_an_outbox_drops_messages_beyond_its_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(queue, "OUTBOX_MESSAGES_MAX", 3)
    connection = RecordingClient()
    outbox = Outbox(connection)
    for i in range(5):
        outbox.send(f"s{i}", b"")
    await outbox.flush()
    outbox.send("later", b"")
    await outbox.flush()
    assert connection.published == ["s0", "s1", "s2", "later"]


async def test_a_run_refuses_commands_beyond_its_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(inbox, "COMMANDS_WAITING_MAX", 2)
    actor = RunActor(RunRef("acme", "r1"), MemoryLog(), RunHarness({}))
    accepted = [actor.tell(Command(n, "signal", msgspec.json.encode({"name": "go"}))) for n in range(3)]
    assert accepted == [True, True, False]


def test_a_backoff_doubles_up_to_its_maximum() -> None:
    assert [backoff_s(tried, 0.5, 3.0) for tried in (0, 1, 2, 3, 4)] == [0.5, 0.5, 1.0, 2.0, 3.0]
    assert backoff_s(10 * DOUBLINGS_MAX, 0.5, 3.0) == 3.0
