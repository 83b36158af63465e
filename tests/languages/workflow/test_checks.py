"""Paths, comparisons, patterns and evaluators (checklist 54–59)."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.workflow.checks import OutputMatch, as_text, same, unmet_matches, unmet_required
from callboard.languages.workflow.evaluators import (
    REASONING_CHARS_MAX,
    FunctionEvaluator,
    Rule,
    ToolUsed,
    ValueEvaluator,
    evaluate_function,
    evaluate_value,
)
from callboard.languages.workflow.lookup import Unresolved, Values, resolve_path
from callboard.lib.javascript.parser import SOURCE_CHARS_MAX
from callboard.lib.javascript.regex import STEPS_MAX, InvalidRegex, Search, TooManySteps, check
from callboard.lib.step_limits import Steps

DATA: dict[str, Any] = {
    "url": "https://github.com/x/1",
    "none": None,
    "empty": [],
    "checks": [{"name": "a", "state": "ok"}, {"name": "b", "state": None}],
    "issue": {"meta": {"id": 7}},
    "matrix": [{"row": [1, 2]}, {"row": []}],
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("url", ["https://github.com/x/1"]),
        ("all:issue.meta.id", [7]),
        ("none", [None]),
        ("checks[*].name", ["a", "b"]),
        ("any:checks[*].state", ["ok", None]),
        ("matrix[*].row[*]", [1, 2]),
        ("empty[*].x.y", []),
    ],
)
def test_54_a_path_has_values(path: str, values: list[Any]) -> None:
    found = resolve_path(DATA, path, Steps(1_000))
    assert isinstance(found, Values)
    assert (found.values, found.mode) == (values, "any" if path.startswith("any:") else "all")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("prUrl", "missing segment 'prUrl'"),
        ("issue.gone.id", "missing segment 'gone'"),
        ("checks[*].gone", "missing segment 'gone'"),
        ("none.x", "null encountered before segment 'x'"),
        ("url.x", "expected object before segment 'x', got string"),
        ("checks.name", "expected object before segment 'name', got array"),
        ("issue[*].x", "expected array at 'issue', got object"),
        ("none[*]", "expected array at 'none', got null"),
        ("some:url", "unknown prefix 'some'"),
        ("a-b", "malformed segment 'a-b'"),
        ("checks[0]", "malformed segment 'checks[0]'"),
        ("a..b", "malformed segment ''"),
        ("", "malformed segment ''"),
        ("all:", "malformed segment ''"),
    ],
)
def test_54_a_path_without_a_value_has_a_reason(path: str, reason: str) -> None:
    assert resolve_path(DATA, path, Steps(1_000)) == Unresolved(reason)


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        *[("url", True), ("none", False), ("gone", False), ("empty", True)],
        *[("checks[*].name", True), ("checks[*].state", False), ("any:checks[*].state", True)],
        *[("empty[*]", True), ("any:empty[*]", False)],
    ],
)
def test_54_a_required_path_may_have_wildcards(path: str, holds: bool) -> None:
    assert (unmet_required(DATA, [path]) == []) is holds


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        ({"path": "url", "matches": r"^https://github\.com/"}, True),
        ({"path": "url", "matches": "GITHUB"}, False),
        ({"path": "issue", "equals": {"meta": {"id": 7.0}}}, True),
        ({"path": "issue", "equals": {"meta": {"id": True}}}, False),
        ({"path": "none", "equals": None}, True),
        ({"path": "url", "equals": None}, False),
        ({"path": "issue.meta.id", "in": [1, "7"]}, False),
        ({"path": "issue.meta.id", "in": [1, 7]}, True),
        ({"path": "issue.meta.id", "matches": "^7$"}, True),
        ({"path": "none", "matches": "null"}, True),
        ({"path": "issue", "matches": '{"meta":{"id":7}}'.replace("{", r"\{")}, True),
        ({"path": "checks[*].name", "in": ["a", "b"]}, True),
        ({"path": "checks[*].name", "equals": "a"}, False),
        ({"path": "any:checks[*].name", "equals": "b"}, True),
        ({"path": "any:checks[*].name", "equals": "c"}, False),
        ({"path": "empty[*]", "equals": 1}, True),
        ({"path": "any:empty[*]", "equals": 1}, False),
        ({"path": "gone", "equals": 1}, False),
        ({"path": "url", "matches": "("}, False),
        ({"path": "url", "matches": "(a*)*" * 3 + "$"}, True),
    ],
)
def test_55_a_match_compares_the_values_of_its_path(match: dict[str, Any], holds: bool) -> None:
    assert (unmet_matches(DATA, [OutputMatch.model_validate(match)]) == []) is holds


def test_the_message_of_a_failed_check_names_path_operator_and_value() -> None:
    matches = [
        {"path": "checks[*].name", "equals": "a"},
        {"path": "url", "in": ["x"]},
        {"path": "url", "matches": "^x"},
    ]
    assert unmet_matches(DATA, [OutputMatch.model_validate(match) for match in matches]) == [
        '\'checks[*].name\' equals "a", got ["b"]',
        '\'url\' in ["x"], got ["https://github.com/x/1"]',
        "'url' matches /^x/, got [\"https://github.com/x/1\"]",
    ]
    unmet = unmet_required(DATA, ["gone", "none"])
    assert unmet == ["'gone' missing segment 'gone'", "'none' resolved to a null value"]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        *[(1, 1.0, True), (1, True, False), (0, False, False), ("1", 1, False)],
        *[(None, None, True), (None, False, False), ([1], [1, 1], False), ([], {}, False)],
        ([1, [True]], [1.0, [True]], True),
        ({"a": 1}, {"a": 1, "b": None}, False),
    ],
)
def test_values_are_compared_deeply(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other, Steps(1_000)) is equal
    assert same(other, one, Steps(1_000)) is equal


def test_a_value_is_written_as_text() -> None:
    texts = [as_text(value) for value in ("x", 1.0, 1.5, True, None, [1, "a"])]
    assert texts == ["x", "1", "1.5", "true", "null", '[1,"a"]']


# -- patterns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^a$", "a\n", False),
        (".", "\n", False),
        (".", "\u2028", False),
        (r"^[^]$", "\n", True),
        ("[]", "a", False),
        (r"^\d+$", "١٢", False),
        (r"^\w+$", "é", False),
        (r"^\s$", "\ufeff", True),
        (r"\bfoo\b", "a foo b", True),
        (r"\Bfoo", "afoo", True),
        ("(?<year>[0-9]{4})-\\k<year>", "2020-2020", True),
        (r"(a)\1", "aa", True),
        (r"\1(a)", "a", True),
        (r"(?<=\$)\d+", "cost $42", True),
        (r"(?<!\$)\b\d+", "cost $42", False),
        (r"(?<=(\w)\1)!", "ab!", True),
        (r"(?<=\1(\w))!", "aa!", True),
        (r"(?<=\1(\w))!", "ab!", False),
        (r"^(?!.*--)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$", "a-b", True),
        (r"^(?!.*--)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$", "a--b", False),
        (r"^(?=(a+))\1b", "aab", True),
        ("a{2,3}?b", "aab", True),
        ("^a{2}$", "aaa", False),
        ("^(?:ab){2,}$", "ababab", True),
        ("x{,3}", "x{,3}", True),
        ("{", "{", True),
        ("]", "]", True),
        (r"[\w-]+$", "a-b", True),
        (r"^[a\-c]$", "b", False),
        (r"[\b]", "\b", True),
        (r"\u0041\x42\cJ\t\0\/", "AB\n\t\0/", True),
        (r"^(?:(a)|b)*\1$", "ab", True),
        ("^(?:a|ab)(?:c|bcd)(?:d*)$", "abcd", True),
        (r"^(z)((a+)?(b+)?(c))*$", "zaacbbbcac", True),
        ("", "", True),
        ("a||b", "", True),
        (r"^https?://[^/\s]+/pull/\d+$", "https://github.com/pull/12", True),
        (r"[😀-😂]", "😁", True),
    ],
)
def test_55_a_pattern_matches_as_in_javascript(pattern: str, text: str, found: bool) -> None:
    assert Search(pattern).found(text) is found


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a**", "*", "+a", "[b-a]", "(?a)", "a{3,1}", "a{9999}", "\\", "[a", "^*", "(?<n>a)\\k<m>", "(?<=a)*",
     "(" * 100 + ")" * 100, "((a{1000}){1000}){1000}", "a" * (SOURCE_CHARS_MAX + 1)],
)  # fmt: skip
def test_55_an_invalid_or_too_large_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegex):
        check(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"), [("(a+)+$", "a" * 40 + "b"), ("(a|aa)*$", "a" * 60 + "b"), ("a*a*a*a*a*b", "a" * 300)]
)
def test_a_pattern_that_takes_too_many_steps_fails(pattern: str, text: str) -> None:
    with pytest.raises(TooManySteps):
        Search(pattern).found(text)
    [fault] = unmet_matches({"x": text}, [OutputMatch.model_validate({"path": "x", "matches": pattern})])
    assert "takes more than" in fault


def test_the_step_limit_holds_for_all_values_of_a_check_together() -> None:
    values = ["a" * 200] * 30
    pattern = Search("a*b")
    with pytest.raises(TooManySteps):
        assert [pattern.found(text) for text in values]
    assert Search("a*b").found(values[0]) is False
    assert STEPS_MAX < 30 * 200 * 200


PATTERN_PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", "(?=a)", "(?!b)", "ab"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda body: f"({body})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "{1,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(PATTERN_PARTS, st.text("abc", max_size=8))
def test_plain_patterns_match_as_in_python(pattern: str, text: str) -> None:
    """The dialects agree on patterns without back references and on texts without line ends."""
    assert Search(pattern).found(text) is (re.search(pattern, text) is not None)


# -- evaluators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    [
        ("^..$", "😀", True),
        ("^.$", "😀", False),
        ("^😀$", "😀", True),
        ("^(😀)+$", "😀😀", True),
        ("^😀{2}$", "😀\ude00", True),
        (r"^\ud83d\ude00$", "😀", True),
        ("^[😀]{2}$", "😀", True),
        ("^[^a]{3}$", "é😀", True),
        ("^ä.$", "äß", True),
    ],
)
def test_a_pattern_matches_utf16_units(pattern: str, text: str, holds: bool) -> None:
    match = OutputMatch.model_validate({"path": "x", "matches": pattern})
    assert (unmet_matches({"x": text}, [match]) == []) is holds


def value_rule(**rule: Any) -> ValueEvaluator:
    return ValueEvaluator(name="v", kind="value", rule=Rule.model_validate(rule))


def function_rule(**rule: Any) -> FunctionEvaluator:
    return FunctionEvaluator(name="f", kind="function", rule=Rule.model_validate(rule))


def test_56_a_value_rule_needs_all_its_conditions_and_ignores_tools() -> None:
    passing = value_rule(
        output_required=["url"], output_matches=[{"path": "url", "matches": "^https"}], any_tool_called=["x"]
    )
    assert evaluate_value(passing, DATA).record() == {"name": "v", "kind": "value", "pass": True}
    failing = evaluate_value(value_rule(output_required=["gone"], output_matches=[{"path": "url", "equals": 1}]), DATA)
    assert not failing.passed
    assert "output_required 'gone'" in (failing.reasoning or "")
    assert "output_matches 'url' equals 1" in (failing.reasoning or "")
    assert evaluate_value(value_rule(any_tool_called=["x"]), DATA).passed


@pytest.mark.parametrize(
    ("rule", "passes"),
    [
        ({"any_tool_called": ["good", "x"]}, True),
        ({"any_tool_called": ["bad", "x"]}, False),
        ({"all_tools_called": ["good", "save"]}, True),
        ({"all_tools_called": ["good", "bad"]}, False),
        ({"no_tool_called": ["x"]}, True),
        ({"no_tool_called": ["bad"]}, False),
        ({"all_tools_called": ["good"], "no_tool_called": ["good"]}, False),
        ({"any_tool_called": ["store"]}, True),
        ({"no_tool_called": ["store"]}, False),
        ({"output_required": ["x"]}, True),
    ],
)
def test_59_a_function_rule_checks_the_called_tools(rule: dict[str, Any], passes: bool) -> None:
    """Only a successful call counts, but also a failed one violates ``no_tool_called``. Aliases are one tool."""
    used = [ToolUsed("good", True), ToolUsed("bad", False), ToolUsed("save", True)]
    same_tool = frozenset({"save", "store"})
    evaluation = evaluate_function(function_rule(**rule), used, {"save": same_tool, "store": same_tool})
    assert evaluation.passed is passes
    assert passes or "called: [good, bad (failed), save]" in (evaluation.reasoning or "")


def test_the_reasoning_of_an_evaluator_is_shortened() -> None:
    evaluation = evaluate_value(value_rule(output_required=[f"gone{i}" for i in range(100)]), DATA)
    assert len(evaluation.reasoning or "") == REASONING_CHARS_MAX
    assert "\n" not in evaluation.line()
