"""Random CEL expressions as text, and random data to bind: for comparing our engine with another.

Kinds are mixed at will, so about half of the expressions fault, and operators that absorb faults are tested too. Known
differences of the two engines are left out (`tests/languages/cel/test_oracle.py`): whole numbers
beyond 2^53 next to doubles, fractions of a second as text.
"""

from typing import Any

from hypothesis import strategies as st

Sources = st.SearchStrategy[str]

_INTS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "-8",
    "0x1F",
    "9223372036854775807",
    "-9223372036854775808",
    "4611686018427387904",
)
_UINTS = ("0u", "1u", "2u", "3u", "18446744073709551615u", "0x10u")
_DOUBLES = ("0.0", "-0.0", "1.0", "2.0", "-1.5", "0.1", "3.0", "1e308", "2.5e-3", "1.0/0.0", "0.0/0.0", ".5")
_SMALL_INTS = ("0", "1", "2", "3", "-1", "7")
_SMALL_UINTS = ("0u", "1u", "2u", "3u")
_TEXTS = (
    "''",
    "'a'",
    '"b"',
    "'abc'",
    "'é😀'",
    r"'\n\x41\u00e9'",
    r"r'\d'",
    "'''a'b'''",
    "'1'",
    "'true'",
    "'1.5'",
    "'10s'",
)
_BYTES = ("b''", "b'a'", r"b'\xff\377'", "b'é'")
_OTHERS = ("true", "false", "null", "int", "string", "type(1)", "[]", "{}", "duration('90s')", "timestamp(0)")
_DATA = (
    "vars",
    "vars.n",
    "vars.s",
    "vars.l",
    "vars.m",
    "vars.b",
    "vars.none",
    "vars.l[0]",
    "vars.m.k",
    "x",
    "step.input",
)

LEAVES = st.sampled_from(_INTS + _UINTS + _DOUBLES + _TEXTS + _BYTES + _OTHERS + _DATA)
NUMBERS = st.sampled_from(_SMALL_INTS + _SMALL_UINTS + _DOUBLES)
BIG_INTEGERS = st.sampled_from(_INTS + _UINTS)
_VARIABLES = st.sampled_from(("i", "j", "vars", "x"))
_CONDITIONS = st.sampled_from(("true", "false", "vars.b", "1/0 > 0", "x", "vars.none", "vars.n > 1.0", "has(vars.s)"))


def _chain(operators: tuple[str, ...], operands: Sources) -> Sources:
    """Operands with operators between and no parentheses: the parser must apply the precedence."""
    pairs = st.lists(st.tuples(st.sampled_from(operators), operands), min_size=1, max_size=4)
    return st.builds(
        lambda first, rest: " ".join((first, *(f"{symbol} {operand}" for symbol, operand in rest))), operands, pairs
    )


_ARITHMETIC = ("+", "-", "*", "/", "%")
_RELATIONS = ("<", "<=", ">", ">=", "==", "!=", "in")
_ALL = (*_ARITHMETIC, *_RELATIONS, "&&", "||")

_CALLS = (
    "size({0})",
    "{0}.size()",
    "string({0})",
    "type({0}) == bool ? 0 : int({0})",
    "uint({0})",
    "double({0})",
    "bool({0})",
    "bytes({0})",
    "dyn({0})",
    "type({0}) == type({1})",
    "has({0}.k)",
    "{0}.k",
    "{0}[{1}]",
    "{0}.contains({1})",
    "!{0}",
    "-{0}",
    "{0}.startsWith({1})",
    "{0}.endsWith({1})",
    "{0}.matches('[a-c]+')",
    "matches({0}, {1})",
    "--{0}",
    "!!{0}",
    "{0} ? {1} : {2}",
    "[{0}, {1}]",
    "{{'k': {0}, 'l': {1}}}",
    "{{{0}: {1}}}",
    "[{0}, {1}][1]",
    "[{0}] + [{1}]",
    "[{0}] == [{1}]",
    "{{'k': {0}}} == {{'k': {1}}}",
    "{0} in [{1}, {2}]",
    "timestamp({0})",
    "duration({0})",
    "{0} || {1} || {2}",
    "{0} && {1} && {2}",
    "({0}) == ({1}) || ({2})",
    "missing.name == {0} || {1}",
    "{0}({1})",
)

_MACROS = (
    "{0}.all({v}, {1})",
    "{0}.exists({v}, {1})",
    "{0}.exists_one({v}, {1})",
    "{0}.map({v}, {1})",
    "{0}.filter({v}, {1})",
    "{0}.map({v}, {1}, {2})",
    "[1, 2, 3].all({v}, {v} > {0})",
    "[1, 2].map({v}, {v} + {0})",
    "[0, 1, 2].exists({v}, 2 / {v} == {0})",
    "[0, 2].all({v}, 2 / {v} == {0})",
    "{0}.map({v}, {1}.map(i, [{v}, i]))",
    "[1.5, 'a', null].filter({v}, {v} == {0})",
    "[[1], [2, 3]].map({v}, {v}.exists(j, j == {0}))",
)


def _filled(templates: tuple[str, ...], parts: Sources) -> Sources:
    return st.builds(
        lambda template, a, b, c, variable: template.format(a, b, c, v=variable),
        st.sampled_from(templates),
        *(parts, parts, parts),
        _VARIABLES,
    )


def _wrapped(parts: Sources) -> Sources:
    return parts.map(lambda source: f"({source})")


