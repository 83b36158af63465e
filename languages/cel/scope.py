"""The scope of an evaluation: one list, made for each evaluation and passed to every closure."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from callboard.languages.cel.values import Value

Scope = list[Any]
"""The bindings, the clock and the budget of the evaluation; then one slot for each variable of comprehensions."""

BINDINGS, CLOCK, BUDGET, FIRST_SLOT = 0, 1, 2, 3

Run = Callable[[Scope], Value]
"""A compiled expression: takes a scope, returns its value or raises `EvaluationError` or `TooManySteps`."""


class Clock(Protocol):
    """The source of ``now()`` and ``wallTime()``. Both return an aware datetime, and are called only when needed."""

    def now(self) -> datetime:
        """Return the instant at which the construct with the expression was entered."""
        ...

    def wall_time(self) -> datetime:
        """Return the actual time."""
        ...
