"""Tables of expressions and their values: the embedding, numbers, every profile.

Each expression is the value of a Return; the input is `DATA`.
"""

from typing import Any

import pytest

from callboard.languages.flow.authoring import same
from tests.support.flow_cases import FAULT, Case, bad, ok, play
from tests.support.flows import flow, perform, returned

UNREPRESENTABLE = "System.UnrepresentableValue"

DATA = {
    "n": 5,
    "half": 2.5,
    "big": 9007199254740993,
    "list": [3, 1, 2],
    "text": "Ünï",
    "none": None,
    "deep": {"a": [{"b": 1}]},
    "o-o": 1,
}

VALUES: dict[str, Any] = {
    # the embedding
    "{{step.input.n}}": 5,
    "{{\n\tstep.input.n\n}}": 5,
    "{{ '}}' }}": "}}",
    "{{ '{{ }}' }}": "{{ }}",
    "{{ {'a': {'b': 1}}}}": {"a": {"b": 1}},
    "{{ '{{' }} and {{ '}}' }}": "{{ '{{' }} and {{ '}}' }}",
    "{{ step.input.n }} ": "{{ step.input.n }} ",
    " {{ step.input.n }}": " {{ step.input.n }}",
    "x{{ step.input.n }}": "x{{ step.input.n }}",
    "{{ step.input.n }": "{{ step.input.n }",
    "{ { step.input.n } }": "{ { step.input.n } }",
    "{{ 1 // a comment }}\n}}": 1,
    # numbers
    "{{ step.input.n + 1.0 }}": 6,
    "{{ step.input.n / 2.0 }}": 2.5,
    "{{ 5 / 2 }}": 2,
    "{{ -5 / 2 }}": -2,
    "{{ -5 % 3 }}": -2,
    "{{ step.input.n == 5 && step.input.n == 5.0 && step.input.n == 5u }}": True,
    "{{ step.input.n > 4 && step.input.n < 6u }}": True,
    "{{ 1 + int(step.input.half) }}": 3,
    "{{ double(size(step.input.list)) + step.input.half }}": 5.5,
    "{{ step.input.list[int(step.input.half) - 1] }}": 1,
    "{{ step.input.list[1.0] }}": 1,
    "{{ type(step.input.n) == double }}": True,
    "{{ [1, 1.0, 1u].map(x, type(x) == int) }}": [True, False, False],
    "{{ 9007199254740992 }}": 9007199254740992,
    "{{ -9007199254740992 }}": -9007199254740992,
    "{{ double(9007199254740993) }}": 9007199254740992,
    "{{ string(9007199254740993) }}": "9007199254740993",
    "{{ 1e300 * 1e8 > 1e307 }}": True,
    "{{ 0x10 }}": 16,
    "{{ 1e3 }}": 1000,
    "{{ double('5') }}": 5,
    "{{ int(-2.9) }}": -2,
    "{{ string(1.0) }}": "1",
    "{{ string(step.input.n) }}": "5",
    "{{ 1.0 / 0.0 > 1.0 }}": True,
    # presence, defaults, short circuits
    "{{ has(step.input.n) && !has(step.input.m) }}": True,
    "{{ has(step.input.none) }}": True,
    "{{ has(step.input.m) ? step.input.m : 'default' }}": "default",
    "{{ step.input.none == null }}": True,
    "{{ true || step.input.m }}": True,
    "{{ step.input.m == 1 || true }}": True,
    "{{ step.input.m == 1 && false }}": False,
    "{{ 'n' in step.input && !('m' in step.input) }}": True,
    "{{ step.input['o-o'] }}": 1,
    "{{ step.input.deep.a[0].b }}": 1,
    "{{ 1 in step.input.list && !(4 in step.input.list) }}": True,
    # texts
    "{{ 'a' + 'b' }}": "ab",
    "{{ size(step.input.text) }}": 3,
    "{{ step.input.text.startsWith('Ü') && step.input.text.endsWith('ï') && step.input.text.contains('n') }}": True,
    "{{ 'granule-7'.matches('^[a-z]+-[0-9]$') }}": True,
    "{{ 'e\\u0301' == '\\u00e9' }}": False,
    "{{ r'a\\n' }}": "a\\n",
    "{{ '''a'b''' }}": "a'b",
    # macros
    "{{ step.input.list.map(x, x * 2.0) }}": [6, 2, 4],
    "{{ step.input.list.map(x, x > 1.0, x) }}": [3, 2],
    "{{ step.input.list.filter(x, x > 1.0) }}": [3, 2],
    "{{ step.input.list.exists(x, x == 3.0) && step.input.list.all(x, x > 0.0) }}": True,
    "{{ step.input.list.exists_one(x, x < 2.0) }}": True,
    "{{ {'a': 1, 'b': 2}.exists(k, k == 'b') }}": True,
    # the functions of the language
    "{{ toJson({'b': 1.0, 'a': [true, null, 'x\\n'], 'é': 1e21}) }}": '{"a":[true,null,"x\\n"],"b":1,"é":1e+21}',
    "{{ toJson(step.input.list) }}": "[3,1,2]",
    "{{ toJson('a') }}": '"a"',
    "{{ toJson(0.000001) + toJson(0.0000001) + toJson(1e20) }}": "0.0000011e-7100000000000000000000",
    "{{ fromJson('{\"a\": [1, 2.5, null]}') }}": {"a": [1, 2.5, None]},
    "{{ fromJson('5') + 1.0 }}": 6,
    "{{ fromJson(toJson(step.input.deep)) == step.input.deep }}": True,
    "{{ durationToIso8601(duration('5400s')) }}": "PT1H30M",
    "{{ durationToIso8601(duration('26h')) }}": "PT26H",
    "{{ durationToIso8601(duration('500ms')) }}": "PT0.5S",
    "{{ durationToIso8601(duration('0s')) }}": "PT0S",
    "{{ durationToIso8601(duration('-30s')) }}": "-PT30S",
    "{{ string(durationFromIso8601('P1DT1H')) }}": "90000s",
    "{{ string(durationFromIso8601('-PT1M')) }}": "-60s",
    "{{ string(durationFromIso8601('P2W')) }}": "1209600s",
    "{{ durationFromIso8601('PT90S') == duration('1m30s') }}": True,
    "{{ now() == now() && string(now()) == step.metadata.enteredAt }}": True,
    "{{ wallTime() >= now() }}": True,
    "{{ string(timestamp('2024-01-15T09:30:00+01:00')) }}": "2024-01-15T08:30:00Z",
    "{{ timestamp('2024-01-15T09:30:00Z').getFullYear() }}": 2024,
    "{{ string(timestamp('2024-01-15T09:30:00Z') + duration('24h')) }}": "2024-01-16T09:30:00Z",
    "{{ timestamp('2024-01-15T09:30:00Z').getDayOfWeek() }}": 1,
    # profiles
    "{{ 'a,b,c'.split(',') }}": ["a", "b", "c"],
    "{{ ['a', 'b'].join('-') }}": "a-b",
    "{{ 'hello'.substring(1, 3) }}": "el",
    "{{ 'HeLLo'.lowerAscii() + 'a'.upperAscii() }}": "helloA",
    "{{ '  a '.trim() }}": "a",
    "{{ '%s has %d of %.2f'.format(['x', 3, 1.5]) }}": "x has 3 of 1.50",
    "{{ 'aXbX'.replace('X', '-') }}": "a-b-",
    "{{ 'abc'.indexOf('c') }}": 2,
    "{{ 'abc'.charAt(1) }}": "b",
    "{{ lists.range(3) }}": [0, 1, 2],
    "{{ step.input.list.slice(1, 3) }}": [1, 2],
    "{{ [[1], [2, [3]]].flatten() }}": [1, 2, [3]],
    "{{ step.input.list.sort() }}": [1, 2, 3],
    "{{ [1, 1.0, 2, 1u].distinct() }}": [1, 2],
    "{{ step.input.list.reverse() }}": [2, 1, 3],
    "{{ [{'k': 2}, {'k': 1}].sortBy(e, e.k) }}": [{"k": 1}, {"k": 2}],
    "{{ sets.contains([1, 2, 3], [2.0, 3u]) }}": True,
    "{{ sets.equivalent([1, 2], [2, 1, 1]) }}": True,
    "{{ sets.intersects([1], [2]) }}": False,
    "{{ base64.encode(b'hello') }}": "aGVsbG8=",
    "{{ string(base64.decode('aGVsbG8=')) }}": "hello",
    "{{ math.greatest(step.input.list) }}": 3,
    "{{ math.least(1, 2.5, -3) }}": -3,
    "{{ math.greatest(1, 2u, 2.5) }}": 2.5,
    "{{ math.ceil(1.2) + math.floor(-1.2) + math.round(2.5) + math.abs(-1.0) }}": 4,
    # bindings of every place
    "{{ [execution.platform, has(execution.metadata.exitedAt), type(execution.id) == string] }}": [{}, False, True],
    "{{ execution.metadata.enteredAt == frame.metadata.enteredAt }}": True,
    "{{ failure }}": None,
    "{{ vars }}": {},
    "{{ [step.name, step.action, has(step.metadata.exitedAt)] }}": ["r", "Return", False],
    "{{ frame.input == step.input }}": True,
}

