"""Watching code: tells when files of hosted code have changed, so that it can be loaded again."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

import anyio
from anyio import to_thread

from callboard.bus.errors import CallboardError
from callboard.runtime.hosting.code_loader import find_sources

POLL_S = 0.4
"""Pause between two looks at the files."""

Stamp = frozenset[tuple[str, int, int]]
"""Files, each with the time of its last change and its size."""


async def code_changes(targets: Sequence[str]) -> AsyncGenerator[None]:
    """Yield after each change of the files of some modules, files or folders, once the files rest again: an editor
    writes several files, or one in several steps."""
    known = await to_thread.run_sync(_stamp, targets)
    while True:
        await anyio.sleep(POLL_S)
        seen = await to_thread.run_sync(_stamp, targets)
        if seen == known:
            continue
        while seen != known:
            known = seen
            await anyio.sleep(POLL_S)
            seen = await to_thread.run_sync(_stamp, targets)
        yield


def _stamp(targets: Sequence[str]) -> Stamp:
    found: set[tuple[str, int, int]] = set()
    for target in targets:
        # A file that is being replaced is missing for a moment.
        with suppress(CallboardError, OSError):
            for path in find_sources(target):
                about = path.stat()
                found.add((str(path), about.st_mtime_ns, about.st_size))
    return frozenset(found)
