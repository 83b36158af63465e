"""Waiting, with patience, for what sets no event of ours: other processes, other machines, counters."""

from collections.abc import Awaitable, Callable
from pathlib import Path

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


def is_gone(pid: int) -> bool:
    """Say whether there is no such process, or nobody but its parent remembers it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"
