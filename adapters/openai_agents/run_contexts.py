"""The context variables with which code of the SDK runs in the worker."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import TypeVar

T = TypeVar("T")


class CancelledItself(Exception):
    """Code in the worker has raised `asyncio.CancelledError` although nobody has cancelled it."""


async def in_context(variables: Context, perform: Callable[[], Awaitable[T]]) -> T:
    """Await a coroutine in the worker with the context variables of the workflow that the worker has not set itself.

    The SDK keeps settings of a request in context variables.

    :raises CancelledItself: if it is cancelled, and the caller is not
    """
    context = copy_context()
    for variable, value in variables.items():
        if variable not in context:
            context.run(variable.set, value)

    async def begin() -> T:
        return await perform()

    task = asyncio.get_running_loop().create_task(begin(), context=context)
    try:
        return await task
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if own is not None and own.cancelling():
            raise
        raise CancelledItself from None
