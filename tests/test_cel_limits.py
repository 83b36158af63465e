"""What an expression may cost: work and size are bounded, and the usual ones are linear."""

import sys
from typing import Any

import pytest

from callboard.languages.cel.values import ITEMS_MAX, ITERATIONS_MAX, SIZE_MAX
from tests.cel_help import evaluate, fault, refusal


@pytest.mark.parametrize(
    "source",
    [
        "'a'" + ".replace('a', 'aaaaaaaaaa')" * 9,
        "[vars.text, vars.text].join()",
        "vars.text + vars.text",
        "bytes(vars.text) + bytes(vars.text)",
    ],
)
def test_no_value_grows_beyond_bounds(source: str) -> None:
    text = "x" * (SIZE_MAX // 2 + 1)
    assert f"{SIZE_MAX} is the most" in fault(source, {"vars": {"text": text}})


@pytest.mark.parametrize(
    "source",
    [
        f"lists.range({ITEMS_MAX + 1})",
        "vars.l + vars.l",
        "[vars.l, vars.l].flatten()",
        "lists.range(4611686018427387904)",
    ],
)
def test_no_list_grows_beyond_bounds(source: str) -> None:
    assert f"{ITEMS_MAX} are the most" in fault(source, {"vars": {"l": [None] * (ITEMS_MAX // 2 + 1)}})


def test_a_value_that_shares_its_parts_is_not_written_out_without_end() -> None:
    doubled = "[lists.range(1000)]" + ".map(x, [x, x])" * 30
    assert f"more than {ITEMS_MAX} items" in refusal(doubled)
    assert f"more than {ITEMS_MAX} items" in fault(f"toJson({doubled})")


@pytest.mark.parametrize("absorbing", ["&& false", "|| true", ""])
def test_nested_comprehensions_share_one_budget_and_nothing_absorbs_that_it_is_spent(absorbing: str) -> None:
    source = f"vars.l.exists(i, (vars.l.exists(j, true) && false) {absorbing} && false)"
    bindings = {"vars": {"l": [None] * 1_000_000}}
    assert f"more than {ITERATIONS_MAX} elements" in fault(source, bindings)


def test_the_budget_is_that_of_one_evaluation() -> None:
    bindings = {"vars": {"l": [None] * 1_000_000}}
    for _ in range(ITERATIONS_MAX // 1_000_000 + 1):
        assert evaluate("vars.l.exists(i, true)", bindings) is True


def _calls(source: str, bindings: dict[str, Any]) -> int:
    """Count the Python functions that an evaluation calls: its work, whatever the machine does meanwhile."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        evaluate(source, bindings)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "source",
    [
        "vars.l.map(i, i.v * 2.0)",
        "vars.l.filter(i, i.v > 3.0).map(i, {'v': i.v})",
        "vars.l.map(i, i.v).distinct()",
        "sets.contains(vars.l.map(i, i.v), vars.l.map(i, i.v))",
        "vars.l.sortBy(i, i.v).size()",
        "vars.l.map(i, string(i.v)).join(',').split(',').size()",
        "toJson(vars.l) == toJson(vars.l)",
        "vars.l == vars.l",
    ],
)
def test_work_grows_in_proportion_to_the_list(source: str) -> None:
    small, large = ({"vars": {"l": [{"v": n} for n in range(count)]}} for count in (500, 5_000))
    assert _calls(source, large) < 11 * _calls(source, small)
