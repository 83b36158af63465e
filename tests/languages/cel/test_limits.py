"""The work and the values of an expression are bounded, and the work of usual expressions is linear."""

import json
import sys
from contextlib import suppress
from typing import Any

import pytest

from callboard.languages.cel import budget
from callboard.languages.cel.budget import STEPS_MAX, EvaluationBudget
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.program import compile
from callboard.languages.cel.values import ITEMS_MAX, SIZE_MAX
from tests.support.cel_help import CountingClock, evaluate, fault

TOO_MANY = f"the expression takes more than {STEPS_MAX} steps"


def steps(source: str, bindings: dict[str, Any]) -> int:
    """Return how many steps an evaluation takes, whether it ends with a value or with a fault."""
    spent = EvaluationBudget()
    with suppress(EvaluationError):
        compile(source).evaluate(bindings, CountingClock(), spent)
    return STEPS_MAX - spent.left


@pytest.mark.parametrize(
    "source",
    [
        "'a'" + ".replace('a', 'aaaaaaaaaa')" * 9,
        "[vars.text, vars.text].join()",
        "vars.text + vars.text",
        "bytes(vars.text) + bytes(vars.text)",
    ],
)
def test_the_size_of_values_is_bounded(source: str) -> None:
    text = "x" * (SIZE_MAX // 2 + 1)
    assert f"{SIZE_MAX} is the most" in fault(source, {"vars": {"text": text}})


@pytest.mark.parametrize(
    "source", [f"lists.range({ITEMS_MAX + 1})", "vars.l + vars.l", "lists.range(4611686018427387904)"]
)
def test_the_length_of_lists_is_bounded(source: str) -> None:
    assert f"{ITEMS_MAX} are the most" in fault(source, {"vars": {"l": [None] * (ITEMS_MAX // 2 + 1)}})


@pytest.mark.parametrize("absorbing", ["&& false", "|| true", ""])
def test_nested_comprehensions_share_a_budget_and_no_operator_absorbs_its_end(absorbing: str) -> None:
    source = f"vars.l.exists(i, (vars.l.exists(j, true) && false) {absorbing} && false)"
    assert fault(source, {"vars": {"l": [None] * 300_000}}) == TOO_MANY


def test_every_evaluation_has_its_own_budget() -> None:
    bindings = {"vars": {"l": [None] * (STEPS_MAX // 4)}}
    for _ in range(4):
        assert evaluate("vars.l.filter(i, true).size() > 3", bindings) is True


def test_expressions_can_share_a_budget() -> None:
    program, clock, shared = compile("vars.l.filter(i, true).size()"), CountingClock(), EvaluationBudget()
    bindings = {"vars": {"l": [None] * (STEPS_MAX // 4)}}
    assert program.evaluate(bindings, clock, shared) == STEPS_MAX // 4
    with pytest.raises(EvaluationError, match=TOO_MANY):
        program.evaluate(bindings, clock, shared)


# -- expensive expressions ---------------------------------------------------------------------------------------------

MANY = 90_000

HOSTILE: dict[str, Any] = {
    "numbers": [float(n) for n in range(MANY)],
    "texts": [str(n) for n in range(MANY)],
    "objects": [{"n": float(n)} for n in range(MANY)],
    "square": [[1.0] * 1_000] * 1_000,
    "long": "a" * 1_000_000,
    "places": "a" * 2_499,
    "place": "a" * 600 + "b" + "a" * 649,
    "ab": "ab" * 100_000,
    "ones": f"[{'1,' * 450_000}1]",
    "keyed": {"x" * 100_000: 1.0},
    "key": "x" * 100_000,
    "duration": "1h" * 450,
}

EXPENSIVE = [
    # Elements, nested or not.
    "vars.numbers.all(i, vars.numbers.all(j, i != j || true))",
    "vars.numbers.map(i, vars.numbers.map(j, i * j)).size()",
    "vars.numbers.all(i, lists.range(100000).size() > 0)",
    "vars.objects.exists(i, i.nope == 1.0)",
    "vars.objects.map(i, {'a': i.n, 'b': [i.n], 'c': 'x'})",
    "vars.numbers.map(i, wallTime()).size()",
    # Comparisons.
    "vars.square == vars.square",
    "vars.numbers.all(i, [i] in vars.numbers.map(j, [j]))",
    "vars.numbers.all(i, [i, 1.0, 2.0, 3.0] == [i, 1.0, 2.0, 3.0])",
    "vars.texts.all(i, vars.long == vars.long + '')",
    "vars.texts.all(i, vars.long + i >= vars.long + i)",
    "vars.texts.all(i, vars.keyed[vars.key] == 1.0)",
    "vars.texts.all(i, vars.key in vars.keyed)",
    # Lists.
    "vars.square.flatten().size()",
    "vars.numbers.all(i, vars.numbers.sort().size() > 0)",
    "vars.numbers.all(i, vars.numbers.reverse().size() > 0)",
    "vars.numbers.all(i, vars.numbers.slice(0, 9000).size() > 0)",
    "vars.numbers.all(i, (vars.numbers + vars.numbers).size() > 0)",
    "vars.numbers.all(i, vars.texts.join().size() > 0)",
    "vars.numbers.all(i, math.greatest(vars.numbers) > 0.0)",
    "[lists.range(1000)]" + ".map(x, [x, x])" * 12,
    "toJson([lists.range(1000)]" + ".map(x, [x, x])" * 12 + ")",
    # Texts.
    "vars.texts.map(i, vars.long + i).size()",
    "vars.numbers.all(i, !vars.places.contains(vars.place))",
    "vars.numbers.all(i, vars.places.lastIndexOf(vars.place) < 0)",
    "vars.numbers.all(i, vars.long.indexOf('b') < 0)",
    "vars.numbers.all(i, vars.long.split('a').size() > 0)",
    "vars.numbers.all(i, vars.long.replace('a', 'b').size() > 0)",
    "vars.numbers.all(i, vars.long.lowerAscii().size() > 0)",
    "vars.numbers.all(i, vars.long.endsWith(vars.long))",
    "vars.numbers.all(i, strings.quote(vars.long).size() > 0)",
    "vars.numbers.all(i, bytes(vars.long).size() > 0)",
    "vars.numbers.all(i, base64.encode(b'x').size() > 0 && base64.decode(vars.long).size() > 0)",
    "vars.numbers.map(i, '%s %d %f'.format(['a', i, i])).size()",
    "'%s'.format([vars.objects]).size()",
    "toJson(vars.objects).size()",
    "[vars.ones, vars.ones, vars.ones].map(i, fromJson(i).size())",
    "vars.texts.all(i, duration(vars.duration) > duration('1s'))",
    "vars.texts.map(i, timestamp('2024-01-01T00:00:00Z')).size()",
    # Patterns and places.
    "vars.ab.matches('.*a.{999}b')",
    "vars.texts.exists(i, 'x'.matches(i + '{100}'))",
    "vars.texts.exists(i, now().getHours(i) > 1)",
]


@pytest.mark.parametrize("source", EXPENSIVE)
def test_an_expensive_expression_is_given_up(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "STEPS_MAX", STEPS_MAX // 4)
    assert fault(source, {"vars": HOSTILE}) == f"the expression takes more than {STEPS_MAX // 4} steps"


QUADRATIC = {
    # Python's search, or a regular expression of an earlier version, took quadratic time for each of these.
    "double": ("double(vars.text)", "1" * 500_000 + "x"),
    "base64": ("base64.decode(vars.text)", "\n" * 500_000 + "*"),
    "lastIndexOf": ("vars.text.lastIndexOf('b' + vars.text.substring(200000))", "a" * 500_000),
    "a key that is not there": ("{'a': 1}[vars.text]", "a" * 500_000),
}


@pytest.mark.parametrize("name", QUADRATIC)
def test_work_on_a_long_text_is_linear(name: str) -> None:
    """In quadratic time these would take minutes."""
    source, text = QUADRATIC[name]
    assert steps(source, {"vars": {"text": text}}) < len(text)


# -- by hash -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "vars.lists.distinct().size()",
        "vars.maps.distinct().size()",
        "vars.lists.all(i, i in vars.lists)",
        "vars.maps.all(i, i in vars.maps)",
        "sets.equivalent(vars.lists, vars.lists)",
        "sets.contains(vars.maps, vars.maps)",
        "sets.intersects(vars.lists.map(i, [i]), vars.lists)",
        # Numbers whose hashes are equal in Python, and so those of tuples of them.
        "vars.colliding.distinct().size()",
    ],
)
def test_lists_and_maps_are_found_by_hash(source: str) -> None:
    def bindings(count: int) -> dict[str, Any]:
        colliding = [[-1.0 if n >> bit & 1 else -2.0 for bit in range(14)] for n in range(count)]
        lists, maps = [[float(n)] for n in range(count)], [{"n": [n]} for n in range(count)]
        return {"vars": {"lists": lists, "maps": maps, "colliding": colliding}}

    assert steps(source, bindings(2_000)) < 11 * steps(source, bindings(200))
    assert _count_calls(source, bindings(2_000)) < 11 * _count_calls(source, bindings(200))


# -- linear ------------------------------------------------------------------------------------------------------------


def _count_calls(source: str, bindings: dict[str, Any]) -> int:
    """Count the function calls of an evaluation, which do not depend on the load of the machine."""
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


LINEAR = [
    "vars.l.map(i, i.v * 2.0)",
    "vars.l.filter(i, i.v > 3.0).map(i, {'v': i.v})",
    "vars.l.map(i, i.v).distinct()",
    "sets.contains(vars.l.map(i, i.v), vars.l.map(i, i.v))",
    "vars.l.sortBy(i, i.v).size()",
    "vars.l.map(i, string(i.v)).join(',').split(',').size()",
    "toJson(vars.l) == toJson(vars.l)",
    "vars.l == vars.l",
    "vars.l.all(i, i in vars.l)",
]


@pytest.mark.parametrize("source", LINEAR)
def test_work_on_a_list_is_linear(source: str) -> None:
    small, large = ({"vars": {"l": [{"v": n} for n in range(count)]}} for count in (200, 2_000))
    assert _count_calls(source, large) < 11 * _count_calls(source, small)


@pytest.mark.parametrize("source", LINEAR)
def test_a_list_of_ten_thousand_is_within_the_budget(source: str) -> None:
    items = json.loads(json.dumps([{"v": n, "name": f"item {n}"} for n in range(10_000)]))
    assert steps(source, {"vars": {"l": items}}) < STEPS_MAX
