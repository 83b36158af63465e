"""What an expression is evaluated in: one list, made again for each evaluation, that every closure is handed."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from callboard.languages.cel.values import Value

Scope = list[Any]
"""Bindings, clock, the budget of the evaluation; then the variables of the comprehensions, one slot each."""

BINDINGS, CLOCK, BUDGET, FIRST_SLOT = 0, 1, 2, 3

Run = Callable[[Scope], Value]
"""An expression, compiled: give it a scope, it gives its value or raises `EvaluationError` or `TooManySteps`."""


class Clock(Protocol):
    """Where ``now()`` and ``wallTime()`` read the time. Both give an aware datetime; neither is asked without need."""

    def now(self) -> datetime:
        """Return the instant at which the construct that evaluates was entered."""
        ...

    def wall_time(self) -> datetime:
        """Return the actual time."""
        ...
