"""Rate limits: a token bucket per caller, refilled at a steady rate."""

from collections import OrderedDict

from msgspec import Struct

BUCKETS_MAX = 10_000
"""Limit of the buckets in memory; the least recently used are dropped, and their callers begin with a full bucket."""


class _Bucket(Struct):
    tokens: float
    at: float


class Rates:
    """Token buckets by name: ``per_s`` tokens are added per second, up to ``burst``."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, name: str, now: float) -> float:
        """Take a token and return 0; if the bucket is empty, return the seconds until the next token."""
        bucket = self._buckets.pop(name, None) or _Bucket(self._burst, now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._per_s)
        bucket.at = now
        self._buckets[name] = bucket
        while len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._per_s
        bucket.tokens -= 1
        return 0.0
