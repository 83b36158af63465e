"""Pauses of workflows in Python: no code is executed and no effect begins until the run is resumed or cancelled."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from callboard import NotTaken, Runtime, ask, child, continue_as_new, generate, signal, step, workflow
from callboard.bus import events as ev
from callboard.testing import Scenario
from tests.support.scenarios import find_payload


@step
async def work(name: str) -> str:
    return name


@workflow
async def napping() -> list[str]:
    """Two tasks, each of which does a step after a nap."""

    async def nap(seconds: float, name: str) -> str:
        await asyncio.sleep(seconds)
        return await work(name)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(nap(10, "a")), group.create_task(nap(20, "b"))]
    return [task.result() for task in tasks]


@workflow
async def hurrying() -> str:
    """A signal against a timeout."""
    try:
        async with asyncio.timeout(60):
            return await signal("go", str)
    except TimeoutError:
        return await work("late")


@workflow
async def asking() -> list[str]:
    first = await ask("First?", str)
    return [first, await ask("Second?", str), await work("done")]


@workflow
async def continuing(n: int = 0) -> int:
    await asyncio.sleep(5)
    if n < 1:
        continue_as_new(continuing, n + 1)
    return n


@workflow
async def tidying() -> None:
    try:
        await asyncio.sleep(5)
        await work("body")
    finally:
        await work("clean-up")


@workflow
async def generating() -> str:
    return await generate("Say something.")


@workflow
async def dozing(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


BEGUN = threading.Event()
RELEASED = threading.Event()


@step
async def held(name: str) -> str:
    BEGUN.set()
    await anyio.to_thread.run_sync(RELEASED.wait)
    return name


@workflow
async def busy() -> list[Any]:
    """A step and a child run beside each other, and a step afterwards."""
    found = await asyncio.gather(held("a"), child(dozing, {"seconds": 0}))
    return [found[0], found[1].output, await work("b")]


def types_after(scenario: Scenario, event_type: str) -> list[str]:
    """Return the types of the events after the last one of a type, without those of activations."""
    types = [event.type for event in scenario.events if event.type not in ("run.claimed", "run.parked")]
    return types[len(types) - types[::-1].index(event_type) :]


def steps_of(scenario: Scenario) -> list[str]:
    return [one["arguments"]["name"] for one in (call.request for call in scenario.payloads("effect.call"))]  # type: ignore[union-attr]


def test_timers_elapse_in_a_pause_and_start_no_step(scenario: Scenario) -> None:
    scenario.start(napping).pause().advance(minutes=1)
    assert types_after(scenario, "run.paused") == ["timer.fired", "timer.fired"]
    assert scenario.result.status == "paused"
    scenario.resume()
    assert scenario.result.output == ["a", "b"]
    scenario.crash_everywhere()


def test_a_resume_with_variables_is_refused(scenario: Scenario) -> None:
    scenario.start(napping).pause()
    with pytest.raises(NotTaken, match=r"resume\.variables.*the language of this run has no variables"):
        scenario.resume({"a": 1})
    assert scenario.result.status == "paused"
    scenario.resume()
    assert scenario.result.status != "paused"


def test_a_run_may_be_paused_again_and_again(scenario: Scenario) -> None:
    scenario.start(napping).pause().resume().advance(seconds=15).pause().advance(minutes=1)
    assert types_after(scenario, "run.paused") == ["timer.fired"]
    scenario.resume()
    assert scenario.result.output == ["a", "b"]
    scenario.crash_everywhere()


def test_the_command_step_ends_the_pause(scenario: Scenario) -> None:
    scenario.start(napping).pause().advance(minutes=1).step()
    assert scenario.result.output == ["a", "b"]
    scenario.crash_everywhere()


@pytest.mark.parametrize(("signals", "output"), [(True, "now"), (False, "late")])
def test_the_log_decides_a_race_during_a_pause(signals: bool, output: str, scenario: Scenario) -> None:
    scenario.start(hurrying).pause()
    if signals:
        scenario.signal("go", "now")
    scenario.advance(minutes=2).resume()
    assert scenario.result.output == output
    scenario.crash_everywhere()


def test_an_answer_is_taken_in_a_pause_and_the_next_question_waits(scenario: Scenario) -> None:
    scenario.start(asking).pause().answer("one")
    assert types_after(scenario, "run.paused") == ["human.answered", "human.closed"]
    scenario.resume().answer("two")
    assert scenario.result.output == ["one", "two", "done"]
    scenario.crash_everywhere()


def test_a_paused_run_does_not_end(scenario: Scenario) -> None:
    scenario.start(dozing, input={"seconds": 5}).pause().advance(minutes=1)
    assert scenario.result.status == "paused"
    scenario.resume()
    assert scenario.result.output == "awake"
    scenario.crash_everywhere()


def test_a_paused_run_continues_as_a_new_run_once_it_is_resumed(scenario: Scenario) -> None:
    scenario.start(continuing).pause().advance(minutes=1)
    assert scenario.result.status == "paused"
    scenario.resume()
    end = find_payload(scenario, ev.RunEnd)
    assert end.successor is not None
    scenario.crash_everywhere()


@pytest.mark.parametrize("seconds", [2, 60])
def test_a_cancellation_of_a_paused_run_lets_it_clean_up(seconds: float, scenario: Scenario) -> None:
    scenario.start(tidying).pause().advance(seconds=seconds).cancel("enough")
    assert scenario.result.status == "cancelled"
    assert steps_of(scenario) == ["clean-up"]
    scenario.crash_everywhere()


def test_a_turn_that_its_provider_postpones_is_not_repeated_in_a_pause(scenario: Scenario) -> None:
    error = {"code": "rate_limited", "message": "later", "retry_after_s": 3600}
    scenario.start(generating, script={"turns": {"generate": [{"error": error}, {"text": "hello"}]}})
    scenario.pause().advance(hours=2)
    assert types_after(scenario, "run.paused") == ["timer.fired"]
    scenario.resume()
    assert scenario.result.output == "hello"
    scenario.crash_everywhere()


@pytest.fixture(scope="module")
async def runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Runtime]:
    async with Runtime(data_dir=tmp_path_factory.mktemp("state"), code=[busy]) as runtime:
        yield runtime


async def test_an_effect_that_has_begun_is_completed_in_a_pause(runtime: Runtime) -> None:
    run = await runtime.start(busy)
    await anyio.to_thread.run_sync(BEGUN.wait)
    await run.pause()
    async with aclosing(run.events()) as events:
        events_after = [await anext(event async for event in events if event.type == "run.paused")]
        RELEASED.set()
        async for event in events:
            events_after.append(event)
            if event.type == "run.parked":
                break
    assert "effect.result" in [event.type for event in events_after]
    assert not [event.type for event in events_after if event.type in ("effect.call", "run.end")]
    assert (await run.show()).status == "paused"
    await run.resume()
    assert (await run.result()).output == ["a", "awake", "b"]