FAILURES: dict[str, str] = {
    "{{ step.input.m }}": FAULT,
    "{{ step.input.none.x }}": FAULT,
    "{{ vars.m }}": FAULT,
    "{{ nothing }}": FAULT,
    "{{ call.input }}": FAULT,
    "{{ match.input }}": FAULT,
    "{{ middleware.input }}": FAULT,
    "{{ step.result }}": FAULT,
    "{{ step.results }}": FAULT,
    "{{ frame.vars }}": FAULT,
    "{{ failure.code }}": FAULT,
    "{{ 1 + step.input.n }}": FAULT,
    "{{ 1 + 1.0 }}": FAULT,
    "{{ step.input.n + 'a' }}": FAULT,
    "{{ step.input.n % 2 }}": FAULT,
    "{{ 5 / 0 }}": FAULT,
    "{{ 5 % 0 }}": FAULT,
    "{{ 9223372036854775807 + 1 }}": FAULT,
    "{{ step.input.list[3] }}": FAULT,
    "{{ step.input.list[0.5] }}": FAULT,
    "{{ step.input.n ? 1 : 2 }}": FAULT,
    "{{ !step.input.n }}": FAULT,
    "{{ true && step.input.n }}": FAULT,
    "{{ unknown(1) }}": FAULT,
    "{{ fromJson('{') }}": FAULT,
    "{{ durationFromIso8601('1h') }}": FAULT,
    "{{ timestamp('noon') }}": FAULT,
    "{{ int('x') }}": FAULT,
    "{{ base64.decode('*') }}": FAULT,
    "{{ [1, 'a'].sort() }}": FAULT,
    "{{ 'a'.substring(2) }}": FAULT,
    "{{ 5.0 / 0.0 }}": UNREPRESENTABLE,
    "{{ -5.0 / 0.0 }}": UNREPRESENTABLE,
    "{{ 0.0 / 0.0 }}": UNREPRESENTABLE,
    "{{ 1e308 * 10.0 }}": UNREPRESENTABLE,
    "{{ [1.0, {'a': 1.0 / 0.0}] }}": UNREPRESENTABLE,
    "{{ 9007199254740993 }}": UNREPRESENTABLE,
    "{{ -9007199254740993 }}": UNREPRESENTABLE,
    "{{ 9007199254740993u }}": UNREPRESENTABLE,
    "{{ {'a': [9007199254740993]} }}": UNREPRESENTABLE,
    "{{ b'bytes' }}": UNREPRESENTABLE,
    "{{ timestamp('2024-01-15T09:30:00Z') }}": UNREPRESENTABLE,
    "{{ now() }}": UNREPRESENTABLE,
    "{{ duration('1s') }}": UNREPRESENTABLE,
    "{{ {1: 'a'} }}": UNREPRESENTABLE,
    "{{ {true: 'a'} }}": UNREPRESENTABLE,
    "{{ int }}": UNREPRESENTABLE,
}


def test_values() -> None:
    """Every expression is a leaf of one Return."""
    found: Any = perform(flow({"r": returned(list(VALUES))}), DATA).value
    wrong = {source: value for source, value in zip(VALUES, found, strict=True) if not same(VALUES[source], value)}
    assert not wrong


@pytest.mark.parametrize("source", FAILURES)
def test_failures(source: str) -> None:
    play(Case(flow({"r": returned([source])}), bad(FAILURES[source], previous=None), DATA))


def test_data_without_expressions_is_passed_on_unchanged() -> None:
    """The data has an integer that no double holds, and a text that looks like an expression."""
    data = {**DATA, "text": "{{ 1 }}", "{{ 1 }}": [1e300, -0.0, 5.0, True, ""]}
    done = play(Case(flow({"p": {"action": "Pass", "next": "r"}, "r": returned()}), ok(data), data))
    assert str(done.result["value"]["big"]) == "9007199254740993"
