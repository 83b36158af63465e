"""The budget of one evaluation: its steps, and its caches of things that are looked up once.

A step is roughly the time of one node's closure. The same work takes the same number of steps in every process.
"""

from typing import Any

from callboard.lib.patterns import Patterns
from callboard.lib.step_limits import Steps

STEPS_MAX = 1_000_000
"""How many steps one evaluation may take; that is some tenths of a second."""


class EvaluationBudget(Steps):
    """The steps of one evaluation."""

    __slots__ = ("_met", "indexes", "patterns")

    def __init__(self) -> None:
        super().__init__(STEPS_MAX)
        self.indexes: dict[int, tuple[Any, Any]] = {}
        """Lists that `in` has searched, by their identity, each with its `comparison.Members`."""
        self.patterns = Patterns(self)
        self._met: set[str] = set()

    def take_first(self, what: str, count: int) -> None:
        """Count steps for a lookup that an evaluation pays once, such as a time zone.

        They count even if this process has it cached, so that an evaluation takes the same steps everywhere.

        :raises TooManySteps: if the steps are used up
        """
        if what not in self._met:
            self._met.add(what)
            self.take(count)
