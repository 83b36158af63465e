"""Backoff: the pauses between tries, each twice as long as the one before, up to a bound."""

DOUBLINGS_MAX = 60
"""Beyond this a float would only grow."""


def backoff_s(tried: int, first_s: float, most_s: float) -> float:
    """Return how long to wait after so many tries, from 1, in seconds."""
    return min(first_s * 2 ** min(max(tried, 1) - 1, DOUBLINGS_MAX), most_s)
