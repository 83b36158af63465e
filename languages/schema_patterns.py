"""Patterns of JSON Schemas: RE2's where it can read them, JavaScript's within a bound where it cannot.

JSON Schema means JavaScript's regular expressions. Generated schemas are full of lookaround, which RE2 has not; our own
matcher of JavaScript's has it, and counts its steps. So no schema and no value can hold up an interpreter.
"""

from callboard.languages import patterns
from callboard.languages.javascript import regex
from callboard.languages.patterns import BadPattern


def found(pattern: str, text: str) -> bool:
    """Say whether a pattern matches somewhere in a text; in one with half of a surrogate pair nothing does.

    :raises BadPattern: if it is none, or takes too many steps
    """
    try:
        return patterns.found(pattern, text)
    except UnicodeEncodeError:
        return False
    except BadPattern as fault:
        try:
            return regex.Search(pattern).found(text)
        except regex.BadPattern:
            raise fault from None
        except regex.TooManySteps:
            raise BadPattern(f"{pattern!r} takes too long") from None


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
