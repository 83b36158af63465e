"""MWL's rules for data: numbers of the data are doubles, values are returned as JSON; and MWL's own functions."""

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.cel.functions import number_text
from callboard.languages.cel.program import compile
from tests.support.cel_help import CountingClock, evaluate, fault, refusal


@pytest.mark.parametrize(
    "source",
    [
        "n",
        "vars.n",
        "vars['n']",
        "vars.deep.n",
        "vars.l[0]",
        "vars.l[1].n",
        "vars.l.map(i, i)[0]",
        "vars.l.filter(i, true)[0]",
        "(vars.l + [1])[0]",
        "vars.l.slice(0, 1)[0]",
        "vars.l.reverse()[1]",
        "vars.l.flatten()[0]",
        "vars.ns.sort()[0]",
        "vars.ns.sortBy(i, i)[0]",
        "vars.ns.distinct()[0]",
        "math.greatest(vars.ns)",
        "math.least(vars.n, vars.n)",
        "dyn(vars.n)",
        "{'a': vars}.a.n",
        "[vars.n][0]",
        "fromJson('5')",
        "fromJson('[5]')[0]",
        "fromJson('{\"a\": 5}').a",
    ],
)
def test_every_number_of_the_data_is_a_double(source: str) -> None:
    bindings = {"n": 5, "vars": {"n": 5, "deep": {"n": 5}, "l": [5, {"n": 5}], "ns": [5, 5]}}
    assert evaluate(f"type({source}) == double", bindings) is True
    assert evaluate(f"{source} + 1.0", bindings) == 6
    assert "cannot add a double and an int" in fault(f"{source} + 1", bindings)
    assert evaluate(source, bindings) == 5


def test_numbers_of_the_expression_keep_their_kind() -> None:
    bindings = {"vars": {"l": [5]}}
    assert evaluate("[1, vars.l[0]].map(i, type(i) == int)", bindings) == [True, False]
    assert evaluate("type(size(vars.l)) == int && type({'a': 1}.a) == int && type([1][0]) == int", bindings) is True
    assert evaluate("type(([1] + vars.l)[0]) == int && type(([1] + vars.l)[1]) == double", bindings) is True


def test_a_number_of_the_data_beyond_the_doubles_becomes_the_nearest_one() -> None:
    bindings = {"vars": {"n": 2**53 + 1, "l": [2**53 + 1], "huge": 10**400}}
    assert evaluate("vars.n == 9007199254740992 && vars.l == [9007199254740992]", bindings) is True
    assert evaluate("vars.n == 9007199254740993", bindings) is False
    assert evaluate("vars.huge > 1e308", bindings) is True


def test_true_does_not_equal_one_in_data() -> None:
    bindings = {"vars": {"a": [True, {"b": 0}], "b": [1, {"b": False}]}}
    assert evaluate("vars.a == vars.b || true in vars.b || vars.a[0] == 1 || vars.b[0] == true", bindings) is False
    assert evaluate("vars.a == [true, {'b': 0u}] && vars.b == [1.0, {'b': false}]", bindings) is True


# -- values as JSON ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("5.0", "5"),
        ("2.5", "2.5"),
        ("-0.0", "-0.0"),
        ("0.0", "0"),
        ("1e300", "1e+300"),
        ("9007199254740992", "9007199254740992"),
        ("-9007199254740992", "-9007199254740992"),
        ("9007199254740994.0", "9007199254740994.0"),
        ("7u", "7"),
        ("null", "null"),
        ("[true, [1u, {'a': 'b'}], 1.0]", '[true, [1, {"a": "b"}], 1]'),
        ("{'l': vars.l}", '{"l": [1, 2.0, true]}'),
    ],
)
def test_values_are_returned_as_json(source: str, text: str) -> None:
    assert json.dumps(evaluate(source, {"vars": {"l": [1, 2.0, True]}})) == text


