"""Waiting, with a limit, for conditions that set no event of this process: other processes, servers, counters."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

PATIENCE_S = 30.0
POLL_S = 0.02


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until a condition holds; fail after `PATIENCE_S`."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await anyio.sleep(POLL_S)


def is_gone(pid: int) -> bool:
    """Say whether a process does not exist, or is a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"
