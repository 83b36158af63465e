"""Core CEL: values that the oracle cannot check, and the messages of faults."""

import pytest

from tests.support.cel_help import evaluate, fault


@pytest.mark.parametrize(
    ("source", "value"),
    [
        # Errors are absorbed where another operand decides, and only there.
        ("1/0 > 0 || true", True),
        ("true || 1/0 > 0", True),
        ("1/0 > 0 && false", False),
        ("vars.missing == 1 || vars.k == 'abc'", True),
        ("1 || true", True),
        ("false && 'a'", False),
        ("[1, 0, 2].exists(i, 2 / i == 1)", True),
        ("[0, 4].all(i, 4 / i > 1)", False),
        ("[].all(i, 1/0 > 0)", True),
        ("has(vars.k) ? vars.k : 'none'", "abc"),
        ("has(vars.missing) ? vars.missing : 'none'", "none"),
        ("has(vars.none)", True),
        # Booleans are never numbers.
        ("true == 1 || 1 == true || [true] == [1] || true in [1, 1.0, 1u]", False),
        ("{'a': true} == {'a': 1}", False),
        ("{true: 'b', 1: 'i'}[true] + {true: 'b', 1: 'i'}[1]", "bi"),
        ("{true: 1}.map(k, k)", [True]),
        ("1 in {true: 'b'}", False),
        ("math.greatest([1.0, 2.0]) == true", False),
        # Numbers of all kinds are equal where they are the same number, and only there.
        ("1 == 1.0 && 1u == 1 && 1.0 == 1u", True),
        ("9007199254740993 == 9007199254740992.0", False),
        ("9007199254740993 > 9007199254740992.0 && 18446744073709551615u < 18446744073709551616.0", True),
        ("-1 < 1u && 1u > -1 && 9223372036854775807 < 18446744073709551615u", True),
        ("{1: 'a'}[1.0] + {1: 'a'}[1u] + {1u: 'a'}[1]", "aaa"),
        ("1.0 in {1: 'a'} && !(1.5 in {1: 'a'})", True),
        ("[1.5, 'a'][1.0]", "a"),
        ("0.0/0.0 == 0.0/0.0 || [0.0/0.0] == [0.0/0.0] || 0.0/0.0 < 1.0", False),
        ("-7 / 2 == -3 && -7 % 2 == -1 && 7 % -2 == 1 && 7 / -2 == -3", True),
        ("1.0 / 0.0 > 1e308 && -1.0 / 0.0 < -1e308 && 1.0 / -0.0 < 0.0", True),
        # Types are values.
        ("type(1) == int && type(1u) == uint && type(1.0) == double && type(null) == null_type", True),
        ("type([]) == list && type({}) == map && type(type(1)) == type && type(b'') == bytes", True),
        ("type(timestamp(0)) == google.protobuf.Timestamp && type(int) == type(string)", True),
        ("[1, 'a', 2.0].map(v, type(v)) == [int, string, double]", True),
        # Variables of comprehensions hide names; a dot before a name reads the hidden one.
        ("[1, 2].map(vars, vars)", [1, 2]),
        ("[{'k': 'inner'}].map(vars, vars.k + .vars.k)", ["innerabc"]),
        ("[1, 2].map(i, [10, 20].map(j, i + j))", [[11, 21], [12, 22]]),
        ("[[1], [2, 3]].map(i, i.map(i, i * 2))", [[2], [4, 6]]),
        ("[1, 2].map(int, int * 2)", [2, 4]),
        ("{'b': 1, 'a': 2}.map(k, k)", ["b", "a"]),
        ("[1, 2, 3].exists_one(i, i > 2) && ![1, 2].existsOne(i, i > 0)", True),
        ("[1, 2, 3, 4].map(i, i % 2 == 0, i * i)", [4, 16]),
        # Texts are code points.
        ("size('é😀') == 2 && 'é😀'.size() == 2 && size(bytes('é😀')) == 6", True),
        ("'\U00010000' > '\uffff'", True),
        ("'e\u0301' == 'é'", False),
        ("'a.c'.matches('^a[.]c$') && !'abc'.matches('^a[.]c$') && matches('xabcx', 'b')", True),
        ("'10' + string(5) + string(2.5) + string(true) + string(b'x') + string(7u)", "1052.5truex7"),
        # Time.
        ("string(timestamp('2024-02-29T23:59:59.25+01:00'))", "2024-02-29T22:59:59.25Z"),
        ("string(timestamp('2024-01-01T00:00:00Z') + duration('1h30m'))", "2024-01-01T01:30:00Z"),
        ("string(timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z'))", "86400s"),
        ("string(duration('-1.5s'))", "-1.5s"),
        ("string(duration('1h1m1s1ms1us1ns'))", "3661.001001001s"),
        ("timestamp('2024-03-10T12:00:00Z').getHours('America/New_York')", 8),
        ("timestamp('2024-03-10T12:00:00Z').getDayOfWeek()", 0),
        ("timestamp('0001-01-01T00:00:00Z').getFullYear()", 1),
        ("int(timestamp('1969-12-31T23:59:59.5Z'))", -1),
        ("duration('-90s').getMinutes()", -1),
        ("duration('-1.5s').getMilliseconds()", -500),
    ],
)
def test_an_expression_has_its_value(source: str, value: object) -> None:
    found = evaluate(source, {"vars": {"k": "abc", "none": None}})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("vars.n + 1", "cannot add a double and an int; numbers of two kinds do not mix: write 1.0 for 1, or convert"),
        ("'a' + 1", "cannot add a string and an int; string() makes text of a number"),
        ("vars.nam", "no such key: 'nam' (did you mean 'name'?)"),
        ("vars.other", "no such key: 'other' (there are: items, n, name)"),
        ("{}.a", "no such key: 'a' (the map is empty)"),
        ("vars.name.first", "cannot read 'first' of a string: only a map has members"),
        ("has(vars.n.x)", "cannot look for 'x' in a double: only a map has members"),
        ("vars.items[3]", "index 3 is outside of a list of 2"),
        ("vars.items[-1]", "index -1 is outside of a list of 2"),
        ("vars.items['a']", "a list is indexed by a whole number, not by a string"),
        ("vars.items[0.5]", "a list is indexed by a whole number, not by 0.5"),
        ("vars.n['a']", "cannot index a double: only lists and maps have members"),
        ("nothing", "there is no 'nothing' here; there are: vars"),
        ("vars.n && true", "a condition is a bool, and this one a double; compare it with something"),
        ("vars.n ? 1 : 2", "a condition is a bool, and this one a double; compare it with something"),
        ("!vars.n", "'!' negates a bool, not a double"),
        ("-vars.name", "cannot negate a string"),
        ("vars.name < 1", "cannot compare a string < an int"),
        ("null < null", "cannot compare null < null"),
        ("'a' in 'abc'", "'in' looks into a list or the keys of a map, not into a string"),
        ("vars.n.map(i, i)", "cannot go through a double: only through a list or the keys of a map"),
        ("{1.5: 1}", "a map's key is a string, an int, a uint or a bool, not a double"),
        ("{'a': 1, 'a': 2}", "the map has the key 'a' twice"),
        ("5 / 0", "cannot divide a whole number by zero"),
        ("5u % 0u", "cannot divide a whole number by zero"),
        ("9223372036854775807 + 1", "9223372036854775808 does not fit an int, which has 64 bits"),
        ("-9223372036854775808 / -1", "9223372036854775808 does not fit an int"),
        ("-9223372036854775808 % -1", "9223372036854775808 does not fit an int"),
        ("0u - 1u", "-1 does not fit a uint, which has 64 bits and no sign"),
        ("int('abc')", "'abc' is no int"),
        ("int(1e20)", "1e+20 does not fit an int, which has 64 bits"),
        ("timestamp('yesterday')", "'yesterday' is no timestamp; one is written like 2024-01-15T09:30:00Z"),
        ("timestamp('2023-02-29T00:00:00Z')", "'2023-02-29T00:00:00Z' is no timestamp"),
        ("duration('1d')", "'1d' is no duration; one is written like 1h30m, 90s or 500ms"),
        ("timestamp(0).getHours('Mars/Base')", "'Mars/Base' is no time zone"),
        ("timestamp(0).getHours('../etc/passwd')", "'../etc/passwd' is no time zone"),
        ("timestamp('0001-01-01T00:00:00Z').getHours('-05:00')", "outside of the years 1 to 9999"),
        ("'a'.matches('[')", "'[' is no regular expression of RE2: missing ]"),
        (r"'aa'.matches(r'(a)\1')", "is no regular expression of RE2: invalid escape sequence"),
        ("size(1)", "no such call: size(an int)"),
        ("'a'.startsWith(1)", "no such call: a string with .startsWith(an int)"),
        ("[1].size(2)", "no such call: a list with .size(an int)"),
        ("math.tan(1.0)", "no such call: math.tan(a double)"),
    ],
)
def test_a_fault_has_its_cause_and_remedy(source: str, said: str) -> None:
    assert said in fault(source, {"vars": {"n": 1, "name": "x", "items": [1, 2]}})


def test_messages_shorten_long_values() -> None:
    assert len(fault("int(vars.text)", {"vars": {"text": "x" * 10_000}})) < 200
    assert len(fault("vars.text", {"vars": {"k" * 1_000 + str(n): n for n in range(5_000)}})) < 1_000


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    # Backtracking would take 2^100 000 steps.
    assert evaluate("vars.text.matches('^(a+)+$')", {"vars": {"text": "a" * 100_000 + "!"}}) is False
