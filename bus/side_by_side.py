"""Side by side: something is done with each of many, a few at a time."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(given: Sequence[T], act: Callable[[T], Awaitable[R]], at_once_max: int) -> list[R]:
    """Do something with each, with so many at once at most; return what came of them, in the order given.

    The first error ends all of it: those that are under way are cancelled, the others are not begun, and it is raised
    as it is, in no group.
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
