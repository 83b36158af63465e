"""Failure matching: whether a matcher, of a catch clause or a retry policy, selects a failure."""

from callboard.languages.flow.document import Matcher
from callboard.languages.flow.result import Result


def matches(matcher: Matcher, failed: Result) -> bool:
    """Whether every member of the matcher matches. An unset ``retryable`` matches neither true nor false."""
    if matcher.codes is not None and not any(code_matches(pattern, failed["code"]) for pattern in matcher.codes):
        return False
    if matcher.types is not None and failed["type"] not in matcher.types:
        return False
    return matcher.retryable is None or failed.get("retryable") is matcher.retryable


def code_matches(pattern: str, code: str) -> bool:
    """Match a code with ``A.B`` (exactly), ``A.*`` (what begins with these whole segments) or ``*``."""
    if pattern == "*":
        return True
    if pattern.endswith(".*"):
        return code.startswith(pattern[:-1]) and len(code) >= len(pattern)
    return pattern == code