def test_unchanged_data_is_not_copied() -> None:
    bindings: dict[str, Any] = {"vars": {"l": [1, {"a": 2**60}]}}
    assert evaluate("vars", bindings) is bindings["vars"]
    assert evaluate("true ? vars.l : []", bindings) is bindings["vars"]["l"]
    assert evaluate("[vars.l]", bindings)[0] is bindings["vars"]["l"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("9007199254740993", "the int 9007199254740993 is beyond 2^53; string() keeps it exactly, double() rounds it"),
        ("[1, {'a': [18446744073709551615u]}]", "the uint 18446744073709551615 is beyond 2^53 at [1].a[0]"),
        ("1.0 / 0.0", "the double +Inf cannot be data"),
        ("{'a': -1.0 / 0.0}", "the double -Inf cannot be data at a;"),
        ("[0.0 / 0.0]", "the double NaN cannot be data at [0];"),
        ("b'x'", "bytes cannot be data; base64.encode()"),
        ("timestamp(0)", "a timestamp cannot be data; string()"),
        ("[duration('1s')]", "a duration cannot be data at [0]; string() or durationToIso8601()"),
        ("type(1)", "a type cannot be data"),
        ("{1: 'a'}", "the key 1 of a map is an int; the keys of data are strings"),
        ("{'a': {true: 1}}", "the key True of a map is a bool at a;"),
    ],
)
def test_a_value_that_is_not_data_is_refused_with_its_place(source: str, said: str) -> None:
    assert said in refusal(source)


def test_a_double_of_any_size_is_returned() -> None:
    assert evaluate("double(9223372036854775807)") == 2.0**63
    assert evaluate("string(9223372036854775807)") == "9223372036854775807"


# -- MWL's functions ---------------------------------------------------------------------------------------------------


def test_canonical_json_is_that_of_rfc_8785() -> None:
    # The example of RFC 8785, section 3.2.2 and 3.2.3.
    data = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert evaluate("toJson(vars)", {"vars": data}) == expected


def test_members_are_sorted_by_their_utf_16_code_units() -> None:
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    text = evaluate("toJson(vars)", {"vars": dict.fromkeys(names, 0)})
    assert list(json.loads(text)) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        # RFC 8785, appendix B.
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7FEFFFFFFFFFFFFF, "1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xC340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44B52D02C7E14AF5, "9.999999999999997e+22"),
        (0x44B52D02C7E14AF6, "1e+23"),
        (0x444B1AE4D6E2EF4E, "999999999999999700000"),
        (0x444B1AE4D6E2EF4F, "999999999999999900000"),
        (0x444B1AE4D6E2EF50, "1e+21"),
        (0x3EB0C6F7A0B5ED8C, "9.999999999999997e-7"),
        (0x3EB0C6F7A0B5ED8D, "0.000001"),
        (0x41B3DE4355555553, "333333333.3333332"),
        (0x41B3DE4355555557, "333333333.33333343"),
        (0xBECBF647612F3696, "-0.0000033333333333333333"),
        (0x43143FF3C1CB0959, "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_in_rfc_8785(bits: int, text: str) -> None:
    assert number_text(struct.unpack(">d", bits.to_bytes(8, "big"))[0]) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_number_reads_as_itself(value: float) -> None:
    assert float(number_text(value)) == value


_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.text(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)
)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@given(JSON_VALUES)
def test_to_json_and_from_json_are_inverse(value: Any) -> None:
    bindings = {"vars": {"value": value}}
    assert evaluate("fromJson(toJson(vars.value)) == vars.value", bindings) is True
    text = evaluate("toJson(vars.value)", bindings)
    assert evaluate("toJson(fromJson(vars.text))", {"vars": {"text": text}}) == text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("toJson(timestamp(0))", "a timestamp cannot be data"),
        ("toJson([1.0 / 0.0])", "+Inf cannot be data"),
        ("toJson({1: 2})", "the keys of data are strings"),
        ("fromJson('{')", "the text is no JSON"),
        ("fromJson('NaN')", "NaN is no JSON value"),
        ("fromJson('1e999')", "beyond the doubles"),
        ("fromJson('1' + '0'.replace('0', '0000000000').replace('0', '0000000000').replace('0', '0000'))", "beyond"),
        (r"""fromJson('"\\ud800"')""", "surrogate"),
        ("fromJson('[1] 2')", "the text is no JSON"),
        ("fromJson(vars.deep)", "nested more than 100 deep"),
        ("fromJson(vars.deeper)", "no JSON"),
        ("fromJson(1)", "no such call"),
    ],
)
def test_invalid_json_faults(source: str, said: str) -> None:
    assert said in fault(source, {"vars": {"deep": "[" * 101 + "]" * 101, "deeper": "[" * 100_000 + "]" * 100_000}})


