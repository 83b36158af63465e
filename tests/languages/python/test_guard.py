"""The clocks and random numbers of the standard library in workflows, and the order of sets of tasks."""

import asyncio
import datetime as dt
import json
import os
import random
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from random import choice
from secrets import token_hex
from time import time as time_by_name
from typing import Any

import pytest

from callboard import now, step, workflow
from callboard.languages.python import guard
from callboard.languages.python.loop import current_loop
from callboard.testing import Scenario
from tests.support.scenarios import find_failure, find_keys

guard.install()

RANDOM: dict[str, Callable[[], Any]] = {
    "random.random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "random.randbytes": lambda: random.randbytes(8).hex(),
    "random.shuffle": lambda: random.shuffle(cards := list(range(20))) or cards,
    "random.Random": lambda: random.Random().random(),
    "random.SystemRandom": lambda: random.SystemRandom().random(),
    "choice by name": lambda: [choice("abcdefgh") for _ in range(20)],
    "secrets.token_hex": lambda: secrets.token_hex(8),
    "secrets.randbelow": lambda: secrets.randbelow(1 << 60),
    "secrets.choice": lambda: [secrets.choice("abcdefgh") for _ in range(20)],
    "token_hex by name": lambda: token_hex(8),
    "os.urandom": lambda: os.urandom(8).hex(),
    "uuid.uuid1": lambda: str(uuid.uuid1()),
    "uuid.uuid4": lambda: str(uuid.uuid4()),
}

CLOCKS: dict[str, Callable[[], Any]] = {
    "time.time": time.time,
    "time by name": lambda: time_by_name(),
    "time.time_ns": lambda: time.time_ns() / 1e9,
    "time.gmtime": lambda: dt.datetime(*time.gmtime()[:6], tzinfo=dt.UTC).timestamp(),
    "datetime.datetime.now": lambda: dt.datetime.now(dt.UTC).timestamp(),
    "datetime.now by name": lambda: datetime.now(dt.UTC).timestamp(),
    "datetime.now, naive": lambda: datetime.now().replace(tzinfo=dt.UTC).timestamp(),
    "datetime.utcnow": lambda: datetime.utcnow().replace(tzinfo=dt.UTC).timestamp(),  # pyright: ignore
    "datetime.today": lambda: datetime.today().replace(tzinfo=dt.UTC).timestamp(),
}


@step
async def note(value: Any) -> Any:
    return value


@workflow
async def drawing(name: str) -> list[Any]:
    """Draw two numbers, which a replay compares with those in the log."""
    return [await note(RANDOM[name]()), await note(RANDOM[name]())]


@workflow
async def reading(name: str) -> list[Any]:
    started = await note(CLOCKS[name]())
    await asyncio.sleep(100)
    return [started, await note(CLOCKS[name]()), now().timestamp()]


@workflow
async def dating() -> list[str]:
    return [str(date.today()), str(now().date()), str(dt.date.today())]


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_drawn_from_the_seed_of_the_run(name: str, scenario: Scenario) -> None:
    scenario.start(drawing, input={"name": name})
    assert scenario.result.status == "completed", scenario.result.error
    first, second = scenario.result.output
    assert first != second
    assert RANDOM[name]() != RANDOM[name]()


@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_clocks_show_the_time_of_the_run(name: str, scenario: Scenario) -> None:
    scenario.start(reading, input={"name": name}).advance(seconds=1000)
    assert scenario.result.status == "completed", scenario.result.error
    started, ended, expected = scenario.result.output
    assert ended - started == pytest.approx(100, abs=1)
    assert ended == pytest.approx(expected, abs=1)


def test_dates_are_those_of_the_run(scenario: Scenario) -> None:
    scenario.start(dating)
    assert len(set(scenario.result.output)) == 1


def test_clocks_outside_of_workflows_show_the_time_of_the_machine() -> None:
    assert abs(datetime.now(dt.UTC).timestamp() - time.time()) < 60
    assert isinstance(datetime.now(), datetime)
    assert type(date.today()) is date
    assert datetime.now().tzinfo is None


class Subclass(datetime):
    pass


