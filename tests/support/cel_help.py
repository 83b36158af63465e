"""Short ways to evaluate an expression in a test, without the oracle."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from callboard.languages.cel.errors import EvaluationError, Unrepresentable
from callboard.languages.cel.program import compile
from callboard.lib.json_types import JSON

ENTERED = datetime(2024, 1, 15, 9, 30, tzinfo=UTC)


class CountingClock:
    """A clock that advances by a second with every reading of the wall time, and counts its readings."""

    def __init__(self) -> None:
        self.asked = 0

    def now(self) -> datetime:
        self.asked += 1
        return ENTERED

    def wall_time(self) -> datetime:
        self.asked += 1
        return ENTERED + timedelta(seconds=self.asked)


def evaluate(source: str, bindings: Mapping[str, JSON] | None = None) -> JSON:
    """Return the value of an expression as data."""
    return compile(source).evaluate(bindings or {}, CountingClock())


def fault(source: str, bindings: Mapping[str, JSON] | None = None) -> str:
    """Return why an expression cannot be evaluated."""
    with pytest.raises(EvaluationError) as raised:
        evaluate(source, bindings)
    return raised.value.message


def refusal(source: str, bindings: Mapping[str, JSON] | None = None) -> str:
    """Return why an expression's value cannot be converted to data."""
    with pytest.raises(Unrepresentable) as raised:
        evaluate(source, bindings)
    return raised.value.message
