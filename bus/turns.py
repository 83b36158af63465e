"""Turns: how long a thread of this process keeps the interpreter while another one wants it."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

TURN_S = 0.0005
"""How long with `quick_turns`; Python's own default is ten times that."""


@contextmanager
def quick_turns() -> Generator[None]:
    """Have threads take turns quickly for a block, so that the loop does not wait for one with much to do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
