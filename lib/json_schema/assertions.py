"""The keywords that check a value without applying other schemas, and equality as JSON Schema defines it: 1 equals 1.0,
and true is not a number. For many values there are keys.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from operator import ge, gt, le, lt
from typing import Any

from callboard.lib.json_schema.application import Application, Check, Way
from callboard.lib.json_types import JSON
from callboard.lib.patterns import compile_steps
from callboard.lib.step_limits import CHARS_PER_STEP, Steps

NODE_STEPS = 4
"""Steps for each value inside a key."""

SCANNED_MAX = 16
"""Up to this number of values are compared one by one; more are looked up by their keys."""


def equal(one: JSON, other: JSON, steps: Steps) -> bool:
    """Return whether two values are equal.

    :raises TooManySteps: if it takes too many steps
    """
    steps.take(1)
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case str(), str():
            steps.take(min(len(one), len(other)) // CHARS_PER_STEP)
            return one == other
        case list(), list():
            return len(one) == len(other) and all(equal(a, b, steps) for a, b in zip(one, other, strict=True))
        case dict(), dict():
            steps.take(len(one))
            return one.keys() == other.keys() and all(equal(one[name], other[name], steps) for name in one)
        case _:
            return bool(one == other)


def key_of(value: JSON, steps: Steps) -> str:
    """Return a text that is the same for equal values, and different for others.

    It is a text and not a tuple, because hashes of texts are randomized in each process. Hashes of numbers are
    predictable, so an attacker could choose values that collide.

    :raises TooManySteps: if it takes too many steps
    """
    pieces: list[str] = []
    _write(value, pieces, steps)
    return "".join(pieces)


def _write(value: Any, pieces: list[str], steps: Steps) -> None:
    steps.take(NODE_STEPS)
    if isinstance(value, str):
        steps.take(len(value) // CHARS_PER_STEP)
        pieces.append(f"s{len(value)}:{value}")
    elif isinstance(value, bool) or value is None:
        pieces.append(f"c{value};")
    elif isinstance(value, list):
        pieces.append("[")
        for item in value:
            _write(item, pieces, steps)
        pieces.append("]")
    elif isinstance(value, dict):
        pieces.append("{")
        steps.take(len(value))
        for name in sorted(value):
            _write(name, pieces, steps)
            _write(value[name], pieces, steps)
        pieces.append("}")
    else:
        whole = isinstance(value, float) and value.is_integer()
        pieces.append(f"n{int(value) if whole else value!r};")


def among(value: JSON, values: list[JSON], steps: Steps) -> bool:
    """Return whether a value is among a few others.

    :raises TooManySteps: if it takes too many steps
    """
    return any(equal(each, value, steps) for each in values)


def unique(values: list[JSON], steps: Steps) -> bool:
    """Return whether all values are different.

    :raises TooManySteps: if it takes too many steps
    """
    seen: set[str] = set()
    for value in values:
        key = key_of(value, steps)
        if key in seen:
            return False
        seen.add(key)
    return True


FORMAT_CHARS_PER_STEP = 8
"""Number of characters that count as one step when a format is checked."""

NAMES_PER_STEP = 4
"""Number of names of a keyword that count as one step when they are looked up in a value."""


def is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: JSON) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[JSON], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": is_number,
    "integer": _is_whole,
}


def type_(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(wanted, str):
        fits = wanted in _TYPES and _TYPES[wanted](value)
    else:
        app.steps.take(len(wanted))
        fits = any(_TYPES[name](value) for name in wanted if name in _TYPES)
    if not fits:
        app.add_violation("type", wanted, value, schema, place, at)


def type_draft4(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    """Check ``type`` in draft 4, where 1.0 is not an integer."""
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(value, float) and "number" not in names:
        app.add_violation("type", wanted, value, schema, place, at)
    else:
        type_(app, wanted, value, schema, place, at)


def enum(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not _is_listed(app, wanted, value):
        app.add_violation("enum", wanted, value, schema, place, at)


def _is_listed(app: Application, wanted: list[JSON], value: JSON) -> bool:
    if len(wanted) <= SCANNED_MAX:
        return among(value, wanted, app.steps)
    known = app.keys.get(id(wanted))
    if known is None:
        known = app.keys[id(wanted)] = wanted, frozenset(key_of(each, app.steps) for each in wanted)
    return key_of(value, app.steps) in known[1]


def const(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not equal(value, wanted, app.steps):
        app.add_violation("const", wanted, value, schema, place, at)


# -- bounds ------------------------------------------------------------------------------------------------------------


def _bound(keyword: str, kind: str, violates: Callable[[Any, Any], bool]) -> Check:
    """Return the check of a keyword that compares the values of one type with a bound."""
    applies = _TYPES[kind]

    def check(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
        if applies(value) and violates(value, wanted):
            app.add_violation(keyword, wanted, value, schema, place, at)

    return check


def _is_no_multiple(value: Any, of: Any) -> bool:
    if not isinstance(of, float):
        return value % of != 0
    quotient = value / of
    try:
        return int(quotient) != quotient
    except OverflowError:
        return (Fraction(value) / Fraction(of)).denominator != 1


def _is_shorter(value: Any, bound: Any) -> bool:
    return len(value) < bound


def _is_longer(value: Any, bound: Any) -> bool:
    return len(value) > bound


multiple_of = _bound("multipleOf", "number", _is_no_multiple)
minimum = _bound("minimum", "number", lt)
maximum = _bound("maximum", "number", gt)
exclusive_minimum = _bound("exclusiveMinimum", "number", le)
exclusive_maximum = _bound("exclusiveMaximum", "number", ge)
min_length = _bound("minLength", "string", _is_shorter)
max_length = _bound("maxLength", "string", _is_longer)
min_items = _bound("minItems", "array", _is_shorter)
max_items = _bound("maxItems", "array", _is_longer)
min_properties = _bound("minProperties", "object", _is_shorter)
max_properties = _bound("maxProperties", "object", _is_longer)


def minimum_draft4(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    """Check ``minimum`` in draft 4, where ``exclusiveMinimum`` is a boolean that excludes the bound."""
    if is_number(value) and (value < wanted or (value == wanted and schema.get("exclusiveMinimum", False))):
        app.add_violation("minimum", wanted, value, schema, place, at)


def maximum_draft4(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if is_number(value) and (value > wanted or (value == wanted and schema.get("exclusiveMaximum", False))):
        app.add_violation("maximum", wanted, value, schema, place, at)


# -- texts -------------------------------------------------------------------------------------------------------------


def pattern(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, str) and not app.patterns.found(wanted, value):
        app.add_violation("pattern", wanted, value, schema, place, at)


def format_(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    check = app.formats.get(wanted) if isinstance(wanted, str) else None
    if check is None or not isinstance(value, str):
        return
    app.steps.take(compile_steps(value) if wanted == "regex" else len(value) // FORMAT_CHARS_PER_STEP)
    if not check(value):
        app.add_violation("format", wanted, value, schema, place, at)


# -- arrays and objects ------------------------------------------------------------------------------------------------


def unique_items(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if wanted and isinstance(value, list) and not unique(value, app.steps):
        app.add_violation("uniqueItems", wanted, value, schema, place, at)


def required(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, dict):
        if len(wanted) > NAMES_PER_STEP:
            app.steps.take(len(wanted) // NAMES_PER_STEP)
        for name in wanted:
            if name not in value:
                app.add_violation("required", wanted, value, schema, place, at, name)


def dependent_required(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not isinstance(value, dict):
        return
    app.steps.take(len(wanted) // NAMES_PER_STEP)
    for name, names in wanted.items():
        if name in value:
            _depends(app, "dependentRequired", wanted, names, value, schema, place, at)


def _depends(
    app: Application, keyword: str, wanted: Any, names: list[str], value: Any, schema: Any, place: Way, at: Way
) -> None:
    app.steps.take(1 + len(names) // NAMES_PER_STEP)
    for name in names:
        if name not in value:
            app.add_violation(keyword, wanted, value, schema, place, at, name)


def dependencies(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    """Check ``dependencies`` of older versions, which requires members or applies a schema."""
    if not isinstance(value, dict):
        return
    app.steps.take(len(wanted) // NAMES_PER_STEP)
    for name, asked in wanted.items():
        if name in value:
            if isinstance(asked, list):
                _depends(app, "dependencies", wanted, asked, value, schema, place, at)
            else:
                app.apply(asked, value, place, ((at, "dependencies"), name))
