"""Catches the failures of tool calls and of sources that cannot be opened."""

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from callboard.actors.tools.tool import ToolFailed
from callboard.bus.effects import Failure


async def tool_failure(call: Awaitable[Any]) -> Failure:
    """Await a tool call that must fail; return its failure."""
    with pytest.raises(ToolFailed) as caught:
        await call
    return caught.value.failure


async def opening_failure(source: AbstractAsyncContextManager[Any]) -> Failure:
    """Open tools that must not open; return the failure."""
    with pytest.raises(ToolFailed) as caught:
        async with source:
            pytest.fail("opened")
    return caught.value.failure
