"""Our CEL beside the CEL team's C++ engine: the same values, the same faults, but for the differences named here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import cel_sources as sources
from tests.support.cel_oracle import FAULT, SYNTAX, Answer, answer, ask


def agree(source: str, bindings: dict[str, Any]) -> None:
    ours, theirs = answer(source, bindings), ask(source, bindings)
    # A map has no order: what is made of its keys comes in any, in the oracle even in another one each time.
    assert ours == theirs or ("{" in source and unordered(ours) == unordered(theirs)), source


def unordered(value: Any) -> Any:
    """The same with the parts of everything in it sorted."""
    return sorted((unordered(part) for part in value), key=repr) if isinstance(value, list | tuple) else value


@given(source=sources.EXPRESSIONS, bindings=sources.BINDINGS)
def test_any_expression_has_the_value_or_the_fault_that_the_oracle_gives_it(
    source: str, bindings: dict[str, Any]
) -> None:
    agree(source, bindings)


@given(source=sources.ARITHMETIC)
def test_numbers_of_all_kinds_compute_alike(source: str) -> None:
    agree(source, {})


@given(source=sources.INTEGERS)
def test_whole_numbers_overflow_alike(source: str) -> None:
    agree(source, {})


@given(source=sources.STRINGS)
def test_functions_of_texts_agree(source: str) -> None:
    agree(source, {})


@given(source=sources.MATH)
def test_functions_of_numbers_agree(source: str) -> None:
    agree(source, {})


@given(source=sources.TIMES)
def test_instants_and_lengths_of_time_agree(source: str) -> None:
    agree(source, {})


@given(
    tokens=st.lists(
        st.sampled_from((*"()[]{}.,:?!-+*<&|'\"\\", "a", "1", "1.5", "in", "r'", "&&", "==", "has", "map", "u"))
    )
)
def test_the_same_texts_are_no_expressions(tokens: list[str]) -> None:
    source = " ".join(tokens)
    assert (answer(source, {}) == SYNTAX) == (ask(source, {}) == SYNTAX)


DIFFERENCES: dict[str, tuple[str, Answer, Answer]] = {
    "a map has no key twice, whatever kind of number (langdef, aggregate values)": (
        "size({1: 2, 1u: 3})",
        FAULT,
        ("int", 2),
    ),
    "a conversion out of range is an error (langdef, overflow)": ("double('1e400')", FAULT, ("double", "inf")),
    "so is a literal": ("1e400", SYNTAX, ("double", "inf")),
    "a number is converted from its digits alone": ("int(' 1')", FAULT, ("int", 1)),
    "numbers of all kinds lie on one line, exactly (langdef, numbers)": (
        "9007199254740993 == 9007199254740992.0",
        ("bool", False),
        ("bool", True),
    ),
    "also where they are ordered": ("9223372036854775807 < 9223372036854775808.0", ("bool", True), ("bool", False)),
    "infinity is written as cel-go does": ("string(1.0 / 0.0)", ("string", "+Inf"), ("string", "inf")),
    "a fraction of a second has no needless zeros": (
        "string(duration('1.5s'))",
        ("string", "1.5s"),
        ("string", "1.500s"),
    ),
    "nor has that of an instant": (
        "string(timestamp('2020-01-01T00:00:00.5Z'))",
        ("string", "2020-01-01T00:00:00.5Z"),
        ("string", "2020-01-01T00:00:00.500Z"),
    ),
    "a search from behind the end finds nothing (cel-go, indexOf)": ("'abc'.indexOf('a', 9)", ("int", -1), FAULT),
    "likewise backwards": ("'abc'.lastIndexOf('a', 9)", ("int", -1), FAULT),
    "nothing, split everywhere, is nothing (Go's Split)": ("''.split('')", ("list", []), ("list", [("string", "")])),
    "a substring may end where its text does (cel-go, substring)": ("'ab'.substring(1, 2)", ("string", "b"), FAULT),
    "blanks are no base64 (Go's StdEncoding)": ("base64.decode('aG k=')", FAULT, ("bytes", b"hi")),
    "%d writes a double with no needless zeros (cel-spec, strings)": (
        "'%d'.format([2.5])",
        ("string", "2.5"),
        ("string", "2.500000"),
    ),
    "a bool is no number, nor becomes one (langdef, int)": ("int(true)", FAULT, ("int", 1)),
    "exists_one is also spelled existsOne, as in cel-go": ("[1].existsOne(i, i == 1)", ("bool", True), FAULT),
    "an empty list of numbers is found out when it is evaluated": ("math.least([])", FAULT, SYNTAX),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_where_the_two_differ_it_is_meant(difference: str) -> None:
    source, ours, theirs = DIFFERENCES[difference]
    assert (answer(source, {}), ask(source, {})) == (ours, theirs)


def test_a_comprehension_may_be_longer_than_the_oracle_allows() -> None:
    bindings = {"vars": {"l": [1.0] * 10_000}}
    assert answer("vars.l.all(i, i == 1.0)", bindings) == ("bool", True)
    assert ask("vars.l.all(i, i == 1.0)", bindings) == FAULT


def test_a_duration_is_as_long_as_64_bits_of_nanoseconds() -> None:
    assert answer("duration('9223372036s') == duration('9223372036s')", {}) == ("bool", True)
    assert answer("duration('9223372037s')", {}) == FAULT
    assert ask("duration('9223372037s')", {})[0] == "duration"