def test_now_of_a_subclass_of_datetime_returns_the_subclass() -> None:
    assert type(Subclass.now()) is Subclass
    assert type(Subclass.now(dt.UTC)) is Subclass


@workflow
async def sleeping() -> None:
    time.sleep(60)  # noqa: ASYNC251 - this is refused


def test_a_workflow_that_blocks_in_sleep_is_refused(scenario: Scenario) -> None:
    scenario.start(sleeping)
    error = find_failure(scenario)
    assert error.code == "python.io_in_workflow"
    assert "asyncio.sleep" in error.message
    assert "test_guard.py:" in error.message


# -- sets -------------------------------------------------------------------------------------------------------------


@workflow
async def waiting() -> list[list[int]]:
    """Iterate over what asyncio returns as sets of tasks, and over sets of futures and of gathered tasks."""
    loop = asyncio.get_running_loop()
    tasks = [asyncio.ensure_future(note(n)) for n in range(20)]
    done, _ = await asyncio.wait(tasks)
    gathered = [asyncio.gather(note(n)) for n in range(8)]
    futures = [loop.create_future() for _ in range(8)]
    orders = [[tasks.index(task) for task in done], [gathered.index(one) for one in set(gathered)]]
    await asyncio.gather(*gathered)
    return [*orders, [futures.index(future) for future in set(futures)]]


@workflow
async def completing() -> list[int]:
    return [await one for one in asyncio.as_completed([note(n) for n in range(20)])]


def test_sets_of_tasks_have_one_order(scenario: Scenario) -> None:
    scenario.start(waiting)
    orders = scenario.result.output
    kept: list[object] = []
    for _ in range(3):
        kept.append([object() for _ in range(1_000)])
        with Scenario(call_steps=True) as other:
            other.start(waiting)
            assert other.result.output == orders


def test_as_completed_starts_tasks_in_the_order_of_its_argument(scenario: Scenario) -> None:
    scenario.start(completing)
    assert scenario.result.output == list(range(20))
    calls = find_keys(scenario, "effect.call")
    assert calls == [f"task[{k}]/note#1.1!step" for k in range(1, 21)]


def test_a_future_outside_of_workflows_has_its_own_hash() -> None:
    async def body() -> int:
        one = asyncio.gather(asyncio.sleep(0))
        found = hash(one)
        await one
        return found

    assert asyncio.run(body()) != 0
    assert current_loop() is None


ITERATE_OVER_A_SET = """
import asyncio, json, sys
from callboard import step, workflow
from callboard.bus import events as ev
from callboard.bus.errors import ReplayDiverged
from callboard.bus.subjects import RunRef
from callboard.runtime.hosting.code_loader import load_object
from callboard.testing import Scenario
from callboard.testing.checks import replay_events
from callboard.runtime.admission.definitions import Definitions

@step
async def note(value: str) -> str:
    return value

@workflow
async def unordered() -> list[str]:
    return [await note(word) for word in {"a", "b", "c", "d", "e", "f", "g", "h"}]

load_object(unordered)
if sys.argv[1] == "record":
    with Scenario(call_steps=True) as scenario:
        scenario.start(unordered)
        print(json.dumps([ev.encode_event(event).decode() for event in scenario.events]))
else:
    events = [ev.decode_event(line.encode()) for line in json.load(sys.stdin)]
    try:
        replay_events(Definitions().language, RunRef("default", "run-1"), events)
    except ReplayDiverged as error:
        print(error.code, error.message)
"""


def test_the_order_of_a_set_of_strings_is_checked_in_a_replay(tmp_path: Path) -> None:
    """Processes whose strings have other hashes iterate over such a set in another order (decision 0020)."""
    file = tmp_path / "unordered_play.py"
    file.write_text(ITERATE_OVER_A_SET)

    def execute(mode: str, seed: str, given: str = "") -> str:
        env = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(
            [sys.executable, str(file), mode], env=env, input=given, capture_output=True, text=True, check=True
        ).stdout

    recorded = execute("record", "1")
    assert len(json.loads(recorded)) > 8
    differing = execute("replay", "2", recorded)
    assert differing.startswith("replay.diverged")
    assert "unordered_play.py:18" in differing
