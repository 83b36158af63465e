"""The event loop of processes that carry runs out: uvloop's where it is installed, else Python's own.

A worker's time goes into many small messages. On uvloop it does a tenth more of them with many runs, and a third more
with one run whose every append is synced.
"""

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TypeVar, TypeVarTuple

import anyio

A = TypeVarTuple("A")
R = TypeVar("R")


def run(main: Callable[[*A], Awaitable[R]], *args: *A) -> R:
    """Run an asynchronous function to its end, as `anyio.run`."""
    return anyio.run(main, *args, backend_options={"use_uvloop": find_spec("uvloop") is not None})
