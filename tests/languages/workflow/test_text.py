"""YAML of version 1.2 and JSON are read with the place of each value and each problem."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.json_text import DEPTH_MAX, read_json
from callboard.languages.problems import TextPosition, Tree, format_location
from callboard.languages.source_text import read_document
from callboard.languages.yaml12 import NODES_MAX, read_yaml


def read_value(text: str) -> Any:
    tree = read_document(text)
    assert isinstance(tree, Tree), tree
    return tree.value


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "off", "Yes", "NO", "y", "n", "2026-11-20", "12:30:00", "0b11", "<<"]
)
def test_words_that_yaml_1_1_would_convert_are_strings(word: str) -> None:
    assert read_value(f"a: {word}") == {"a": word}
    assert read_value(f"{word}: a") == {word: "a"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("true", True), ("False", False), ("TRUE", True), ("null", None), ("~", None), ("", None), ("Null", None)],
        *[("12", 12), ("-3", -3), ("+4", 4), ("017", 17), ("0o17", 15), ("0x1F", 31), ("1_000", "1_000")],
        *[("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-1.", -1.0), ("1.5.2", "1.5.2"), ("1:30", "1:30")],
        *[("'12'", "12"), ('"true"', "true"), ("!!str 12", "12"), ("!!int 12", 12), ("18446744073709551616", 2.0**64)],
    ],
)
def test_a_scalar_is_read_by_the_core_schema(text: str, value: Any) -> None:
    found = read_value(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


def test_a_key_is_the_text_that_is_written() -> None:
    assert read_value("1: a\ntrue: b\n1.50: c\n") == {"1": "a", "true": "b", "1.50": "c"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: is it new?, b: [x?y, 'z?', http://h/?q=1]}", {"a": "is it new?", "b": ["x?y", "z?", "http://h/?q=1"]}),
        ("x: {a: b #c\n  , d: e#f}", {"x": {"a": "b", "d": "e#f"}}),
        ("x: [a b\n  c d, e]", {"x": ["a b c d", "e"]}),
        ("x: {a:, b: }", {"x": {"a": None, "b": None}}),
        ("x: [a, -b, - ]", None),
    ],
)
def test_unquoted_texts_in_brackets_are_read(text: str, value: Any) -> None:
    tree = read_yaml(text)
    assert (tree.value if isinstance(tree, Tree) else None) == value


def test_members_and_items_of_yaml_have_places() -> None:
    tree = read_document("a: 1\nb:\n  - x\n  - {c: 2, d: [3]}\n")
    assert isinstance(tree, Tree)
    assert tree.places["a",] == TextPosition(1, 1)
    assert tree.places["b", 1] == TextPosition(4, 5)
    assert tree.places["b", 1, "d"] == TextPosition(4, 12)
    assert tree.place(("b", 1, "missing", 5)) == TextPosition(4, 5)


def test_members_and_items_of_json_have_places() -> None:
    tree = read_document('{"a": 1,\n "b": ["x",\n  {"c": 2}]}')
    assert isinstance(tree, Tree)
    assert tree.places["a",] == TextPosition(1, 2)
    assert tree.places["b", 1] == TextPosition(3, 3)
    assert tree.places["b", 1, "c"] == TextPosition(3, 4)


def test_an_alias_has_the_value_of_its_anchor() -> None:
    assert read_value("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "duplicate key 'a', first on line 1"),
        ('{"a": 1,\n "a": 2}', 2, 2, "duplicate member 'a', first on line 1"),
        ('{"x": {"a": 1, "a": 2}}', 1, 16, "duplicate member 'a'"),
        ("a: [1\nb: 2\n", 2, 2, "expected"),
        ("a: b: c\n", 1, 5, "mapping values"),
        ("a: 1\n---\nb: 2\n", 2, 1, "another document"),
        ("a: &x\n  b: *x\n", 1, 4, "contains itself"),
        ("? [a]\n: b\n", 1, 3, "a key must be a single word"),
        ("a: !!binary aGk=\n", 1, 4, "means nothing here"),
        ("a: !mine {b: 1}\n", 1, 4, "means nothing here"),
        ("a: .inf\n", 1, 4, "not a number that JSON can hold"),
        ("a: 1e999\n", 1, 4, "not a number that JSON can hold"),
        ('a: "\\uD800"\n', 1, 4, "half of a surrogate pair"),
        ("a: \x07\n", 1, 4, "U+0007"),
        ('{"a": 1e999}', 1, 7, "too large a number"),
        ('{"a": NaN}', 1, 7, "NaN is not a JSON value"),
        ('{"a": "\\ud800"}', 1, 7, "half of a surrogate pair"),
        ('{"a" 1}', 1, 6, "no colon"),
        ("{a: 1}", 1, 2, "double quotes"),
        ('{"a": 1,}', 1, 9, "double quotes"),
        ('{"a": [1 2]}', 1, 10, "without comma"),
        ('{"a": [1', 1, 9, "without comma"),
        ('{"a": 1} x', 1, 10, "after the end"),
        ('{"a": }', 1, 7, "expecting value"),
        ('{"a": "x', 1, 7, "unterminated string"),
    ],
)
def test_an_invalid_text_is_refused_with_its_place(text: str, line: int, column: int, words: str) -> None:
    problems = read_document(text)
    assert isinstance(problems, list)
    assert [problem.code for problem in problems] == ["PARSE"]
    assert words in problems[0].message
    assert (problems[0].line, problems[0].column) == (line, column)


def test_every_duplicate_member_is_reported() -> None:
    problems = read_json('{"a": 1, "a": 2, "b": {"c": 1, "c": 2}}')
    assert isinstance(problems, list)
    assert [problem.where for problem in problems] == ["a", "b.c"]


def test_a_text_that_is_too_deep_or_too_large_is_refused() -> None:
    for text in ("[" * 5000, '{"a":' * 5000, "[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2)):
        assert isinstance(read_json(text), list)
        assert isinstance(read_yaml(text), list)
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    problems = read_yaml(bomb)
    assert isinstance(problems, list)
    assert f"more than {NODES_MAX}" in problems[0].message


def test_a_byte_order_mark_is_ignored() -> None:
    assert read_value('\ufeff{"a": 1}') == {"a": 1}
    assert read_value("\ufeffa: 1") == {"a": 1}


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=5))
def test_json_is_read_as_the_standard_library_reads_it(document: dict[str, Any]) -> None:
    for text in (json.dumps(document), json.dumps(document, indent=1, ensure_ascii=False)):
        tree = read_json(text)
        assert isinstance(tree, Tree)
        assert tree.value == document


def test_a_location_is_written_as_a_path() -> None:
    assert format_location(("nodes", "a", "rules", 0)) == "nodes.a.rules[0]"
    assert format_location(("nodes", "a b", "name")) == 'nodes["a b"].name'


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a: b: c\n", "quotes around a text with ': ' in it"),
        ("a:\n\tb: 1\n", "blanks, not tabs"),
        ("a: `b`\n", "quotes around a text that begins with this character"),
        ("a: 1\n- b\n", "begin in the same column"),
    ],
)
def test_common_mistakes_in_yaml_have_a_remedy(text: str, hint: str) -> None:
    found = read_document(text)
    assert isinstance(found, list)
    assert hint in (found[0].expected or "")
