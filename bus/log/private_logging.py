"""Discretion: log lines about an encrypted run must not reveal its content.

Code that begins to work on a run, or on a request, does so within `discretion`. Once it has decrypted anything of an
encrypted run, the log lines of this block, and of tasks started in it, contain only what happens and where
(`callboard.runtime.settings.logs`). They leave out error texts, which often quote the data that caused the error.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class _Discretion:
    def __init__(self) -> None:
        self.wanted = False


_at_hand: ContextVar[_Discretion | None] = ContextVar("callboard_discretion", default=None)


@contextmanager
def discretion() -> Generator[None]:
    """Mark a block that may work on an encrypted run."""
    mark = _at_hand.set(_Discretion())
    try:
        yield
    finally:
        _at_hand.reset(mark)


def be_discreet() -> None:
    """Leave content out of log lines from here on, because this block works on an encrypted run."""
    if (here := _at_hand.get()) is not None:
        here.wanted = True


def discreet() -> bool:
    """Return whether log lines written here must leave out content."""
    here = _at_hand.get()
    return here is not None and here.wanted
