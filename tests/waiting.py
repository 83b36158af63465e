"""Waiting, with patience, for what sets no event of ours: other processes, other machines, counters."""

from collections.abc import Awaitable, Callable

import anyio

PATIENCE_S = 30.0
POLL_S = 0.02


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Look until something holds; one who waits too long fails."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await anyio.sleep(POLL_S)
