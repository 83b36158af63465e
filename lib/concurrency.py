"""Concurrent work: tasks beside a block, and a function applied to many items at the same time."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")
R = TypeVar("R")


@asynccontextmanager
async def background_tasks(patience_s: float = 0.0) -> AsyncGenerator[TaskGroup]:
    """Open a task group for the length of a block; ``patience_s`` after the block its tasks are cancelled.

    An exception of the block is raised as it is: a task group alone would wrap it in an exception group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:
            failure = error
        finally:
            tasks.cancel_scope.deadline = anyio.current_time() + patience_s
    if failure is not None:
        raise failure


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
