"""Ownership: which of several workers a partition, or anything else that has a name, falls to."""

from collections.abc import Iterable
from hashlib import blake2b


def owner(partition: int | str, workers: Iterable[str]) -> str:
    """Return the worker that reads a partition (rendezvous hashing)."""
    return max(workers, key=lambda worker: (blake2b(f"{partition}/{worker}".encode(), digest_size=8).digest(), worker))
