"""A run that blocks the loop of a worker for long yields to other runs; its log does not change."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from callboard.bus.events import Event, RunClaimed
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.lib.threads import on_the_loop
from callboard.runtime.interpreter.driver import Driver
from callboard.runtime.run.log import read_run
from callboard.runtime.run.pace import REST_SHARE, SLICE_S, Pace
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import simulate
from tests.languages.flow.test_cases_bounds import LOOPS
from tests.languages.flow.test_cases_gather import GATHERS
from tests.support.flow_cases import Case, shaper
from tests.support.flows import Performance, call, cleanup, flow, mock, perform, retry, returned, subflow
from tests.support.simulation import World, copied, finish, harness_for


def yield_everywhere() -> Pace:
    """A pace at which every task yields wherever it can."""
    return Pace(0.0, clock=lambda: 0.0, beside=on_the_loop)


# -- the driver --------------------------------------------------------------------------------------------------------


def test_a_task_that_yields_continues_before_the_others() -> None:
    """The order of tasks is the same as without yielding."""

    def order(yields: bool) -> tuple[list[str], int]:
        driver, notes, runs = Driver(lambda: yields), list[str](), 1

        async def play(name: str) -> None:
            for step in "123":
                notes.append(name + step)
                await driver.breathe()

        async def root() -> None:
            tasks = [driver.spawn(play(name)) for name in "abc"]
            await driver.breathe()
            notes.append("spawned")
            await driver.join(*tasks)
            notes.append("joined")

        driver.start(root())
        driver.run()
        while driver.is_unfinished:
            driver.run()
            runs += 1
        return notes, runs

    at_once, once = order(yields=False)
    yielding, often = order(yields=True)
    assert yielding == at_once == ["spawned", *(name + step for name in "abc" for step in "123"), "joined"]
    # The driver returns each time that a coroutine yields.
    assert (once, often) == (1, 15)


def test_a_task_that_yields_can_be_dropped() -> None:
    driver, cleaned_up = Driver(lambda: True), list[str]()

    async def root() -> None:
        try:
            await driver.breathe()
        finally:
            cleaned_up.append("left")

    driver.start(root())
    driver.run()
    assert driver.is_unfinished
    driver.drop()
    assert not driver.is_unfinished
    assert cleaned_up == ["left"]


# -- the pace ----------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pieces(self, notes: list[str], name: str, *takes: float) -> Iterator[None]:
        for take in takes:
            self.now += take
            notes.append(name)
            yield


async def test_short_work_is_not_interrupted() -> None:
    clock, notes = Clock(), list[str]()
    pace = Pace(clock=clock)
    assert await pace.work(clock.pieces(notes, "a", *[SLICE_S / 10] * 5)) is False
    assert notes == ["a"] * 5


async def test_other_tasks_run_between_the_pieces_of_long_work() -> None:
    clock, notes = Clock(), list[str]()
    pace = Pace(clock=clock)

    async def other() -> None:
        for _ in range(3):
            await pace.work(clock.pieces(notes, "b", SLICE_S / 10))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert await pace.work(clock.pieces(notes, "a", *[SLICE_S] * 3)) is True
    assert notes.count("a") == notes.count("b") == 3
    assert "".join(notes).strip("b") != "aaa"


def test_long_work_pauses_only_if_other_work_waits() -> None:
    rested: list[float] = []

    async def work(*, alone: bool) -> None:
        clock, notes = Clock(), list[str]()
        pace = Pace(clock=clock)

        async def other() -> None:
            for _ in range(10):
                await pace.work(clock.pieces(notes, "b", SLICE_S / 10))
                await anyio.lowlevel.checkpoint()

        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            if not alone:
                tasks.start_soon(other)
            await pace.work(clock.pieces(notes, "a", *[SLICE_S] * 3))
            rested.append(anyio.current_time() - began)

    simulate(partial(work, alone=True))
    simulate(partial(work, alone=False))
    assert rested[0] == 0.0
    assert rested[1] == pytest.approx(SLICE_S * REST_SHARE)


async def test_the_loop_polls_other_tasks_after_each_piece_of_several_long_works() -> None:
    clock, notes = Clock(), list[str]()
    pace = Pace(clock=clock)
    looked = 0

    async def look() -> None:
        nonlocal looked
        while len(notes) < 20:
            looked += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        for name in "abcd":
            tasks.start_soon(pace.work, clock.pieces(notes, name, *[SLICE_S] * 5))
    assert looked >= len(notes) - 1


# -- runs --------------------------------------------------------------------------------------------------------------


def _contents_of(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.n, event.type, event.path, event.iteration, event.key, event.payload) for event in events]


SUBFLOW = subflow({"w": call(mock(), middleware=[shaper()]), "done": returned()}, middleware=[cleanup(mock())])

FLOWS = {
    "steps": flow({"a": call({"flow": SUBFLOW}, middleware=[retry(2), shaper()]), "done": returned()}),
    "a match": flow(
        {
            "m": {
                "action": "Match",
                "cases": [{"when": "{{ false }}", "next": "done"}, {"when": "{{ true }}", "next": "done"}],
                "default": {"next": "done"},
            },
            "done": returned(),
        }
    ),
    "a fan-out": flow(
        {
            "g": {
                "action": "Gather",
                "over": [1, 2, 3],
                "call": {"flow": SUBFLOW, "onSuccess": {"value": "{{ call.index }}"}},
                "next": "done",
            },
            "done": returned(),
        }
    ),
}


@pytest.mark.parametrize("name", FLOWS)
def test_a_run_that_yields_has_the_same_log(name: str) -> None:
    at_once, yielding = perform(FLOWS[name]), perform(FLOWS[name], pace=yield_everywhere())
    assert _contents_of(yielding.events) == _contents_of(at_once.events)


@pytest.mark.parametrize("case", [*LOOPS.values(), *GATHERS.values()], ids=[*LOOPS, *GATHERS])
def test_a_run_that_yields_has_the_same_result(case: Case) -> None:
    """Outcomes of effects arrive between the pieces of a turn; `perform` checks and replays the log."""
    at_once = perform(case.definition, case.input, case.arguments)
    yielding = perform(case.definition, case.input, case.arguments, pace=yield_everywhere())
    assert _without_times(yielding) == _without_times(at_once)


def _without_times(done: Performance) -> tuple[Any, list[str]]:
    return done.result, sorted(f"{event.type} {event.path} {event.key}" for event in done.events)


def test_a_replay_that_yields_has_the_same_log() -> None:
    async def play(stage: Stage) -> End:
        for n in range(5):
            await stage.root.call(f"c.{n}", "http", {"value": n})
            await stage.breathe()
        return End("completed", "done")

    async def body() -> None:
        harness = harness_for(play)
        events = await finish(harness, await harness.accept("p"), World())
        log = CrashingLog()
        await copied((await read_run(harness.log, RUN))[:-1], log)
        other = harness_for(play, log, pace=yield_everywhere())
        again = await finish(other, RUN, World())
        check_log(again)
        check_replay(other.language, RUN, again)
        assert _types(again) == _types(events)

    simulate(body)


RUN = RunRef("acme", "r1")


def _types(events: list[Event]) -> list[str]:
    return [event.type for event in events if event.type != RunClaimed.type]
