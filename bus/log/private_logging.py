"""Private logging: log lines about an encrypted run must not reveal its content.

Code that begins to work on a run, or on a request, does so within `content_guard`. Once it has decrypted anything of an
encrypted run, the log lines of this block, and of tasks started in it, contain only what happens and where
(`callboard.runtime.settings.logs`). They leave out error texts, which often quote the data that caused the error.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class _ContentGuard:
    def __init__(self) -> None:
        self.wanted = False


_current: ContextVar[_ContentGuard | None] = ContextVar("callboard_content_guard", default=None)


@contextmanager
def content_guard() -> Generator[None]:
    """Mark a block that may work on an encrypted run."""
    mark = _current.set(_ContentGuard())
    try:
        yield
    finally:
        _current.reset(mark)


def omit_content() -> None:
    """Leave content out of log lines from here on, because this block works on an encrypted run."""
    if (here := _current.get()) is not None:
        here.wanted = True


def omits_content() -> bool:
    """Return whether log lines written here must leave out content."""
    here = _current.get()
    return here is not None and here.wanted
