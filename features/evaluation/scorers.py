"""Scorers: judge the answer of a case by a number from 0 to 1, with code alone; and means with their intervals."""

import inspect
import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType

from callboard.languages.cel.program import CelProgram
from callboard.lib.json_schema.check import violations
from callboard.lib.json_types import JSON
from callboard.projections.comparison.json_differences import same

F = TypeVar("F", bound=Callable[..., Any])

RESAMPLES = 1_000
"""How many samples a bootstrap interval is made of."""

SEED = 1
"""The seed of the resampling: the same scores give the same interval."""

MARK = "callboard_scorer"
"""The attribute of a function that is a scorer, with its name."""


class JudgedAnswer(Struct, frozen=True):
    """The answer of a case, as a scorer gets it."""

    input: JSON
    output: JSON
    expected: JSON | UnsetType
    status: str


Score = Callable[[JudgedAnswer], float | None]
"""Judges an answer; None: it cannot judge this one. Any exception is reported for the case."""


class Scorer(Struct, frozen=True):
    """A scorer with its name."""

    name: str
    score: Score


class Mean(Struct, frozen=True):
    """The mean of some scores, and the interval of 95 % in which it is."""

    mean: float
    low: float
    high: float
    count: int


def scorer(function: F) -> F:
    """Mark a function as a scorer, by its name.

    It may take any of ``output``, ``expected``, ``input`` and ``status``, and returns a number from 0 to 1, or whether
    the answer is right; None if it cannot judge the case.
    """
    setattr(function, MARK, function.__name__)
    return function


def exact(answer: JudgedAnswer) -> float | None:
    """1 if the output equals the expected one."""
    return None if answer.expected is UNSET else float(same(answer.output, answer.expected))


def contains(answer: JudgedAnswer) -> float | None:
    """1 if the output has the expected text, or all members of the expected object."""
    return None if answer.expected is UNSET else float(_contains(answer.output, answer.expected))


def _contains(output: JSON, expected: JSON | UnsetType) -> bool:
    if isinstance(expected, dict):
        return isinstance(output, dict) and all(
            name in output and _contains(output[name], value) for name, value in expected.items()
        )
    if isinstance(expected, str):
        return expected in (output if isinstance(output, str) else "") or _any_text(output, expected)
    return same(output, expected)


def _any_text(output: JSON, expected: str) -> bool:
    values = list(output.values()) if isinstance(output, dict) else output if isinstance(output, list) else []
    return any(expected in value if isinstance(value, str) else _any_text(value, expected) for value in values)


def fits(schema: JSON) -> Score:
    """Return a scorer that gives 1 if the output fits a JSON Schema."""
    return lambda answer: float(not violations(schema, answer.output))


def holds(program: CelProgram, clock: Any) -> Score:
    """Return a scorer that evaluates a CEL expression over ``output``, ``expected``, ``input`` and ``status``."""

    def score(answer: JudgedAnswer) -> float | None:
        if "expected" in program.roots and answer.expected is UNSET:
            return None
        expected = None if answer.expected is UNSET else answer.expected
        given = {"output": answer.output, "expected": expected, "input": answer.input, "status": answer.status}
        return _number(program.evaluate(given, clock))

    return score


def calls(function: Callable[..., Any]) -> Score:
    """Return a scorer that calls a function with those of its parameters that an answer has."""
    names = inspect.signature(function).parameters

    def score(answer: JudgedAnswer) -> float | None:
        if "expected" in names and answer.expected is UNSET and names["expected"].default is inspect.Parameter.empty:
            return None
        given = {"output": answer.output, "expected": answer.expected, "input": answer.input, "status": answer.status}
        return _number(
            function(**{name: value for name, value in given.items() if name in names and value is not UNSET})
        )

    return score


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise ValueError(f"expected a number from 0 to 1, or true or false, and got {value!r}")
    return float(value)


def mean_of(scores: Sequence[float], seed: int = SEED) -> Mean | None:
    """Return the mean of some scores with its bootstrap interval; None without scores."""
    if not scores:
        return None
    chance = random.Random(seed)
    means = sorted(fmean(chance.choices(scores, k=len(scores))) for _ in range(RESAMPLES))
    return Mean(
        round(fmean(scores), 4),
        round(means[int(RESAMPLES * 0.025)], 4),
        round(means[int(RESAMPLES * 0.975) - 1], 4),
        len(scores),
    )
