"""Regular expressions: RE2's own, whose time is linear in the text whatever the pattern."""

from functools import lru_cache
from typing import Any

import re2

PATTERNS_KEPT_MAX = 512
"""How many compiled patterns are kept."""


class BadPattern(ValueError):
    """A text is no regular expression of RE2's, or one too large for it; the message says why, in a few words."""


def fault(pattern: str) -> str | None:
    """Return why a text is no regular expression of RE2's, or None if it is one."""
    try:
        _compiled(pattern)
    except BadPattern as bad:
        return str(bad)
    return None


def found(pattern: str, text: str) -> bool:
    """Say whether a pattern matches somewhere in a text.

    :raises BadPattern: if it is none
    :raises UnicodeEncodeError: if the text holds half of a surrogate pair
    """
    return _compiled(pattern).search(text) is not None


@lru_cache(PATTERNS_KEPT_MAX)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args and type(error.args[0]) is bytes else str(error)
        raise BadPattern(reason) from None
    except UnicodeEncodeError:
        raise BadPattern("it holds half of a surrogate pair") from None
