"""The syntax of expressions: literals, precedence, errors with their places, and the limits of size."""

import inspect
import sys

import pytest

from callboard.languages.cel.errors import CelSyntaxError
from callboard.languages.cel.lexer import SOURCE_MAX
from callboard.languages.cel.parser import DEPTH_MAX
from callboard.languages.cel.program import compile
from tests.support.cel_help import evaluate, fault


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("0x1F", 31),
        ("-0x1f", -31),
        (".5 + 5e-1", 1),
        ("1e3", 1000),
        ("7u", 7),
        ("0xFu", 15),
        (r"'\a\b\f\n\r\t\v\\\'\"\?\`'", "\a\b\f\n\r\t\v\\'\"?`"),
        (r"'\x41\X42\101\u00e9\U0001F600'", "ABAé😀"),
        (r"r'\n' + R'\x'", "\\n\\x"),
        ('"""a "b"\nc"""', 'a "b"\nc'),
        ("'''it's'''", "it's"),
        ("''''''", ""),
        (r"string(b'\xc3\xa9\303\251é')", "ééé"),
        (r"string(bR'\x')", "\\x"),
        ("[1, 2,].size()", 2),
        ("{'a': 1,}.a", 1),
        ("{'content-type': 'x'}.`content-type`", "x"),
        ("1 // a comment\n + 1", 2),
        ("  \t\r\n\f 1", 1),
        ("{'in': 1, 'if': 2}.if", 2),
    ],
)
def test_literals_have_their_values(source: str, value: object) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("100 / 5 / 2", 10),
        ("7 % 4 * 2", 6),
        ("-2 + 3", 1),
        ("!true || true", True),
        ("true || false && false", True),
        ("1 + 1 == 2 && 2 in [2]", True),
        ("1 < 2 == true", True),
        ("false ? 1 : true ? 2 : 3", 2),
        ("true || false ? 'a' : 'b'", "a"),
        ("-[1, 2][1]", -2),
        ("- - 1", 1),
        ("!!true", True),
        ("-{'a': 3}.a", -3),
        ("1 - -1", 2),
        ("[1, 2, 3].filter(i, i > 1).map(i, i * i)[0]", 4),
    ],
)
def test_operators_have_their_precedence(source: str, value: object) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    ("source", "line", "column", "said"),
    [
        ("", 1, 1, "empty"),
        ("  // nothing", 1, 13, "empty"),
        ("1 +", 1, 4, "the expression ends where a value should be"),
        ("vars.x = 1", 1, 8, "'=='"),
        ("a & b", 1, 3, "'&&'"),
        ("'abc", 1, 1, "not closed"),
        ("vars.x\n  + )", 2, 5, "found ')'"),
        ("a b", 1, 3, "found 'b' where an operator or the end should be"),
        ("[1, 2", 1, 6, "','"),
        ("f(1, 2", 1, 7, "')'"),
        ("{'a' 1}", 1, 6, "':'"),
        ("a.1", 1, 2, "found '.1'"),
        ("a.'b'", 1, 3, "a member's name"),
        ("a.in", 1, 3, "a member's name"),
        ("for", 1, 1, "reserved"),
        ("true ? 1", 1, 9, "':'"),
        ("'\\d'", 1, 1, "'\\d' is no escape"),
        ("'\\ud800'", 1, 1, "no character"),
        ("b'\\u00e9'", 1, 1, "octets"),
        ("9223372036854775808", 1, 1, "64 bits"),
        ("18446744073709551616u", 1, 1, "64 bits"),
        ("1" + "0" * 40, 1, 1, "64 bits"),
        ("1e400", 1, 1, "beyond the doubles"),
        ("has(vars)", 1, 5, "has(vars.name)"),
        ("[1].map(a.b, 1)", 1, 11, "simple name"),
        ("[1].all(.a, 1)", 1, 10, "simple name"),
        ("math.greatest()", 1, 6, "at least one"),
        ("Point{x: 1}", 1, 6, "no protocol buffer messages"),
        ("a.Point{x: 1}", 1, 8, "no protocol buffer messages"),
        ("é", 1, 1, "does not belong here"),
        ("'é' + ~", 1, 7, "does not belong here"),
        ("'\ud800'", 1, 2, "surrogate"),
    ],
)
def test_a_syntax_error_has_its_place(source: str, line: int, column: int, said: str) -> None:
    with pytest.raises(CelSyntaxError) as raised:
        compile(source)
    assert said in raised.value.message
    assert (raised.value.line, raised.value.column) == (line, column)
    assert str(raised.value).endswith(f"(line {line}, column {column})")


def test_the_roots_of_an_expression_are_its_free_names() -> None:
    program = compile(
        "vars.a + step.b[i] + [1].map(j, j + k) + size(int(x)) + [1].map(v, .v) + google.protobuf.Timestamp"
    )
    assert program.roots == {"vars", "step", "i", "k", "x", "v"}
    assert compile("math.abs(1) + lists.range(2)[0] + base64.encode(b'')").roots == frozenset()


def test_unknown_functions_are_listed_and_fault_when_called() -> None:
    program = compile("true || shout('a') || 'a'.whisper() || math.tan(1.0)")
    assert program.unknown_functions == {"shout", "whisper", "math.tan"}
    assert evaluate("true || shout('a')") is True
    assert fault("shout('a', 1)") == "no such call: shout(a string, an int)"
    assert compile("now() + duration('1s') > wallTime()").unknown_functions == frozenset()


@pytest.mark.parametrize(
    ("before", "after"), [("(", ")"), ("[", "]"), ("-(", ")"), ("size([", "])"), ("[0].map(i, ", ")"), ("1 + (", ")")]
)
def test_nesting_beyond_the_bound_is_refused(before: str, after: str) -> None:
    with pytest.raises(CelSyntaxError, match=f"nested more than {DEPTH_MAX} deep"):
        compile(before * 5_000 + "1" + after * 5_000)


def test_nesting_within_the_bound_is_evaluated() -> None:
    assert evaluate("[" * 90 + "]" * 90 + " != []") is True
    assert evaluate("false ? 0 : " * 90 + "1") == 1
    assert evaluate("(" * 95 + "1" + ")" * 95) == 1
    nested = "1"
    for _ in range(15):
        nested = f"(true || false && 1 == 1 + 1 * {nested} ? 1 : 2)"
    assert evaluate(nested) == 1


@pytest.mark.parametrize("left", range(20, 400, 20))
def test_no_recursion_error_escapes_from_a_deep_stack(left: int) -> None:
    lists = "[" * 90 + "]" * 90
    outcome = _at_depth(sys.getrecursionlimit() - left - len(inspect.stack(0)), f"{lists} == {lists}")
    assert outcome in ("True", "CelSyntaxError", "EvaluationError")


def _at_depth(levels: int, source: str) -> str:
    if levels > 0:
        return _at_depth(levels - 1, source)
    try:
        return str(evaluate(source))
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("symbol", ["+", "-", "*", "&&", "||"])
def test_a_chain_of_one_operator_may_be_long(symbol: str) -> None:
    operand = "true" if symbol in ("&&", "||") else "1"
    expected = {"+": 5_000, "-": -4_998, "*": 1, "&&": True, "||": True}[symbol]
    assert evaluate(f" {symbol} ".join([operand] * 5_000)) == expected


def test_an_expression_that_is_too_long_is_refused() -> None:
    with pytest.raises(CelSyntaxError, match=f"at most {SOURCE_MAX} characters"):
        compile("1" + " " * SOURCE_MAX)
