"""Patterns of JSON Schemas. RE2 matches those that it supports, our JavaScript engine the others. Both count steps.

JSON Schema uses JavaScript's regular expressions. Generated schemas often use lookaround, which RE2 does not support,
but our JavaScript engine does. Because both engines count steps, no schema or value can block an interpreter.
"""

from callboard.lib import patterns
from callboard.lib.javascript import regex
from callboard.lib.patterns import BadPattern
from callboard.lib.step_limits import Steps


class SchemaPatterns:
    """The patterns of one application of a schema: each is compiled once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._linear = patterns.Patterns(steps)
        self._others: dict[str, regex.Search] = {}

    def found(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches somewhere in a text.

        With RE2, no pattern matches in a text that contains half of a surrogate pair.

        :raises InvalidRegex: if the pattern is invalid
        :raises TooManySteps: if it takes too many steps
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
            except regex.InvalidRegex:
                raise told from None
            return other.found(text)


def fault(pattern: str) -> str | None:
    """Return why a text is not a pattern that can be matched, or None if it is."""
    told = patterns.fault(pattern)
    if told is None:
        return None
    try:
        regex.check(pattern)
    except regex.InvalidRegex:
        return told
    return None
