"""Regular expressions: RE2's own, whose time is linear in the text whatever the pattern."""

from functools import lru_cache
from typing import Any

import re2

PATTERNS_KEPT_MAX = 256
"""How many compiled patterns are kept."""

PATTERN_BYTES_MAX = 4 * 1024 * 1024
"""How much memory a compiled pattern may take. One that would need more is refused; making one takes that long, too."""

COMPILE_STEPS = 1_000
"""Steps for compiling a pattern, besides one for each of the instructions that it becomes."""

INSTRUCTIONS_PER_STEP = 128
"""How many instructions of a pattern are one step, where they are followed: at worst all, for each character."""


class BadPattern(ValueError):
    """A text is no regular expression of RE2's, or one too large for it; the message says why, in a few words."""


def fault(pattern: str) -> str | None:
    """Return why a text is no regular expression of RE2's, or None if it is one."""
    found = _compiled(pattern)
    return found if isinstance(found, str) else None


def compile_steps(pattern: str) -> int:
    """Return how many steps it takes to make a pattern ready for use.

    :raises BadPattern: if it is none
    """
    return COMPILE_STEPS + _sound(pattern).programsize


def search_steps(pattern: str, text: str) -> int:
    """Return how many steps it takes to look for a pattern in a text.

    That grows with the text, and at worst with the pattern: not more than each with each.

    :raises BadPattern: if it is none
    """
    return 1 + len(text) * _sound(pattern).programsize // INSTRUCTIONS_PER_STEP


def found(pattern: str, text: str) -> bool:
    """Say whether a pattern matches somewhere in a text.

    :raises BadPattern: if it is none
    :raises UnicodeEncodeError: if the text holds half of a surrogate pair
    """
    return _sound(pattern).search(text) is not None


def _sound(pattern: str) -> Any:
    found = _compiled(pattern)
    if isinstance(found, str):
        raise BadPattern(found)
    return found


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
