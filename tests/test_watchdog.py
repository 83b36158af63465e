"""Who holds the loop of a worker is told while it lasts: the run, and where in the code it is at."""

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
import structlog

from callboard.runtime.run.pace import Pace
from callboard.runtime.worker.watchdog import Watchdog

PATIENCE_S = 30.0


class Ears:
    """What has been logged, from whatever thread."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def __call__(self, _logger: Any, _method: str, entry: Any) -> Any:
        with self._news:
            self.heard.append(dict(entry))
            self._news.notify_all()
        raise structlog.DropEvent

    def wait_for(self, event: str) -> dict[str, Any]:
        """Wait, and hold whoever waits, until something has been logged."""
        with self._news:
            told = self._news.wait_for(lambda: [entry for entry in self.heard if entry["event"] == event], PATIENCE_S)
        assert told, f"{event} was never logged"
        return told[0]


@pytest.fixture
def ears() -> Iterator[Ears]:
    ears = Ears()
    structlog.configure(processors=[ears])
    yield ears
    structlog.reset_defaults()


async def test_who_holds_the_loop_is_told_while_it_lasts(ears: Ears) -> None:
    pace = Pace()

    def holding_the_loop() -> Iterator[None]:
        told = ears.wait_for("loop.held")
        assert told["run"] == "r-1"
        assert any(frame.endswith(" holding_the_loop") for frame in told["at"])
        yield

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Watchdog(lambda: pace.doing, held_s=0.02, beat_s=0.01).run)
        await anyio.sleep(0.05)
        await pace.work(holding_the_loop(), of="r-1")
        await anyio.to_thread.run_sync(ears.wait_for, "loop.released")
        tasks.cancel_scope.cancel()
    held, released = (entry for entry in ears.heard if entry["event"].startswith("loop."))
    assert released["held_s"] >= held["held_s"]


async def test_it_goes_with_the_worker() -> None:
    others = set(threading.enumerate())
    started: list[threading.Thread] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Watchdog(str, held_s=0.02, beat_s=0.01).run)
        await anyio.sleep(0.03)
        started += [thread for thread in threading.enumerate() if thread not in others and thread.name == "watchdog"]
        tasks.cancel_scope.cancel()
    [thread] = started
    await anyio.to_thread.run_sync(thread.join, PATIENCE_S)
    assert not thread.is_alive()
