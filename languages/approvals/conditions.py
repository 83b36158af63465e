"""Conditions of approvals: expressions of CEL about ``input``, the arguments of a call, and ``tool``, its name."""

import datetime as dt
from collections.abc import Callable
from functools import partial

from callboard.languages.approvals.terms import NoValue
from callboard.languages.cel import program
from callboard.languages.cel.errors import CelSyntaxError, EvaluationError, ExpressionError
from callboard.lib.json_types import JSON

ROOTS = ("input", "tool")
"""The names that a condition can read."""

EXPECTED = f"a condition in CEL about {' and '.join(ROOTS)}"


def find_fault(source: str) -> str | None:
    """Return what is wrong with a condition, or None."""
    try:
        compiled = program.compile(source)
    except CelSyntaxError as error:
        return f"is not an expression: {error.message}, at line {error.line}, column {error.column}"
    if unknown := sorted(compiled.roots - set(ROOTS)):
        return f"reads {', '.join(unknown)}, which does not exist here"
    if unknown := sorted(compiled.unknown_functions):
        return f"calls {', '.join(unknown)}, which does not exist"
    return None


def condition(source: str) -> Callable[[str, JSON], bool]:
    """Return the function that evaluates a condition, with the name of the tool and the arguments of a call.

    It raises `NoValue` if the condition has no value there.
    """
    return partial(_holds, source)


def _holds(source: str, tool: str, arguments: JSON) -> bool:
    try:
        value = program.compile(source).evaluate({"input": arguments, "tool": tool}, _NoClock())
    except ExpressionError as error:
        raise NoValue(str(error)) from error
    if not isinstance(value, bool):
        raise NoValue(f"{value!r:.100} is neither true nor false")
    return value


class _NoClock:
    """A condition depends on the call alone."""

    def now(self) -> dt.datetime:
        raise EvaluationError("a condition of an approval has no clock")

    def wall_time(self) -> dt.datetime:
        raise EvaluationError("a condition of an approval has no clock")
