"""Computation: an interpreter's work on users' data, moved off the worker's event loop if it takes many steps.

Evaluating, rendering, sorting and joining go through `compute`. The work counts its `Steps`. It starts on the event
loop's thread; if it exceeds `AT_ONCE_STEPS` it stops, and starts again on another thread (`Stage.compute`) with the
full number of steps. Therefore it must be a pure function.
"""

from collections.abc import Callable
from typing import TypeVar

from callboard.languages.language import Stage
from callboard.lib.step_limits import TakesLong, at_once

T = TypeVar("T")

AT_ONCE_STEPS = 1_000
"""How many steps work may take on the event loop's thread: some milliseconds."""


async def compute(stage: Stage, work: Callable[[], T]) -> T:
    """Call a pure function and return its value or raise its exception. It may be called twice.

    ``work`` must create its own `Steps` on each call.
    """
    try:
        with at_once(AT_ONCE_STEPS):
            return work()
    except TakesLong:
        pass
    return await stage.compute(work)
