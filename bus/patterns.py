"""Regular expressions: RE2's own, whose time is linear in the text whatever the pattern."""

from functools import lru_cache
from typing import Any

import re2

from callboard.bus.steps import Steps

PATTERNS_KEPT_MAX = 256
"""How many compiled patterns are kept."""

STEPS_MAX = 1_000_000
"""How many steps a single search may take, some tenths of a second."""

PATTERN_BYTES_MAX = 1024 * 1024
"""How much memory a compiled pattern may take. One that would need more is refused; making one takes that long, too."""

COMPILE_STEPS = 1_000
"""Steps for compiling a pattern, besides one for each of the instructions that it becomes."""

TOO_LARGE_STEPS = 50_000
"""Steps for a pattern that turns out to be too large."""

SEARCH_STEPS = 6
"""Steps for a search, besides those for following the pattern."""

INSTRUCTIONS_PER_STEP = 128
"""How many instructions of a pattern are one step, where they are followed: at worst all, for each character."""


class BadPattern(ValueError):
    """A text is no regular expression of RE2's, or one too large for it; the message says why, in a few words."""


def fault(pattern: str) -> str | None:
    """Return why a text is no regular expression of RE2's, or None if it is one."""
    found = _compiled(pattern)
    return found if isinstance(found, str) else None


def compile_steps(pattern: str) -> int:
    """Return how many steps it takes to make a pattern ready for use, or to find out that it is none."""
    return _compile_steps(_compiled(pattern))


def _compile_steps(compiled: Any) -> int:
    if isinstance(compiled, str):
        return TOO_LARGE_STEPS if "too large" in compiled else COMPILE_STEPS
    return COMPILE_STEPS + compiled.programsize


class Patterns:
    """The patterns of one piece of work: each is compiled once, and whatever is done with them is counted."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._ready: dict[str, Any] = {}

    def found(self, pattern: str, text: str) -> bool:
        """Say whether a pattern matches somewhere in a text.

        How long that takes grows with the text, and at worst with the pattern: not more than each with each.

        :raises BadPattern: if it is none
        :raises UnicodeEncodeError: if the text holds half of a surrogate pair
        :raises TooManySteps: if it takes too many
        """
        compiled = self._ready.get(pattern)
        if compiled is None:
            compiled = self._ready[pattern] = _compiled(pattern)
            self._steps.take(_compile_steps(compiled))
        if isinstance(compiled, str):
            raise BadPattern(compiled)
        self._steps.take(SEARCH_STEPS + len(text) * compiled.programsize // INSTRUCTIONS_PER_STEP)
        return compiled.search(text) is not None


def found(pattern: str, text: str) -> bool:
    """Say whether a pattern matches somewhere in a text.

    :raises BadPattern: if it is none
    :raises UnicodeEncodeError: if the text holds half of a surrogate pair
    :raises TooManySteps: if it takes more than `STEPS_MAX`
    """
    return Patterns(Steps(STEPS_MAX)).found(pattern, text)


@lru_cache(PATTERNS_KEPT_MAX)
def _compiled(pattern: str) -> Any:
    """Return a compiled pattern, or why it is none: that is kept as well."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        return error.args[0].decode(errors="replace") if error.args and type(error.args[0]) is bytes else str(error)
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair"
