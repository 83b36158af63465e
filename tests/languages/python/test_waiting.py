"""Functions of asyncio whose versions differ: the addresses of effects are the same with every version of Python."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from callboard import step, workflow
from callboard.testing import Scenario


def find_effects(scenario: Scenario) -> list[str]:
    return [event.key for event in scenario.events if event.type in ("effect.call", "timer.set")]


@step
async def note(value: Any) -> Any:
    return value


@workflow
async def bounded(seconds: float | None) -> list[Any]:
    return [await asyncio.wait_for(note(1), seconds), await asyncio.wait_for(asyncio.ensure_future(note(2)), seconds)]


@workflow
async def late(seconds: float) -> str:
    try:
        await asyncio.wait_for(asyncio.sleep(100), seconds)
    except TimeoutError:
        return "late"
    return "in time"


@workflow
async def completing() -> list[Any]:
    """Other timers before the first result, and an end by time."""
    results = asyncio.as_completed([note(1), asyncio.sleep(50, 2), asyncio.sleep(500, 3)], timeout=100)
    await asyncio.sleep(1)
    found: list[Any] = []
    try:
        for one in results:
            found.append(await one)
    except TimeoutError:
        found.append("late")
    return found


@workflow
async def completing_asynchronously() -> list[tuple[int, int]]:
    tasks = [asyncio.ensure_future(asyncio.sleep(delay, delay)) for delay in (30, 10, 20)]
    return [(tasks.index(task), await task) async for task in asyncio.as_completed(tasks)]  # type: ignore[attr-defined]  # pyright: ignore


async def generating() -> AsyncGenerator[int]:
    try:
        yield 1
        yield 2
    finally:
        await note("closed")


@workflow
async def leaving_a_generator() -> list[Any]:
    async for _ in generating():
        break
    return [*await asyncio.gather(note(1), note(2))]


def test_wait_for_does_not_make_a_task(scenario: Scenario) -> None:
    scenario.start(bounded, input={"seconds": 5})
    assert scenario.result.output == [1, 2]
    assert find_effects(scenario) == ["timer#1.1!timer", "note#1.1!step", "timer#2.1!timer", "task[1]/note#1.1!step"]
    scenario.crash_everywhere()


def test_wait_for_without_a_time_just_waits(scenario: Scenario) -> None:
    scenario.start(bounded, input={"seconds": None})
    assert scenario.result.output == [1, 2]


@pytest.mark.parametrize("seconds", [0, -1, 10])
def test_wait_for_ends_after_its_time(seconds: float, scenario: Scenario) -> None:
    scenario.start(late, input={"seconds": seconds}).advance(hours=1)
    assert scenario.result.output == "late"
    scenario.crash_everywhere()


def test_as_completed_sets_its_timer_when_it_is_called(scenario: Scenario) -> None:
    scenario.start(completing).advance(hours=1)
    assert scenario.result.output == [1, 2, "late"]
    timers = {event.key: event.time for event in scenario.events if event.type == "timer.fired"}
    assert timers["timer#1.1!timer"] > timers["timer#2.1!timer"], "the first one is that of as_completed"
    scenario.crash_everywhere()


def test_as_completed_may_be_iterated_asynchronously(scenario: Scenario) -> None:
    scenario.start(completing_asynchronously).advance(hours=1)
    assert scenario.result.output == [[1, 10], [2, 20], [0, 30]]


def test_a_task_that_closes_a_generator_is_not_counted(scenario: Scenario) -> None:
    scenario.start(leaving_a_generator)
    assert sorted(find_effects(scenario)) == ["closing/note#1.1!step", "task[1]/note#1.1!step", "task[2]/note#1.1!step"]
