"""The five extension profiles: the examples in the documentation of cel-go and cel-spec, and edge cases."""

import pytest

from tests.support.cel_help import evaluate, fault

TRUE_OF_STRINGS = """
    'hello'.charAt(4) == 'o' && 'hello'.charAt(5) == ''
    'hello mellow'.indexOf('') == 0 && 'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('jello') == -1
    'hello mellow'.indexOf('', 2) == 2 && 'hello mellow'.indexOf('ello', 2) == 7
    'hello mellow'.indexOf('ello', 20) == -1
    'hello mellow'.lastIndexOf('') == 12 && 'hello mellow'.lastIndexOf('ello') == 7 && 'ab'.lastIndexOf('abc') == -1
    'hello mellow'.lastIndexOf('ello', 6) == 1 && 'hello mellow'.lastIndexOf('ello', 20) == -1
    ['hello', 'mellow'].join() == 'hellomellow'
    ['hello', 'mellow'].join(' ') == 'hello mellow' && [].join('/') == ''
    'TacoCÆt Xii'.lowerAscii() == 'tacocÆt xii' && 'TacoCæt Xii'.upperAscii() == 'TACOCæT XII'
    'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', -1) == 'wello wello'
    'hello hello'.replace('he', 'we', 1) == 'wello hello' && 'hello hello'.replace('he', 'we', 0) == 'hello hello'
    'ab'.replace('', '-') == '-a-b-' && 'ab'.replace('', '-', 2) == '-a-b'
    'a b c'.split(' ') == ['a', 'b', 'c'] && 'a b c'.split(' ', 0) == [] && 'a b c'.split(' ', 1) == ['a b c']
    'a b c'.split(' ', 2) == ['a', 'b c'] && 'a b c'.split(' ', -1) == ['a', 'b', 'c']
    'abc'.split('', 2) == ['a', 'bc']
    'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'tacocat'.substring(7) == ''
    '  \\ttrim\\n    '.trim() == 'trim'
    '\\u00a0\\u2003a\\u200b\\u3000'.trim() == 'a\\u200b' && '\\x1ca\\x1c'.trim() != 'a'
    'gums'.reverse() == 'smug' && 'é😀'.reverse() == '😀é'
    strings.quote('single-quote with "double quote"') == '"single-quote with \\\\"double quote\\\\""'
    strings.quote("two escape sequences \\a\\n") == '"two escape sequences \\\\a\\\\n"'
    '%s'.format(['foo']) == 'foo' && '%s'.format([b'foo']) == 'foo'
    '%d'.format([1u]) == '1' && '%d'.format([3.14]) == '3.14'
    '%f'.format([1]) == '1.000000' && '%.1f'.format([3.14]) == '3.1' && '%.3f'.format([123.4999]) == '123.500'
    '%.0f %.0f %.0f'.format([0.5, 1.5, 2.5]) == '0 2 2'
    '%e'.format([3.14]) == '3.140000e+00' && '%.1e'.format([-3.14]) == '-3.1e+00' && '%.1e'.format([1u]) == '1.0e+00'
    '%x %X %x %X'.format([255, 255u, 'é', b'\\xab']) == 'ff FF c3a9 AB' && '%x'.format([-30]) == '-1e'
    '%o %b %b %b'.format([8, 5, true, -5]) == '10 101 1 -101' && '100%% of %s'.format(['it']) == '100% of it'
    '%s %d %f'.format([1.0/0.0, -1.0/0.0, 0.0/0.0]) == 'Infinity -Infinity NaN'
    '%s'.format([1e21]) == '1000000000000000000000'
    '%s'.format([1e-7]) == '0.0000001' && '%s'.format([-0.0]) == '-0'
    '%s'.format([[1, 'a', null, true, {'b': 2u, 'a': 1.5}]]) == '[1, a, null, true, {a: 1.5, b: 2}]'
    '%s %s'.format([timestamp('2024-01-15T09:30:00.5+01:00'), duration('90s')]) == '2024-01-15T08:30:00.5Z 90s'
    '%s %s'.format([type(1), type(timestamp(0))]) == 'int google.protobuf.Timestamp'
    '%s'.format([b'a\\xff\\xfeb']) == 'a\\ufffdb'
"""

