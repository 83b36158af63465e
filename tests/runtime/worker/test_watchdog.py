"""Who holds the loop of a worker is told while it lasts: the run, and where in the code it is at."""

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
"""How long the loop is held before it has its turn again."""


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

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], patience_s: float, after: int = 0) -> int | None:
        """Wait, and hold whoever waits, until something is logged behind so many entries; return which entry it is."""

        def found() -> list[int]:
            return [place for place, entry in enumerate(self.heard) if place >= after and wanted(entry)]

        with self._news:
            told = self._news.wait_for(found, patience_s)
        return told[0] if told else None


@pytest.fixture
def ears() -> Iterator[Ears]:
    ears = Ears()
    structlog.configure(processors=[ears])
    yield ears
    structlog.reset_defaults()


async def test_who_holds_the_loop_is_told_while_it_lasts(ears: Ears) -> None:
    pace = Pace()
    told: list[int] = []

    def is_mine(entry: dict[str, Any]) -> bool:
        return (
            entry["event"] == "loop.held"
            and entry["run"] == "r-1"
            and any(frame.endswith(" holding_the_loop") for frame in entry["at"])
        )

    def holding_the_loop() -> Iterator[None]:
        while (place := ears.wait_for(is_mine, HOLD_S)) is None:
            # A machine with much to do may have held it before, where nobody was at work, and that was told of it.
            yield
        told.append(place)

    def is_over(entry: dict[str, Any]) -> bool:
        return entry["event"] == "loop.released"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Watchdog(lambda: pace.doing, held_s=0.02, beat_s=0.01).run)
        await anyio.sleep(0.05)
        with anyio.fail_after(PATIENCE_S):
            await pace.work(holding_the_loop(), of="r-1")
        [held] = told
        over = await anyio.to_thread.run_sync(ears.wait_for, is_over, PATIENCE_S, held)
        assert over is not None
        assert ears.heard[over]["held_s"] >= ears.heard[held]["held_s"]
        tasks.cancel_scope.cancel()


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
