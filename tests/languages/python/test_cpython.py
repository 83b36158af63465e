"""CPython's own tests of asyncio's primitives, on the loop of workflows, with a stage whose time is virtual.

Left out are tests of loops themselves: those that mock methods of the loop, and those that need threads or debug mode.
"""

import asyncio
import datetime as dt
import importlib
import inspect
import unittest
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pytest

from callboard.languages.language import Instant, Ok, Stage
from callboard.languages.python import guard
from callboard.languages.python.loop import WorkflowLoop
from callboard.runtime.interpreter.collection import StageCollection
from callboard.runtime.interpreter.driver import Driver, DriverTask, Wait

guard.install()

MODULES = {
    "test_taskgroups": (),
    # Two deadlines at one instant are two events of a log, one after the other: the first decides.
    # The other two block the thread in `time.sleep`, which a workflow may not.
    "test_timeouts": ("test_nested_timeouts", "test_nested_timeouts_concurrent", "test_nested_timeouts_loop_busy"),
    "test_queues": (),
    # Only Python 3.11 cancels the task again.
    "test_waitfor": ("test_wait_for_self_cancellation",),
    # The test starts another loop, which needs sockets.
    "test_locks": ("test_ambiguous_loops",),
}
"""Modules, each with the names of tests that are left out."""

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class _Place:
    def __init__(self, stage: "VirtualStage") -> None:
        self._stage = stage

    def asked_at(self, source: str) -> None: ...

    async def sleep(self, slot: str, until: Instant, purpose: str = "sleep") -> None:
        await self._stage.until(until)


class VirtualStage:
    """The part of a stage that a loop needs. Time passes when no task can run."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.root = _Place(self)
        self._now = BEGAN
        self._due: list[tuple[Instant, int, Wait]] = []
        self._count = count()

    def now(self) -> Instant:
        return self._now

    def place(self, path: str, node: str = "") -> _Place:
        return self.root

    def spawn(self, coro: Coroutine[Any, Any, Any]) -> DriverTask[Any]:
        return self.driver.spawn(coro)

    def cancel(self, task: DriverTask[Any], cause: Any, owner: object = None) -> None:
        self.driver.cancel(task, cause, owner)

    def collecting(self) -> AbstractAsyncContextManager[StageCollection]:
        return StageCollection(self.driver)

    async def breathe(self) -> None: ...

    async def until(self, due: Instant) -> None:
        wait = Wait(self.driver)
        heappush(self._due, (due, next(self._count), wait))
        await wait

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        root = self.driver.start(main)
        self.driver.run()
        while root.settled is None and self._due:
            self._now, _, wait = heappop(self._due)
            wait.wake()
            self.driver.run()
        assert isinstance(root.settled, Ok), "the loop stands still"
        return root.settled.value


def run(coro: Coroutine[Any, Any, Any], **_more: Any) -> Any:
    """Perform a coroutine as `asyncio.run` does."""
    stage = VirtualStage()
    found: Any = stage
    spoken: Stage = found
    performed = stage.run(WorkflowLoop(spoken).perform(coro))
    return performed.task.result()


async def _run_case(case: Any, name: str) -> None:
    await case.asyncSetUp()
    try:
        await getattr(case, name)()
    finally:
        await case.asyncTearDown()


def _list_cases() -> list[Any]:
    found: list[Any] = []
    for name, left_out in MODULES.items():
        try:
            module = importlib.import_module(f"test.test_asyncio.{name}")
        except ImportError:
            found.append(pytest.param(None, "", id=name, marks=pytest.mark.skip("CPython's tests are not installed")))
            continue
        for case in vars(module).values():
            if isinstance(case, type) and issubclass(case, unittest.IsolatedAsyncioTestCase):
                names = unittest.defaultTestLoader.getTestCaseNames(case)
                tests = [test for test in names if test not in left_out]
                found += [pytest.param(case, test, id=f"{name}-{case.__name__}-{test}") for test in tests]
    return found


@pytest.mark.parametrize(("case", "name"), _list_cases())
@pytest.mark.filterwarnings("ignore")
def test_cpythons_test_passes_on_the_loop_of_workflows(case: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "run", run)
    one = case(name)
    one.setUp()
    try:
        if inspect.iscoroutinefunction(getattr(one, name)):
            run(_run_case(one, name))
        else:
            getattr(one, name)()
    finally:
        one.tearDown()
        # Its own `doCleanups` needs a runner, and hides that it has none.
        for function, args, named in reversed(one._cleanups):
            function(*args, **named)
