"""Backoff: pauses between attempts, each twice as long as the previous one, up to a maximum."""

DOUBLINGS_MAX = 60
"""Maximum number of doublings. More would only make the float overflow."""


def backoff_s(tried: int, first_s: float, most_s: float) -> float:
    """Return how many seconds to wait after attempt ``tried``, counted from 1."""
    return min(first_s * 2 ** min(max(tried, 1) - 1, DOUBLINGS_MAX), most_s)
