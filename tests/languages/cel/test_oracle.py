"""Callboard's CEL compared with the CEL team's C++ engine: the same values and faults, but for the listed ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import cel_sources as sources
from tests.support.cel_oracle import FAULT, SYNTAX, Answer, answer, ask


def assert_agreement(source: str, bindings: dict[str, Any]) -> None:
    ours, theirs = answer(source, bindings), ask(source, bindings)
    # A map has no order, so values made of its keys may differ in theirs; the order of the oracle even changes.
    assert ours == theirs or ("{" in source and sort_parts(ours) == sort_parts(theirs)), source


def sort_parts(value: Any) -> Any:
    """Sort the parts of every list and tuple in a value."""
    return sorted((sort_parts(part) for part in value), key=repr) if isinstance(value, list | tuple) else value


@given(source=sources.EXPRESSIONS, bindings=sources.BINDINGS)
def test_any_expression_has_the_value_or_fault_of_the_oracle(source: str, bindings: dict[str, Any]) -> None:
    assert_agreement(source, bindings)


@given(source=sources.ARITHMETIC)
def test_arithmetic_agrees(source: str) -> None:
    assert_agreement(source, {})


@given(source=sources.INTEGERS)
def test_overflows_of_integers_agree(source: str) -> None:
    assert_agreement(source, {})


@given(source=sources.STRINGS)
def test_functions_of_texts_agree(source: str) -> None:
    assert_agreement(source, {})


@given(source=sources.MATH)
def test_functions_of_numbers_agree(source: str) -> None:
    assert_agreement(source, {})


@given(source=sources.TIMES)
def test_instants_and_lengths_of_time_agree(source: str) -> None:
    assert_agreement(source, {})


@given(
    tokens=st.lists(
        st.sampled_from((*"()[]{}.,:?!-+*<&|'\"\\", "a", "1", "1.5", "in", "r'", "&&", "==", "has", "map", "u"))
    )
)
def test_syntax_errors_agree(tokens: list[str]) -> None:
    source = " ".join(tokens)
    assert (answer(source, {}) == SYNTAX) == (ask(source, {}) == SYNTAX)


DIFFERENCES: dict[str, tuple[str, Answer, Answer]] = {
    "equal keys of a map are an error, also of different kinds of numbers (langdef, aggregate values)": (
        "size({1: 2, 1u: 3})",
        FAULT,
        ("int", 2),
    ),
    "a conversion out of range is an error (langdef, overflow)": ("double('1e400')", FAULT, ("double", "inf")),
    "a literal out of range is an error": ("1e400", SYNTAX, ("double", "inf")),
    "blanks are not part of a number": ("int(' 1')", FAULT, ("int", 1)),
    "numbers of different kinds are compared exactly (langdef, numbers)": (
        "9007199254740993 == 9007199254740992.0",
        ("bool", False),
        ("bool", True),
    ),
    "numbers of different kinds are ordered exactly": (
        "9223372036854775807 < 9223372036854775808.0",
        ("bool", True),
        ("bool", False),
    ),
    "infinity is written as cel-go does": ("string(1.0 / 0.0)", ("string", "+Inf"), ("string", "inf")),
    "a duration has no trailing zeros": ("string(duration('1.5s'))", ("string", "1.5s"), ("string", "1.500s")),
    "a timestamp has no trailing zeros": (
        "string(timestamp('2020-01-01T00:00:00.5Z'))",
        ("string", "2020-01-01T00:00:00.5Z"),
        ("string", "2020-01-01T00:00:00.500Z"),
    ),
    "a search from beyond the end finds nothing (cel-go, indexOf)": ("'abc'.indexOf('a', 9)", ("int", -1), FAULT),
    "a backward search from beyond the end finds nothing": ("'abc'.lastIndexOf('a', 9)", ("int", -1), FAULT),
    "an empty text splits into an empty list (Go's Split)": ("''.split('')", ("list", []), ("list", [("string", "")])),
    "a substring may end at the end of its text (cel-go, substring)": ("'ab'.substring(1, 2)", ("string", "b"), FAULT),
    "blanks are not base64 (Go's StdEncoding)": ("base64.decode('aG k=')", FAULT, ("bytes", b"hi")),
    "%d writes a double without trailing zeros (cel-spec, strings)": (
        "'%d'.format([2.5])",
        ("string", "2.5"),
        ("string", "2.500000"),
    ),
    "a bool cannot be converted to a number (langdef, int)": ("int(true)", FAULT, ("int", 1)),
    "exists_one is also spelled existsOne, as in cel-go": ("[1].existsOne(i, i == 1)", ("bool", True), FAULT),
    "an empty list of numbers faults at its evaluation": ("math.least([])", FAULT, SYNTAX),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_a_known_difference_is_as_listed(difference: str) -> None:
    source, ours, theirs = DIFFERENCES[difference]
    assert (answer(source, {}), ask(source, {})) == (ours, theirs)


def test_a_comprehension_may_be_longer_than_the_oracle_allows() -> None:
    bindings = {"vars": {"l": [1.0] * 10_000}}
    assert answer("vars.l.all(i, i == 1.0)", bindings) == ("bool", True)
    assert ask("vars.l.all(i, i == 1.0)", bindings) == FAULT


def test_a_duration_is_limited_to_64_bits_of_nanoseconds() -> None:
    assert answer("duration('9223372036s') == duration('9223372036s')", {}) == ("bool", True)
    assert answer("duration('9223372037s')", {}) == FAULT
    assert ask("duration('9223372037s')", {})[0] == "duration"
