"""A search by hash finds a value exactly if a comparison with each value does."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.comparison import Members, contains, equal, key_of
from callboard.languages.cel.members import BoolKey
from callboard.languages.cel.values import TYPE_VALUES, CelList, CelMap, Duration, Timestamp, UInt
from tests.support.cel_help import evaluate

NUMBERS = [0, 1, -1, -2, 2**53, 2**53 + 1, 2**62]
ATOMS: list[Any] = [
    *NUMBERS,
    *(UInt(number) for number in NUMBERS if number >= 0),
    *(float(number) for number in NUMBERS),
    *(-0.0, 0.5, math.inf, -math.inf, math.nan),
    *(None, True, False, "", "1", "n1;", "s1:a", b"", b"1", "é", "\ud800"),
    *(Timestamp(1), Timestamp(2), Duration(1), TYPE_VALUES["int"], TYPE_VALUES["uint"]),
]
KEYS = [1, UInt(1), "1", "a", BoolKey.TRUE, BoolKey.FALSE]
"""Few, so that many values are equal."""


def _containers(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists, texts = st.lists(inside, max_size=3), st.sampled_from(["1", "a", ""])
    return st.one_of(
        lists,
        lists.map(CelList),
        st.dictionaries(texts, inside, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), inside, max_size=3).map(CelMap),
    )


VALUES = st.recursive(st.sampled_from(ATOMS), _containers, max_leaves=6)


@given(VALUES, VALUES)
def test_two_values_have_the_same_key_exactly_if_they_are_equal(left: Any, right: Any) -> None:
    budget = EvaluationBudget()
    key = key_of(left, budget)
    assert (key is not None and key == key_of(right, budget)) == equal(left, right, budget)


@given(st.lists(VALUES, max_size=8), VALUES)
def test_searches_by_hash_and_one_by_one_find_the_same(items: list[Any], value: Any) -> None:
    budget = EvaluationBudget()
    one_by_one = any(equal(item, value, budget) for item in CelList(items))
    assert (value in Members(budget, CelList(items))) == one_by_one
    assert contains(CelList(items), value, budget) == one_by_one
    # A list that is long enough to be hashed.
    assert contains(CelList([*items, *["filler"] * 20]), value, budget) == one_by_one


def test_numbers_of_all_kinds_are_equal_and_nan_is_not() -> None:
    many = "lists.range(30).map(i, [i])"
    assert evaluate(f"[1.0] in {many} && [1u] in {many} && [1] in {many}") is True
    assert evaluate(f"[true] in {many} || ['1'] in {many} || [30] in {many}") is False
    assert evaluate("[[1], [1.0], [1u], [true], [0.0 / 0.0], [0.0 / 0.0]].distinct().size()") == 4
    assert evaluate("[{'a': 1, 'b': [2]}, {'b': [2.0], 'a': 1u}].distinct().size()") == 1
    assert evaluate("sets.equivalent([[1], [2]], [[2u], [1.0], [1]])") is True


def test_numbers_of_data_are_compared_as_doubles() -> None:
    odd = {"vars": {"odd": [[2**53 + 1]]}}
    assert evaluate("[9007199254740992.0] in vars.odd && !([9007199254740993] in vars.odd)", odd) is True
    assert evaluate("(vars.odd + [[9007199254740992.0]]).distinct().size()", odd) == 1
