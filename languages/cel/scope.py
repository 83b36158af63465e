"""What an expression is evaluated in: one list, made anew for each evaluation, that every closure is handed."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from callboard.languages.cel.errors import Exhausted
from callboard.languages.cel.values import ITERATIONS_MAX, Value

Scope = list[Any]
"""Bindings, clock, how many iterations are left; then the variables of the comprehensions, one slot each."""

BINDINGS, CLOCK, ITERATIONS_LEFT, FIRST_SLOT = 0, 1, 2, 3

Run = Callable[[Scope], Value]
"""An expression, compiled: give it a scope, it gives its value or raises `EvaluationError`."""


class Clock(Protocol):
    """Where ``now()`` and ``wallTime()`` read the time. Both give an aware datetime; neither is asked without need."""

    def now(self) -> datetime:
        """Return the instant at which the construct that evaluates was entered."""
        ...

    def wall_time(self) -> datetime:
        """Return the actual time."""
        ...


def visit(scope: Scope, count: int) -> None:
    """Charge an evaluation for going through so many elements.

    :raises Exhausted: if they are more than an evaluation may visit
    """
    scope[ITERATIONS_LEFT] -= count
    if scope[ITERATIONS_LEFT] < 0:
        raise Exhausted(f"the expression goes through more than {ITERATIONS_MAX} elements")
