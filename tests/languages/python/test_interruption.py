"""Workflows that block the worker: the watchdog reports where, and the run fails by name, while others continue."""

import asyncio
import threading
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from time import thread_time
from typing import Any

import anyio
import pytest
import structlog

from callboard import ask, progress, step, unsafe
from callboard.actors.kinds.step import StepRunner
from callboard.bus import events as ev
from callboard.bus.log.memory import MemoryLog
from callboard.bus.subjects import RunRef
from callboard.languages.python import interruption
from callboard.languages.python.hosted import HOSTING
from callboard.lib.code_loop import CodeLoop
from callboard.runtime.run.pace import Pace
from callboard.runtime.worker.watchdog import Watchdog
from callboard.service.operations.replays import replay_events
from tests.support.python_programs import play_of, work
from tests.support.run_harness import RunHarness, end_of

PATIENCE_S = 60.0


@pytest.fixture
def log_entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Return the entries of the log. Code is interrupted after 50 ms."""
    HOSTING.prepare()
    monkeypatch.setattr(interruption, "CPU_S_MAX", 0.05)
    log_entries: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, entry: Any) -> Any:
        log_entries.append(dict(entry))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    yield log_entries
    structlog.reset_defaults()


async def computing() -> None:
    while True:
        pass


async def catching() -> None:
    """Catch every exception and continue."""
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


async def tidying() -> None:
    try:
        await computing()
    finally:
        await anyio.lowlevel.checkpoint()


async def locking() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


async def summing() -> int:
    """Spend some time in a function in C that no signal interrupts, and that keeps the watchdog from running."""
    total = sum(range(20_000_000))
    for _ in range(200_000):
        total = abs(total)
    return total


async def quick() -> str:
    return "done"


async def perform_two_runs(play: Any) -> tuple[Any, Any]:
    """Perform a run under a watchdog, and then another one; return how both ended. Replay the first one."""
    pace = Pace()
    workflows = {"blocks": play_of(play), "quick": play_of(quick)}
    harness = RunHarness(workflows, log=MemoryLog(), pace=pace, kinds={"step": StepRunner().carry})
    ends: list[Any] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Watchdog(lambda: pace.doing, held_s=0.1, beat_s=0.02).run)
        await anyio.sleep(0.05)
        with anyio.fail_after(PATIENCE_S):
            for name in ("blocks", "quick"):
                ref = await harness.accept(name, run=name)
                assert ref == RunRef("acme", name)
                await harness.perform(ref)
                ends.append(end_of(await harness.events(ref)))
            await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    events = await harness.events(RunRef("acme", "blocks"))
    replayed = replay_events(RunRef("acme", "blocks"), events, await harness.read_admission(events[0]), {})
    assert replayed.at < len(events) or ends[0].status == "completed"
    return ends[0], ends[1]


async def computing_in_a_task() -> None:
    await asyncio.gather(work("a", fails=False), ask("When?"), work_and_compute())


async def work_and_compute() -> None:
    await work("b", fails=False)
    progress("now")
    await computing()


@pytest.mark.parametrize("play", [computing, computing_in_a_task, catching, tidying, locking])
async def test_a_workflow_that_blocks_its_worker_fails_by_name(play: Any, log_entries: list[dict[str, Any]]) -> None:
    blocked, other = await perform_two_runs(play)
    assert blocked.status == "failed"
    assert blocked.error.code == "python.blocking"
    assert "test_interruption.py:" in blocked.error.message
    assert other.output == "done"
    held = [entry for entry in log_entries if entry["event"] == "loop.interrupted" and entry["run"] == "blocks"]
    assert any("test_interruption.py:" in frame for entry in held for frame in entry["at"])


async def test_a_function_in_c_is_reported_with_its_place(log_entries: list[dict[str, Any]]) -> None:
    blocked, other = await perform_two_runs(summing)
    assert (blocked.status, other.status) == ("completed", "completed")
    places = [
        frame for entry in log_entries if entry["event"] in ("loop.held", "loop.released") for frame in entry["at"]
    ]
    assert any(frame.endswith(" summing") for frame in places)


async def test_an_import_does_not_use_up_the_time_of_the_code_after_it(
    log_entries: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(interruption, "CPU_S_MAX", 0.2)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "long_import.py").write_text("TOTAL = 0\nfor n in range(8_000_000):\n    TOTAL += n\n")

    async def importing() -> str:
        import_module("long_import")
        with unsafe():
            until = thread_time() + 0.1
            while thread_time() < until:
                pass
        return "imported"

    imported, _other = await perform_two_runs(importing)
    assert (imported.error, imported.output) == (None, "imported")
    assert any(entry["event"] == "loop.held" for entry in log_entries)


async def test_a_replay_on_a_slow_machine_is_not_interrupted(log_entries: list[dict[str, Any]]) -> None:
    performances = count()

    async def slower() -> bool:
        if next(performances):
            with unsafe():
                until = thread_time() + 0.3
                while thread_time() < until:
                    pass
        return await ask("Ship?", bool)

    pace = Pace()
    kinds = {"step": StepRunner().carry}
    harness = RunHarness({"p": play_of(slower)}, log=MemoryLog(), pace=pace, kinds=kinds)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Watchdog(lambda: pace.doing, held_s=0.1, beat_s=0.02).run)
        await anyio.sleep(0.05)
        await harness.perform(ref, harness.command("answer", user_response=True))
        tasks.cancel_scope.cancel()
    assert any(entry["event"] == "loop.held" for entry in log_entries)
    assert end_of(await harness.events(ref)).output is True


class Report:
    """A result of a step, whose JSON is made by code."""

    def model_dump(self, **_options: Any) -> dict[str, int]:
        return {"thread": threading.get_ident()}


class Endless:
    """A result of a step, whose JSON takes without end to make."""

    def model_dump(self, **_options: Any) -> None:
        while True:
            pass


@step
async def compute() -> None:
    await computing()


@step
async def return_endless() -> Any:
    return Endless()


@step
async def report_as_coroutine() -> Any:
    return Report()


@step
def report_as_function() -> Any:
    return Report()


async def perform_with_code_loop(called: Any) -> Any:
    """Perform a run that calls a step, with another loop for coroutine steps; return the outcome of the step."""

    async def play() -> Any:
        return await called()

    code = CodeLoop(look_s=0.005)
    harness = RunHarness({"play": play_of(play)}, log=MemoryLog(), kinds={"step": StepRunner(code).carry})
    with anyio.fail_after(PATIENCE_S):
        ref = await harness.accept("play", run="r")
        await harness.perform(ref)
    await code.aclose()
    return next(
        found for event in await harness.events(ref) if isinstance(found := ev.payload_of(event), ev.EffectResult)
    )


@pytest.mark.parametrize(("endless", "place"), [(compute, "in computing"), (return_endless, "in model_dump")])
async def test_a_step_that_computes_without_end_fails_with_its_place(
    log_entries: list[dict[str, Any]], endless: Any, place: str
) -> None:
    outcome = await perform_with_code_loop(endless)
    assert outcome.error.code == "step.blocking"
    assert place in outcome.error.details["traceback"]
    assert "code_loop.py" not in outcome.error.details["traceback"]
    assert not [entry for entry in log_entries if entry["event"] == "loop.held"]


@pytest.mark.parametrize("reporting", [report_as_coroutine, report_as_function])
async def test_the_json_of_a_result_is_made_where_the_step_has_run(reporting: Any) -> None:
    outcome = await perform_with_code_loop(reporting)
    assert outcome.value["thread"] != threading.get_ident()
