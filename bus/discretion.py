"""Discretion: what is logged while an encrypted run is at hand tells no words of it.

Whoever begins with a run, or a request, does so within `discretion`. From when anything of an encrypted run is at hand
there, lines that are logged inside, and in tasks that were begun inside, say what happens and where, and nothing else
(`callboard.runtime.settings.logs`): errors quote what they stumble over.
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
    """Begin with something that may be, or come to be, about an encrypted run."""
    mark = _at_hand.set(_Discretion())
    try:
        yield
    finally:
        _at_hand.reset(mark)


def be_discreet() -> None:
    """Something of an encrypted run is at hand."""
    if (here := _at_hand.get()) is not None:
        here.wanted = True


def discreet() -> bool:
    """Whether what is logged here may tell no words."""
    here = _at_hand.get()
    return here is not None and here.wanted
