"""Patterns of JSON Schemas: RE2's where it can read them, JavaScript's where it cannot. Either counts its steps.

JSON Schema means JavaScript's regular expressions. Generated schemas are full of lookaround, which RE2 has not; our own
matcher of JavaScript's has it. So no schema and no value can hold up an interpreter.
"""

from callboard.bus import patterns
from callboard.bus.javascript import regex
from callboard.bus.patterns import BadPattern
from callboard.bus.steps import Steps


def found(pattern: str, text: str, steps: Steps) -> bool:
    """Say whether a pattern matches somewhere in a text; in one with half of a surrogate pair nothing does.

    :raises BadPattern: if it is none
    :raises TooManySteps: if it takes too many
    """
    told = patterns.fault(pattern)
    if told is not None:
        try:
            return regex.Search(pattern, steps).found(text)
        except regex.BadPattern:
            raise BadPattern(told) from None
    steps.take(patterns.search_steps(pattern, text))
    try:
        return patterns.found(pattern, text)
    except UnicodeEncodeError:
        return False


def compile_steps(pattern: str) -> int:
    """Return how many steps it takes to make a pattern ready for use."""
    return patterns.COMPILE_STEPS if patterns.fault(pattern) is not None else patterns.compile_steps(pattern)


def fault(pattern: str) -> str | None:
    """Return why a text is no pattern that can be matched, or None if it is one."""
    told = patterns.fault(pattern)
    if told is None:
        return None
    try:
        regex.check(pattern)
    except regex.BadPattern:
        return told
    return None
