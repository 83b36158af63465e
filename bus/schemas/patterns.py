"""Patterns of JSON Schemas: RE2's where it can read them, JavaScript's where it cannot. Either counts its steps.

JSON Schema means JavaScript's regular expressions. Generated schemas are full of lookaround, which RE2 has not; our own
matcher of JavaScript's has it. So no schema and no value can hold up an interpreter.
"""

from callboard.bus import patterns
from callboard.bus.javascript import regex
from callboard.bus.patterns import BadPattern
from callboard.bus.steps import Steps


class SchemaPatterns:
    """The patterns of one application of a schema: each is compiled once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._linear = patterns.Patterns(steps)
        self._others: dict[str, regex.Search] = {}

    def found(self, pattern: str, text: str) -> bool:
        """Say whether a pattern matches somewhere in a text; in one with half of a surrogate pair nothing does.

        :raises BadPattern: if it is none
        :raises TooManySteps: if it takes too many
        """
        if (other := self._others.get(pattern)) is not None:
            return other.found(text)
        try:
            return self._linear.found(pattern, text)
        except UnicodeEncodeError:
            return False
        except BadPattern as told:
            try:
                other = self._others[pattern] = regex.Search(pattern, self._steps)
            except regex.BadPattern:
                raise told from None
            return other.found(text)


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
