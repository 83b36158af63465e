"""Computing: work of an interpreter that is done at once if it takes few steps, else beside the worker's loop.

What an interpreter does to users' data goes through here: evaluating, rendering, sorting, joining. Such work counts its
`Steps`. It starts on the loop's thread; at `AT_ONCE_STEPS` it stops, and starts again on another thread
(`Stage.compute`) with all the steps that it may take. So it must be a pure function.
"""

from collections.abc import Callable
from typing import TypeVar

from callboard.languages.language import Stage
from callboard.lib.step_limits import TakesLong, at_once

T = TypeVar("T")

AT_ONCE_STEPS = 1_000
"""How many steps work may take on the loop's thread: some milliseconds."""


async def compute(stage: Stage, work: Callable[[], T]) -> T:
    """Return what a pure function returns, or raise what it raises. It makes its `Steps` itself, each time again."""
    try:
        with at_once(AT_ONCE_STEPS):
            return work()
    except TakesLong:
        pass
    return await stage.compute(work)
