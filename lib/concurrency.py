"""Side by side: apply a function to many items concurrently, up to a maximum number at the same time."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(given: Sequence[T], act: Callable[[T], Awaitable[R]], at_once_max: int) -> list[R]:
    """Apply a function to each item, at most ``at_once_max`` at the same time; return the results in order.

    The first error cancels the running calls, and the remaining ones are not started. It is raised without an exception
    group.
    """
    found: dict[int, R] = {}
    left = iter(enumerate(given))

    async def work() -> None:
        for place, one in left:
            found[place] = await act(one)

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(min(at_once_max, len(given))):
                tasks.start_soon(work)
    except BaseExceptionGroup as group:
        raise _first(group) from group
    return [found[place] for place in range(len(given))]


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
