"""How often an event loop has polled for I/O: between two polls it serves each callback that is ready once."""

import asyncio
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

ADVANCE_S = 0.002
"""Interval in which the number of polls is advanced for a loop without a selector, such as one of uvloop."""


class Polls:
    """The polls of one loop: ``number`` changes with each."""

    def __init__(self) -> None:
        self.number = 0


_POLLS: WeakKeyDictionary[asyncio.AbstractEventLoop, Polls] = WeakKeyDictionary()


def polls_of(loop: asyncio.AbstractEventLoop) -> Polls:
    """Return the polls of a loop, which are counted from the first call on."""
    polls = _POLLS.get(loop)
    if polls is None:
        polls = _POLLS[loop] = Polls()
        selector: Any = getattr(loop, "_selector", None)
        if selector is None:
            _advance_often(loop, polls)
        else:
            selector.select = partial(_count, polls, selector.select)
    return polls


def _count(polls: Polls, select: Any, timeout: float | None = None) -> Any:
    polls.number += 1
    return select(timeout)


def _advance_often(loop: asyncio.AbstractEventLoop, polls: Polls) -> None:
    polls.number += 1
    loop.call_later(ADVANCE_S, _advance_often, loop, polls)
