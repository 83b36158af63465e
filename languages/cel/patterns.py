"""Regular expressions for ``matches``: RE2's own, whose time is linear in the text whatever the pattern."""

from functools import lru_cache

import re2

from callboard.languages.cel.errors import EvaluationError, shown

PATTERNS_KEPT_MAX = 512
"""How many compiled patterns are kept."""


def matches(text: str, pattern: str) -> bool:
    """Say whether a pattern matches somewhere in a text.

    :raises EvaluationError: if the pattern is none of RE2's, or too large for it
    """
    try:
        return _compiled(pattern).search(text) is not None
    except UnicodeEncodeError:
        raise EvaluationError("a text holds half of a surrogate pair, which matches nothing") from None


@lru_cache(PATTERNS_KEPT_MAX)
def _compiled(pattern: str) -> "re2._Regexp[str]":
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args and type(error.args[0]) is bytes else str(error)
        raise EvaluationError(f"{shown(pattern)} is no regular expression of RE2: {reason}") from None
