"""What the names of the front door mean outside of a workflow: Python's own clock, chance, and terminal.

The one module of the languages that reads them: no run is performed where it is called.
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
    """Ask at the terminal."""
    print(question, file=sys.stderr)
    return input("> ")