@pytest.mark.parametrize(
    ("seconds_form", "iso"),
    [
        ("0s", "PT0S"),
        ("30s", "PT30S"),
        ("90m", "PT1H30M"),
        ("26h", "PT26H"),
        ("0.5s", "PT0.5S"),
        ("-30s", "-PT30S"),
        ("-1h0.25s", "-PT1H0.25S"),
        ("1ns", "PT0.000000001S"),
        ("3601s", "PT1H1S"),
    ],
)
def test_durations_are_converted_to_and_from_iso_8601(seconds_form: str, iso: str) -> None:
    assert evaluate(f"durationToIso8601(duration('{seconds_form}'))") == iso
    assert evaluate(f"durationFromIso8601('{iso}') == duration('{seconds_form}')") is True


@pytest.mark.parametrize(
    ("iso", "seconds"),
    [
        ("P1D", 86_400),
        ("P2W", 14 * 86_400),
        ("P1DT12H", 36 * 3600),
        ("PT36H", 36 * 3600),
        ("PT0.5H", 1_800),
        ("PT1,5M", 90),
        ("P0.5D", 43_200),
        ("-P1DT1S", -86_401),
        ("+PT5S", 5),
        ("PT90M", 5_400),
        ("P0D", 0),
        ("P1Y", 365 * 86_400),
        ("P1M", 30 * 86_400),
    ],
)
def test_other_forms_of_iso_8601_are_read(iso: str, seconds: int) -> None:
    assert evaluate(f"durationFromIso8601('{iso}') == duration('{seconds}s')") is True


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1H", "PT1D", "1D", "PT1.5H1M", "P1W1D", "PT--5S", "pt5s", "PT5S ", "PT٣S"]
)
def test_an_invalid_iso_8601_duration_faults(text: str) -> None:
    assert "is no ISO 8601 duration" in fault("durationFromIso8601(vars.text)", {"vars": {"text": text}})


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_duration_survives_the_conversion_to_text_and_back(ns: int) -> None:
    source = f"durationFromIso8601(durationToIso8601(duration('{ns}ns'))) == duration('{ns}ns')"
    assert evaluate(source) is True
    assert evaluate(f"duration(string(duration('{ns}ns'))) == duration('{ns}ns')") is True


def test_now_is_constant_and_wall_time_advances() -> None:
    assert evaluate("string(now())") == "2024-01-15T09:30:00Z"
    assert evaluate("now() == now()") is True
    assert evaluate("wallTime() == wallTime()") is False
    assert evaluate("string(now() + duration('1h'))") == "2024-01-15T10:30:00Z"
    assert "no such call: now(an int)" in fault("now(1)")


def test_the_clock_is_read_only_when_an_expression_needs_it() -> None:
    clock = CountingClock()
    program = compile("vars.late ? string(wallTime()) : 'never'")
    assert program.evaluate({"vars": {"late": False}}, clock) == "never"
    assert clock.asked == 0
    program.evaluate({"vars": {"late": True}}, clock)
    assert clock.asked == 1


def test_a_program_keeps_no_state_between_evaluations() -> None:
    program = compile("vars.l.map(i, vars.l.filter(j, j > i).size())")
    assert program.evaluate({"vars": {"l": [1, 2, 3]}}, CountingClock()) == [2, 1, 0]
    assert program.evaluate({"vars": {"l": []}}, CountingClock()) == []
    assert program.evaluate({"vars": {"l": [1, 2, 3]}}, CountingClock()) == [2, 1, 0]


def test_nan_is_never_found_in_a_list() -> None:
    assert math.isnan(compile("0.0 / 0.0").value({}, CountingClock()))
    assert evaluate("[0.0 / 0.0].map(n, n in [n] || [n].distinct() == [n] || sets.contains([n], [n]))") == [False]
