"""What one evaluation may take: its steps, and what it has looked up already and finds again for nothing.

A step is about what the closure of one node takes, and the same work takes the same number of steps everywhere.
"""

from typing import Any

from callboard.lib.patterns import Patterns
from callboard.lib.step_limits import Steps

STEPS_MAX = 1_000_000
"""How many steps one evaluation may take: some tenths of a second."""


class Budget(Steps):
    """The steps of one evaluation."""

    __slots__ = ("_met", "indexes", "patterns")

    def __init__(self) -> None:
        super().__init__(STEPS_MAX)
        self.indexes: dict[int, tuple[Any, Any]] = {}
        """Lists that `in` has looked into, by their identity, each with its `comparison.Members`."""
        self.patterns = Patterns(self)
        self._met: set[str] = set()

    def take_first(self, what: str, count: int) -> None:
        """Count steps for what is looked up once, such as a time zone.

        Whether this process knows it already makes no difference: the same evaluation counts the same everywhere.

        :raises TooManySteps: if they are too many
        """
        if what not in self._met:
            self._met.add(what)
            self.take(count)
