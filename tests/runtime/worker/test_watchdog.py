"""The watchdog logs the run and the place in the code that block the loop of a worker."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
import structlog

from callboard.runtime.run.pace import Pace
from callboard.runtime.worker.watchdog import Watchdog

PATIENCE_S = 30.0
HOLD_S = 0.5
"""The seconds for which each piece of work blocks the loop."""


class LogRecorder:
    """Records log entries of all threads."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def __call__(self, _logger: Any, _method: str, entry: Any) -> Any:
        with self._news:
            self.entries.append(dict(entry))
            self._news.notify_all()
        raise structlog.DropEvent

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], patience_s: float, after: int = 0) -> int | None:
        """Block the thread until an entry from this place on is wanted; return its place."""

        def found() -> list[int]:
            return [place for place, entry in enumerate(self.entries) if place >= after and wanted(entry)]

        with self._news:
            places = self._news.wait_for(found, patience_s)
        return places[0] if places else None


@pytest.fixture
def recorder() -> Iterator[LogRecorder]:
    recorder = LogRecorder()
    structlog.configure(processors=[recorder])
    yield recorder
    structlog.reset_defaults()


async def test_a_blocked_loop_is_logged_with_run_and_place_while_it_is_blocked(recorder: LogRecorder) -> None:
    pace = Pace()
    places: list[int] = []

    def is_mine(entry: dict[str, Any]) -> bool:
        return (
            entry["event"] == "loop.held"
            and entry["run"] == "r-1"
            and any(frame.endswith(" holding_the_loop") for frame in entry["at"])
        )

    def holding_the_loop() -> Iterator[None]:
        while (place := recorder.wait_for(is_mine, HOLD_S)) is None:
            # A slow machine may have blocked the loop before, so that an entry without this run was logged.
            yield
        places.append(place)

    def is_over(entry: dict[str, Any]) -> bool:
        return entry["event"] == "loop.released"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Watchdog(lambda: pace.doing, held_s=0.02, beat_s=0.01).run)
        await anyio.sleep(0.05)
        with anyio.fail_after(PATIENCE_S):
            await pace.work(holding_the_loop(), of="r-1")
        [held] = places
        over = await anyio.to_thread.run_sync(recorder.wait_for, is_over, PATIENCE_S, held)
        assert over is not None
        assert recorder.entries[over]["held_s"] >= recorder.entries[held]["held_s"]
        tasks.cancel_scope.cancel()


async def test_the_thread_ends_with_the_worker() -> None:
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
