"""The public API outside of workflows: Python's clock and random numbers, and the terminal.

Only this module of the languages reads them, and no run executes it.
"""

import datetime as dt
import random as chance
import sys
from uuid import UUID, uuid4


def now() -> dt.datetime:
    """Return the time of day, in UTC."""
    return dt.datetime.now(dt.UTC)


def random() -> float:
    """Return a random number in [0, 1)."""
    return chance.random()


def uuid() -> UUID:
    """Return a random UUID."""
    return uuid4()


def answer(question: str) -> str:
    """Ask at the terminal, and return the line that the user enters."""
    print(question, file=sys.stderr)
    return input("> ")
