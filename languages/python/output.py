"""The standard streams while code of a workflow runs: prints go to stderr, and are left out in a replay.

Stdout belongs to the program that performs the run, which may write JSON there.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


class _Stream:
    """A standard stream. Other threads write to the ``usual`` one."""

    def __init__(self, usual: Any, shown: Any, prints: Callable[[], bool | None]) -> None:
        self._usual = usual
        self._shown = shown
        self._prints = prints

    def write(self, text: str) -> int:
        match self._prints():
            case None:
                return self._usual.write(text)
            case True:
                return self._shown.write(text)
            case False:
                return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)


@contextmanager
def printing(prints: Callable[[], bool | None]) -> Generator[None]:
    """Send prints to stderr. ``prints`` returns whether they are shown; None for those of other code."""
    stdout, stderr = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Stream(stdout, stderr, prints), _Stream(stderr, stderr, prints)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