TRUE_OF_LISTS = """
    [1, 2, 2, 3, 3, 3].distinct() == [1, 2, 3] && ['b', 'b', 'c', 'a', 'c'].distinct() == ['b', 'c', 'a']
    [1, 1.0, 1u, true, 'a', [1], [1.0], {'k': 1}, {'k': 1u}].distinct() == [1, true, 'a', [1], {'k': 1}]
    [1, [2, 3], [4]].flatten() == [1, 2, 3, 4] && [1, [2, [3, 4]]].flatten() == [1, 2, [3, 4]]
    [1, [2, [3, [4]]]].flatten(2) == [1, 2, 3, [4]] && [1, [2]].flatten(0) == [1, [2]] && [1, 2].flatten() == [1, 2]
    lists.range(5) == [0, 1, 2, 3, 4] && lists.range(0) == [] && lists.range(-1) == []
    [5, 3, 1, 2].reverse() == [2, 1, 3, 5]
    [1, 2, 3, 4].slice(1, 3) == [2, 3] && [1, 2, 3, 4].slice(2, 4) == [3, 4] && [1].slice(1, 1) == []
    [3, 2, 1].sort() == [1, 2, 3] && ['b', 'c', 'a'].sort() == ['a', 'b', 'c']
    [].sort() == [] && [true, false].sort()[0] == false
    [duration('2s'), duration('1s')].sort()[0] == duration('1s')
    [timestamp(2), timestamp(1)].sort()[0] == timestamp(1)
    [{'n': 'a', 's': 0}, {'n': 'b', 's': -10}, {'n': 'c', 's': 1000}].sortBy(e, e.s).map(e, e.n) == ['b', 'a', 'c']
    [[1, 'b'], [1, 'a'], [0, 'c']].sortBy(e, e[0]).map(e, e[1]) == ['c', 'b', 'a']
"""

TRUE_OF_SETS = """
    sets.contains([], []) && !sets.contains([], [1]) && sets.contains([1, 2, 3, 4], [2, 3])
    sets.contains([1, 2.0, 3u], [1.0, 2u, 3]) && !sets.contains([1], [true]) && sets.contains([[1]], [[1.0]])
    sets.equivalent([], []) && sets.equivalent([1], [1, 1])
    sets.equivalent([1], [1u, 1.0]) && !sets.equivalent([1], [1, 2])
    sets.equivalent([1, 2, 3], [3u, 2.0, 1])
    !sets.intersects([1], []) && sets.intersects([1], [1, 2]) && sets.intersects([[1], [2, 3]], [[1, 2], [2, 3.0]])
"""

TRUE_OF_ENCODERS = """
    base64.encode(b'hello') == 'aGVsbG8=' && base64.decode('aGVsbG8=') == b'hello'
    base64.decode('aGVsbG8') == b'hello'
    base64.encode(b'') == '' && base64.decode('') == b'' && base64.decode('aGVs\\nbG8=') == b'hello'
"""

TRUE_OF_MATH = """
    math.greatest(1) == 1 && math.greatest(1u, 2u) == 2u && math.greatest(-42.0, -21.5, -100.0) == -21.5
    math.greatest([-42.0, -21.5, -100.0]) == -21.5
    math.least(-42.0, -21.5, -100.0) == -100.0 && math.least([3]) == 3
    type(math.greatest(1, 2.0, 3u)) == uint && type(math.greatest(1, 1.0)) == int
    type(math.least(1.0, 1)) == double
    math.bitOr(1u, 2u) == 3u && math.bitOr(-2, -4) == -2 && math.bitAnd(3u, 2u) == 2u && math.bitAnd(-3, -5) == -7
    math.bitXor(3u, 5u) == 6u && math.bitXor(1, 3) == 2
    math.bitNot(1) == -2 && math.bitNot(-1) == 0 && math.bitNot(0u) == 18446744073709551615u
    math.bitShiftLeft(1, 2) == 4 && math.bitShiftLeft(-1, 2) == -4 && math.bitShiftLeft(1u, 200) == 0u
    math.bitShiftLeft(1, 63) == -9223372036854775808 && math.bitShiftRight(-1, 1) == 9223372036854775807
    math.bitShiftRight(1024, 2) == 256 && math.bitShiftRight(1024u, 64) == 0u && math.bitShiftRight(-1, 0) == -1
    math.ceil(1.2) == 2.0 && math.ceil(-1.2) == -1.0 && math.floor(-1.2) == -2.0 && math.trunc(-1.3) == -1.0
    math.round(1.2) == 1.0 && math.round(1.5) == 2.0
    math.round(-1.5) == -2.0 && math.round(0.49999999999999994) == 0.0
    math.round(4503599627370497.5) == 4503599627370498.0
    math.isNaN(math.round(0.0/0.0)) && math.isInf(math.ceil(1.0/0.0))
    math.abs(-1) == 1 && math.abs(-1.5) == 1.5 && math.abs(1u) == 1u
    math.sign(-42) == -1 && math.sign(-0.5) == -1.0
    type(math.sign(3u)) == uint && math.sign(0.0) == 0.0 && math.isNaN(math.sign(0.0/0.0))
    math.isInf(1.0/0.0) && !math.isInf(1.2) && math.isNaN(0.0/0.0) && math.isFinite(1.2) && !math.isFinite(0.0/0.0)
    math.sqrt(81) == 9.0 && math.sqrt(985.25) == 31.388692231439016
    math.isNaN(math.sqrt(-15)) && math.sqrt(4u) == 2.0
"""


