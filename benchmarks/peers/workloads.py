"""The workloads of every system, and the output of their programs. Needs only Python.

A program is called with the name of a workload and a folder, which is empty at first. It performs runs of these kinds,
of which each step does nothing, durably:

- ``chain``: ``size`` steps in sequence; ``marked``: the same, and each adds a line to the file ``steps`` of the folder
- ``wide``: ``size`` parallel steps
- ``held``: a step that adds a line to the file, and one that does not end before the file ``go`` exists, and then adds
  a line for its run

The workloads:

- ``rates``: chains one at a time and fifty at a time, and fan-outs; prints figures, each as a line of JSON
- ``open``: chains that start at a fixed rate, whether or not earlier ones have ended; prints figures
- ``long``: one marked run, which is killed before it ends; ``many``: held runs, which are killed
- ``resume long``, ``resume many``: continues these runs, until it is killed
- ``tokens``: the stream of a model's answer; prints figures
"""

import asyncio
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

PORTS = [int(port) for port in os.environ.get("PEERS_PORTS", "").split()]
"""Free ports for the servers of a system."""

CHAINS = {"one": (10, 1), "three_one": (3, 1), "fifty": (10, 50), "three_fifty": (3, 50)}
"""Steps of each chain, and how many there are at a time."""

RATES = (10, 50, 100, 200)
"""Arrivals a second of the open loop."""

WIDTH = 1_000
"""Steps of a fan-out."""

LONG = 1_000
"""Steps of the run that is killed."""

MANY = 1_000
"""Runs that are killed together."""

TURNS = 20
"""Answers of a model that are streamed."""

HELD_S = 600.0

MEASURED_S = 3.0
"""How long chains are started one after the other, or at a rate; fan-outs are repeated that long, at least once."""

BEHIND_S = 1.0
"""A system does not keep up with a rate if a run has not ended this long after the last arrival."""

LOST_S = 5.0
"""After this time, runs that have not ended are left."""

Figures = dict[str, list[float | str]]
Perform = Callable[[str, int, str], Awaitable[object]]
"""Performs a run to its end: its kind, its size and its id."""


def read_arguments() -> tuple[str, Path]:
    """Return the workload and the folder that this program was called with."""
    return sys.argv[1], Path(sys.argv[2])


def say(figures: Figures) -> None:
    print(json.dumps(figures), flush=True)


class Marks:
    """What steps do in the folder."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "steps").open("a", buffering=1)
        self._go = folder / "go"

    def mark(self, line: str = "step") -> None:
        self._file.write(f"{line}\n")

    async def hold(self, run: str) -> None:
        if not self._go.exists():
            await asyncio.sleep(HELD_S)
        self.mark(f"next {run}")


def percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[math.ceil(share * len(times)) - 1]


async def measure(workload: str, perform: Perform) -> None:
    """Perform a workload, and print its figures."""
    if workload == "rates":
        for name in CHAINS:
            say({name: await chains(name, perform)})
        say({"fan_out": [await fan_outs(perform)]})
    elif workload == "open":
        await open_loops(perform)
    elif workload == "long":
        await perform("marked", LONG, "long")
    else:
        await asyncio.gather(*(perform("held", 2, f"held-{n}") for n in range(MANY)))


async def chains(name: str, perform: Perform) -> list[float | str]:
    """Perform chains one after the other, some at a time, each with a new id.

    Return steps per second; for chains of three steps instead runs per second, median and 95th percentile in ms.
    """
    steps, at_once = CHAINS[name]
    await perform("chain", steps, f"{name}-warm")
    times: list[float] = []
    began = time.perf_counter()

    async def one_after_the_other(lane: int) -> None:
        number = 0
        while (now := time.perf_counter()) - began < MEASURED_S:
            await perform("chain", steps, f"{name}-{lane}-{number}")
            times.append(time.perf_counter() - now)
            number += 1

    await asyncio.gather(*(one_after_the_other(lane) for lane in range(at_once)))
    rate = len(times) / (time.perf_counter() - began)
    if not name.startswith("three"):
        return [steps * rate]
    return [rate, 1e3 * statistics.median(times), 1e3 * percentile(times, 0.95)]


async def fan_outs(perform: Perform) -> float:
    """Perform fan-outs one after the other; return the steps per second of the best."""
    best = 0.0
    number = 0
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < MEASURED_S:
        await perform("wide", WIDTH, f"wide-{number}")
        best = max(best, WIDTH / (time.perf_counter() - now))
        number += 1
    return best


async def open_loops(perform: Perform) -> None:
    """Perform open loops at rising rates, up to the first with which the system does not keep up."""
    await perform("chain", 3, "open-warm")
    for rate in RATES:
        measured = await open_loop(rate, perform)
        say({f"open_{rate}": measured})
        if "behind" in measured:
            break


async def open_loop(rate: int, perform: Perform) -> list[float | str]:
    """Start chains of three steps at a fixed rate; return median and 99th percentile of their times in ms.

    A time begins when the run should start, also if it starts later. That of a run that has not ended counts so far.
    """
    began = time.perf_counter()
    times: dict[int, float] = {}

    async def one(number: int) -> None:
        await perform("chain", 3, f"open-{rate}-{number}")
        times[number] = time.perf_counter() - began - number / rate

    total = round(rate * MEASURED_S)
    tasks: list[asyncio.Task[None]] = []
    for number in range(total):
        await asyncio.sleep(began + number / rate - time.perf_counter())
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.wait(tasks, timeout=LOST_S)
    left = time.perf_counter() - began
    for number in range(total):
        times.setdefault(number, left - number / rate)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    figures = [1e3 * percentile(list(times.values()), share) for share in (0.5, 0.99)]
    behind = max(number / rate + took for number, took in times.items()) > MEASURED_S + BEHIND_S
    return [*figures, "behind"] if behind else [*figures]


async def until(attempt: Callable[[], Coroutine[Any, Any, Any]], errors: type[Exception], patience_s: float) -> Any:
    """Repeat an attempt until it does not fail."""
    async with asyncio.timeout(patience_s):
        while True:
            try:
                return await attempt()
            except errors:
                await asyncio.sleep(0.02)


async def measure_tokens(answer: Callable[[str], Awaitable[Sequence[float]]]) -> None:
    """Have answers streamed one after the other; print the medians in ms.

    ``answer`` performs a run with a turn of the model to its end. It returns the seconds from the request for the run
    to the first piece of the answer, and, if the system can do that, from a new connection in the middle of the answer
    to its text so far.
    """
    await answer("answer-warm")
    times = [await answer(f"answer-{number}") for number in range(TURNS)]
    figures = zip(("first_token", "reloaded"), zip(*times, strict=True), strict=False)
    say({name: [1e3 * statistics.median(figure)] for name, figure in figures})
