"""Rates: how often somebody may ask, as a bucket of tokens each that fills again at a steady rate."""

from collections import OrderedDict

from msgspec import Struct

BUCKETS_MAX = 10_000
"""Those that are remembered; whoever was forgotten begins with a full bucket, and was not here for long."""


class _Bucket(Struct):
    tokens: float
    at: float


class Rates:
    """Buckets by name: ``per_s`` tokens come in a second, and ``burst`` of them are the most that there are."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, name: str, now: float) -> float:
        """Take a token; return 0, or, where there is none, after how many seconds there will be one."""
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
