"""Expressions and templates of graphs: the language, its limits, and that expressions cannot reach Python objects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.graph.expression_syntax import CHARS_MAX, DEPTH_MAX, ExpressionInvalid, parse
from callboard.languages.graph.expressions import ExpressionNames, evaluate, holds
from callboard.languages.graph.templates import PLACEHOLDER, is_placeholder, render

SCOPE = ExpressionNames(
    data={"body": {"n": 2, "Name": "Ann", "tags": ["a", "b"], "none": None, "content-type": "x"}, "flag": False},
    inputs={"result": {"body": {"n": 2}}},
    config={"limit": "3"},
    trigger={"type": "WEBHOOK", "data": {"q": 1}},
    nodes={"fetch": {"result": {"items": [{"p": 1}, {"p": 2}]}}},
    variables={"v": [1, [2]]},
    local={"item": {"price": 5}, "iteration": 4},
    now_ms=1_700,
)


def compute(text: str, scope: ExpressionNames = SCOPE) -> Any:
    return evaluate(parse(text), scope)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # roots and paths
        ("$json.body.n", 2),
        ("input.body.n", 2),
        ("$input.result.body.n", 2),
        ("$config.limit", "3"),
        ("$trigger.type", "WEBHOOK"),
        ("$trigger.data.q", 1),
        ('$node["fetch"].result.items[1].p', 2),
        ("$node.fetch.result.items.0.p", 1),
        ("$node['fetch'].result.items[-1].p", 2),
        ("$node['fetch'].result.items[*].p", [1, 2]),
        ("$json.body.tags[iteration]", None),
        ("$json.body.tags[sub(iteration, 3)]", "b"),
        ("item.price", 5),
        ("iteration", 4),
        ("data.body.n", 2),
        ("body.n", 2),
        ("$variables.v[1][0]", 2),
        ("variables.v[0]", 1),
        ("$json.BODY.NAME", "Ann"),
        ("$json.body.name", "Ann"),
        ("$json.body.content-type", "x"),
        ('$json["body"]["content-type"]', "x"),
        ("$json.gone.gone[3].gone", None),
        ("gone", None),
        ("fetch.result.items[0].p", 1),
        # literals and comparisons
        ("'a\\'b'", "a'b"),
        ('"\\n"', "\n"),
        ("-1.5e1", -15.0),
        ("true", True),
        ("null", None),
        ("1 == 1.0", True),
        ("1 === true", False),
        ("'1' == 1", False),
        ("$json.body.tags == $json.body.tags", True),
        ("$json.body.n != 3", True),
        ("2 >= 2", True),
        ("'b' > 'a'", True),
        ("'10' > 9", True),
        ("null < 1", False),
        ("null >= null", False),
        ("$json.body > 1", False),
        # logic
        ("true || false && false", True),
        ("(true || false) && false", False),
        ("!false", True),
        ("!!$json.body.n", True),
        ("!($json.body.n > 1 && (false || !true))", True),
        ("!$json.flag && $json.body.n", True),
        # functions
        ("not(1)", False),
        ("and(1, 'x')", True),
        ("or(0, '')", False),
        ("now()", 1_700),
        ("len('abc')", 3),
        ("len($json.body.tags)", 2),
        ("len(null)", 0),
        ("contains('abc', 'b')", True),
        ("contains($json.body.tags, 'b')", True),
        ("contains($json.body, 'n')", True),
        ("startswith('abc', 'ab')", True),
        ("endsWith('abc', 'bc')", True),
        ("lower('ÄB')", "äb"),
        ("upper(null)", ""),
        ("toNumber('4.5')", 4.5),
        ("tonumber('x')", None),
        ("if(false, 1, 2)", 2),
        ("clamp(9, 1, 5)", 5),
        ("add(1, '2', 3.5)", 6.5),
        ("add(1, null)", None),
        ("sub(3, 1)", 2),
        ("mul(2, 3)", 6),
        ("div(1, 4)", 0.25),
        ("div(1, 0)", None),
        ("mod(7, 4)", 3),
        ("regex('Order 12', '^order \\\\d+$', true)", True),
        ("regex('Order 12', '^order')", False),
        ("coalesce(null, $json.gone, 7)", 7),
        # braces group
        ("{{ $json.body.n }} > 1", True),
    ],
)
def test_the_value_of_an_expression(text: str, expected: Any) -> None:
    found = compute(text)
    assert found == expected
    assert isinstance(found, bool) == isinstance(expected, bool)


def test_an_empty_condition_does_not_hold() -> None:
    assert not holds("", SCOPE)
    assert not holds("  ", SCOPE)
    assert holds("$json.body.n", SCOPE)


def test_data_is_the_member_of_that_name_if_there_is_one() -> None:
    assert compute("data.x", ExpressionNames(data={"data": {"x": 1}})) == 1
    assert compute("data.x", ExpressionNames(data={"x": 2})) == 2
    assert compute("data[0]", ExpressionNames(data=[3])) == 3


@pytest.mark.parametrize(
    "text",
    [
        "$json.",
        "$json.n >",
        "a = 1",
        "1 + 1",
        "foo(1)",
        "$nothing",
        "len()",
        "len(1, 2)",
        "(1",
        "1)",
        "'open",
        "a b",
        "[1]",
        "a[",
        "{{ 1",
        "'it''s'",
        "1 < 2 == true",
        "__import__('os').system('x')",
        "().__class__",
        "a.b()",
        "",
    ],
)
def test_a_text_that_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(ExpressionInvalid):
        parse(text)


def test_expressions_do_not_reach_python_objects() -> None:
    for text in ("$json.__class__", "item.__class__.__mro__", "$json.body.keys", "len.__globals__", "$json.items"):
        assert compute(text) is None


def test_expressions_are_bounded() -> None:
    with pytest.raises(ExpressionInvalid, match="nested"):
        parse("(" * (DEPTH_MAX + 1) + "1" + ")" * (DEPTH_MAX + 1))
    with pytest.raises(ExpressionInvalid, match="characters"):
        parse("1" * (CHARS_MAX + 1))
    assert compute("!" * 9_999 + "1") is False
    assert compute("mul(" * 20 + "99999999999" + ", 99999999999)" * 20) is not None
    with pytest.raises(ExpressionInvalid, match="items"):
        compute("$json[*][*]", ExpressionNames(data=[list(range(1000))] * 101))
    with pytest.raises(ExpressionInvalid, match="pattern"):
        compute("regex('a', '(')")


@given(st.text(alphabet="$json.body[]()!&|<>='\"abc012,{} ", max_size=40))
def test_any_text_has_a_value_or_is_refused(text: str) -> None:
    try:
        found = compute(text)
    except ExpressionInvalid:
        return
    assert found is None or isinstance(found, bool | int | float | str | list | dict)


# -- templates ---------------------------------------------------------------------------------------------------------


def test_templates_are_rendered_at_any_depth() -> None:
    written = {
        "a": ["{{ body.n }} of {{$json.body.tags}}", {"{{x}}": "{{ gone }}|{{ flag }}|{{ $config.limit }}"}],
        "b": 5,
    }
    assert render(written, SCOPE) == {"a": ['2 of ["a","b"]', {"{{x}}": "|false|3"}], "b": 5}


def test_a_template_that_does_not_parse_stays_as_it_is() -> None:
    for text in ("{{ not closed", "{{ 1 + }}", "{{}}", PLACEHOLDER, "{ {body.n} }"):
        assert render(text, SCOPE) == text


def test_a_template_renders_as_text() -> None:
    assert render("{{ body.n }}", SCOPE) == "2"
    assert render("{{ null }}", SCOPE) == ""


def test_empty_values_count_as_placeholders() -> None:
    assert [is_placeholder(value) for value in (PLACEHOLDER, None, "", "x")] == [True, True, True, False]
