"""Regular expressions of RE2, which match in time linear in the length of the text for every pattern."""

from functools import lru_cache
from typing import Any

import re2

from callboard.lib.step_limits import Steps

PATTERNS_KEPT_MAX = 256
"""Number of compiled patterns in the cache."""

STEPS_MAX = 1_000_000
"""Maximum number of steps of a single search, some tenths of a second."""

PATTERN_BYTES_MAX = 1024 * 1024
"""Maximum memory of a compiled pattern. A pattern that needs more is refused. This also limits the time to compile."""

COMPILE_STEPS = 1_000
"""Steps for compiling a pattern, in addition to one for each of its instructions."""

TOO_LARGE_STEPS = 50_000
"""Steps for compiling a pattern that is refused because it is too large."""

SEARCH_STEPS = 6
"""Steps for a search, in addition to those for executing the pattern."""

INSTRUCTIONS_PER_STEP = 128
"""Number of executed instructions that count as one step. In the worst case, each character executes all of them."""


class BadPattern(ValueError):
    """A text is not a valid regular expression for RE2, or it is too large. The message is the reason."""


def fault(pattern: str) -> str | None:
    """Return why a text is not a valid regular expression for RE2, or None if it is."""
    found = _compile(pattern)
    return found if isinstance(found, str) else None


def compile_steps(pattern: str) -> int:
    """Return the number of steps for compiling a pattern, or for finding out that it is invalid."""
    return _compile_steps(_compile(pattern))


def _compile_steps(compiled: Any) -> int:
    if isinstance(compiled, str):
        return TOO_LARGE_STEPS if "too large" in compiled else COMPILE_STEPS
    return COMPILE_STEPS + compiled.programsize


class Patterns:
    """The patterns of one task. Each is compiled once, and all work with them is counted in ``steps``."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._ready: dict[str, Any] = {}

    def found(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches somewhere in a text.

        The time grows at most with the length of the text times the size of the pattern.

        :raises BadPattern: if the pattern is invalid
        :raises UnicodeEncodeError: if the text contains half of a surrogate pair
        :raises TooManySteps: if the search exceeds the limit of steps
        """
        compiled = self._ready.get(pattern)
        if compiled is None:
            compiled = self._ready[pattern] = _compile(pattern)
            self._steps.take(_compile_steps(compiled))
        if isinstance(compiled, str):
            raise BadPattern(compiled)
        self._steps.take(SEARCH_STEPS + len(text) * compiled.programsize // INSTRUCTIONS_PER_STEP)
        return compiled.search(text) is not None


def found(pattern: str, text: str) -> bool:
    """Return whether a pattern matches somewhere in a text.

    :raises BadPattern: if the pattern is invalid
    :raises UnicodeEncodeError: if the text contains half of a surrogate pair
    :raises TooManySteps: if the search takes more than `STEPS_MAX` steps
    """
    return Patterns(Steps(STEPS_MAX)).found(pattern, text)


@lru_cache(PATTERNS_KEPT_MAX)
def _compile(pattern: str) -> Any:
    """Return a compiled pattern, or the reason why it is invalid. Both are cached."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        return error.args[0].decode(errors="replace") if error.args and type(error.args[0]) is bytes else str(error)
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair"