def _grown(parts: Sources) -> Sources:
    operands = st.one_of(parts, _wrapped(parts))
    return st.one_of(
        _chain(_ALL, operands),
        _chain(("&&", "||"), st.one_of(_CONDITIONS, _wrapped(parts))),
        _filled(_CALLS, _wrapped(parts)),
        _filled(_MACROS, _wrapped(parts)),
    )


_SMALL_LEAVES = LEAVES.filter(lambda leaf: "92233720" not in leaf and "18446744" not in leaf and "4611686" not in leaf)

EXPRESSIONS: Sources = st.recursive(_SMALL_LEAVES, _grown, max_leaves=12)
"""Values of all kinds."""

ARITHMETIC: Sources = st.recursive(
    NUMBERS, lambda parts: st.one_of(_chain(_ARITHMETIC, parts), _wrapped(parts)), max_leaves=10
)
"""Numbers of all kinds, small ones."""

INTEGERS: Sources = st.recursive(
    BIG_INTEGERS,
    lambda parts: st.one_of(_chain((*_ARITHMETIC, "==", "<", ">="), parts), parts.map(lambda source: f"-({source})")),
    max_leaves=6,
)
"""Whole numbers up to the ends of their ranges."""

_SHORT = st.text("abcé😀, \n", max_size=6).map(lambda text: "'" + text.replace("\n", r"\n") + "'")
_PLACES = st.sampled_from(("-1", "0", "1", "2", "3", "6"))
_STRING_CALLS = (
    "{0}.charAt({2})",
    "{0}.indexOf({1})",
    "{0}.lastIndexOf({1})",
    "{0}.lowerAscii()",
    "{0}.upperAscii()",
    "{0}.replace({1}, 'X')",
    "{0}.replace({1}, 'X', {2})",
    "{0}.split({1})",
    "{0}.split({1}, {2})",
    "{0}.substring({2})",
    "{0}.trim()",
    "{0}.reverse()",
    "[{0}, {1}].join()",
    "[{0}, {1}].join({0})",
    "strings.quote({0})",
    "'%s|%d|%x'.format([{0}, {2}, {1}])",
    "size({0}) + {2}",
    "{0} + {1}",
    "{0} < {1}",
    "{1} in {0}.split('')",
    "{0}.contains({1})",
    "base64.encode(bytes({0}))",
    "string(base64.decode(base64.encode(bytes({0}))))",
    "'%s %%'.format([[{0}, {2}]])",
)

STRINGS: Sources = st.builds(
    lambda template, *parts: template.format(*parts), st.sampled_from(_STRING_CALLS), _SHORT, _SHORT, _PLACES, _PLACES
).filter(lambda source: "''.split(''" not in source)
"""Calls of the functions of texts."""

_ONE = ("ceil", "floor", "round", "trunc", "abs", "sign", "sqrt", "isInf", "isNaN", "isFinite", "bitNot")
_TWO = ("bitAnd", "bitOr", "bitXor", "bitShiftLeft", "bitShiftRight")
_MATH_CALLS = (
    *(f"math.{name}({{0}})" for name in _ONE),
    *(f"math.{name}({{0}}, {{1}})" for name in _TWO),
    *(f"math.{name}({{0}}, {{1}}, {{2}})" for name in ("greatest", "least")),
)

MATH: Sources = st.builds(
    lambda template, *parts: template.format(*parts),
    st.sampled_from(_MATH_CALLS),
    *(st.one_of(NUMBERS, BIG_INTEGERS),) * 3,
)
"""Calls of the functions of numbers."""

_STAMPS = st.datetimes().map(lambda instant: f"timestamp('{instant.replace(microsecond=0).isoformat()}Z')")
_SPANS = st.integers(-(10**10), 10**10).map(lambda ms: f"duration('{ms}ms')")
_GETTERS = (
    "FullYear",
    "Month",
    "Date",
    "DayOfMonth",
    "DayOfWeek",
    "DayOfYear",
    "Hours",
    "Minutes",
    "Seconds",
    "Milliseconds",
)
_ZONES = st.sampled_from(
    ("", "'UTC'", "'Europe/Paris'", "'America/St_Johns'", "'+05:30'", "'-11:45'", "'Nowhere/Land'")
)

TIMES: Sources = st.one_of(
    st.builds(lambda stamp, getter, zone: f"{stamp}.get{getter}({zone})", _STAMPS, st.sampled_from(_GETTERS), _ZONES),
    st.builds(lambda span, getter: f"{span}.get{getter}()", _SPANS, st.sampled_from(_GETTERS)),
    _chain(("+", "-", "<", "=="), st.one_of(_STAMPS, _SPANS)),
    _STAMPS.map(lambda stamp: f"string({stamp})"),
    _STAMPS.map(lambda stamp: f"int({stamp})"),
)
"""Instants and lengths of time."""


def _members(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(("n", "s", "l", "m", "b", "k", "none", "input")), values, max_size=6)


_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from((0.0, -0.0, 1.5, 1e300)),
    st.sampled_from(("", "a", "abc", "é")),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS, lambda values: st.one_of(st.lists(values, max_size=4), _members(values)), max_leaves=8
)
BINDINGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "vars": st.fixed_dictionaries(
            {"n": st.integers(-3, 3), "s": st.sampled_from(("", "a", "abc")), "l": st.lists(_SCALARS, max_size=4)},
            optional={"m": _members(_SCALARS), "b": st.booleans(), "none": st.none()},
        ),
        "step": _members(VALUES),
        "x": VALUES,
    }
)
"""Data for the three names that expressions read."""
