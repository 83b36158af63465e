"""A workflow in Python whose workers are killed. An import of this module hosts it, for worker processes."""

import asyncio
import sys
from typing import Any

from callboard import child, continue_as_new, signal, step, workflow
from callboard.runtime.hosting.code_loader import load_object


@step
async def note(text: str) -> str:
    return text


@workflow
async def counting(left: int, seen: list[str] | None = None) -> list[str]:
    """Perform a step, and continue as a new run until none is left."""
    seen = [*(seen or []), await note(str(left))]
    if left:
        continue_as_new(counting, left - 1, seen)
    return seen


@workflow
async def waiting() -> list[Any]:
    """Wait for a timer, for a signal and for a child run that continues as another run; clean up at the end."""
    try:
        await asyncio.sleep(0.3)
        sent = await signal("go")
        return [sent, (await child(counting, {"left": 1})).output]
    finally:
        await note("cleaned up")


load_object(sys.modules[__name__])
