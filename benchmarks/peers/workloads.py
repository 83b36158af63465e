"""The workloads of every system, and the output of their programs. Needs only Python.

A program is called with the name of a workload and an empty folder, and prints one line of JSON:

- ``one``, ``fifty``: chains of ten steps that do nothing, this many at once; ``steps_per_s``
- ``fan_out``: one run of a thousand parallel steps; ``steps_per_s``
- ``long``: one run of a thousand steps in sequence, which is killed before it ends; no line
- ``resume``: continues that run; no line

In ``long`` and ``resume`` each step adds a line to the file ``steps`` of the folder.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

STEPS = 10
"""Steps of a chain."""

AT_ONCE = {"one": 1, "fifty": 50}
"""Chains at the same time."""

WIDTH = 1_000
"""Steps of a fan-out."""

LONG = 1_000
"""Steps of the run that is killed."""

MEASURED_S = 4.0
"""How long chains are started one after the other."""

ROUNDS = 3
"""Number of fan-outs; the best one counts."""


def read_arguments() -> tuple[str, Path]:
    """Return the workload and the folder that this program was called with."""
    return sys.argv[1], Path(sys.argv[2])


def say(steps_per_s: float) -> None:
    print(json.dumps({"steps_per_s": round(steps_per_s, 1)}), flush=True)


def marks(folder: Path) -> Callable[[], None]:
    """Return a function with which a step adds a line to the folder's ``steps``."""
    file = (folder / "steps").open("a", buffering=1)

    def mark() -> None:
        file.write("step\n")

    return mark


async def chains(at_once: int, perform: Callable[[str], Awaitable[object]]) -> float:
    """Perform chains for `MEASURED_S`, ``at_once`` at a time, each with a new id; return steps per second."""
    await perform("warm")
    began = time.perf_counter()
    done = 0

    async def one_after_the_other(lane: int) -> None:
        nonlocal done
        number = 0
        while time.perf_counter() - began < MEASURED_S:
            await perform(f"{lane}-{number}")
            number += 1
            done += STEPS

    await asyncio.gather(*(one_after_the_other(lane) for lane in range(at_once)))
    return done / (time.perf_counter() - began)


async def fan_outs(perform: Callable[[str], Awaitable[object]]) -> float:
    """Perform fan-outs one after the other; return the steps per second of the best."""
    await perform("warm-wide")
    best = 0.0
    for number in range(ROUNDS):
        began = time.perf_counter()
        await perform(f"wide-{number}")
        best = max(best, WIDTH / (time.perf_counter() - began))
    return best