def _lines(*texts: str) -> list[str]:
    return [line.strip() for text in texts for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("source", _lines(TRUE_OF_STRINGS, TRUE_OF_LISTS, TRUE_OF_SETS, TRUE_OF_ENCODERS, TRUE_OF_MATH))
def test_an_example_is_true(source: str) -> None:
    assert evaluate(source) is True


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("'hello'.charAt(-1)", "position -1 is outside of a text of 5 characters"),
        ("'hello'.charAt(6)", "position 6 is outside"),
        ("'hello'.indexOf('l', -1)", "position -1"),
        ("'hello'.lastIndexOf('l', -1)", "position -1"),
        ("'tacocat'.substring(-1)", "position -1"),
        ("'tacocat'.substring(8)", "position 8"),
        ("'tacocat'.substring(2, 1)", "from 2 back to 1"),
        ("[1, 'a'].join(',')", "join() joins texts, not an int"),
        ("'%d'.format(['a'])", "cannot write a string as %d"),
        ("'%f'.format([true])", "cannot write a bool as %f"),
        ("'%x'.format([1.5])", "cannot write a double as %x"),
        ("'%o'.format([true])", "cannot write a bool as %o"),
        ("'%s %s'.format([1])", "no argument left for '%s'"),
        ("'%q'.format([1])", "'%q' is no clause"),
        ("'%'.format([1])", "'%' is no clause"),
        ("'%.f'.format([1])", "'%.f' is no clause"),
        ("'%.101f'.format([1])", "more than 100 digits"),
        ("[1, [2]].flatten(-1)", "cannot flatten -1 levels"),
        ("[1, 2].slice(1, 3)", "no slice from 1 to 3 of a list of 2"),
        ("[1, 2].slice(2, 1)", "no slice"),
        ("[1, 2].slice(-1, 1)", "no slice"),
        ("[1, 'b'].sort()", "cannot sort an int together with a string"),
        ("[1, 2.0].sort()", "cannot sort an int together with a double"),
        ("[[1, 2]].sort()", "cannot sort by a list"),
        ("[1, 2].sortBy(i, null)", "cannot sort by null"),
        ("{'a': 1}.sortBy(i, i)", "cannot sort a map"),
        ("base64.decode('aGVsbG8*')", "no base64"),
        ("base64.decode('a')", "no base64"),
        ("base64.decode('aGk==')", "no base64"),
        ("math.greatest([])", "math.greatest() of an empty list"),
        ("math.least(1, 'a')", "math.least() compares numbers, not a string"),
        ("math.greatest('a')", "no such call: math.greatest(a string)"),
        ("math.abs(-9223372036854775808)", "does not fit an int"),
        ("math.bitShiftLeft(1, -1)", "cannot shift bits by -1"),
        ("math.bitAnd(1, 1u)", "no such call: math.bitAnd(an int, a uint)"),
        ("math.ceil(1)", "no such call: math.ceil(an int)"),
        ("sets.contains([1], 1)", "no such call: sets.contains(a list, an int)"),
    ],
)
def test_a_fault_has_its_message(source: str, said: str) -> None:
    assert said in fault(source)
