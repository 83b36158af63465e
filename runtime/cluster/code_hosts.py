"""Code hosts: which workers have the code of which entry points, as their beats report it.

A beat has the first characters of each digest, so that it stays small.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b

SHORT = 16
"""Characters of a digest in a beat."""

Code = Mapping[str, list[str]]
"""Short digests by entry point."""


def short_code(entries: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the digests of each entry point as they are in a beat."""
    return {entry: [digest[:SHORT] for digest in digests] for entry, digests in entries.items()}


class CodeHosts:
    """The code of this worker, whose digests by entry point ``entries`` returns, and of the others."""

    def __init__(self, worker: str, entries: Callable[[], Mapping[str, list[str]]]) -> None:
        self._worker = worker
        self._entries = entries
        self._others: dict[str, Code] = {}
        self._last: dict[str, str] = {}

    def mine(self) -> dict[str, list[str]]:
        """Return the code of this worker as it is in a beat."""
        return short_code(self._entries())

    def report(self, worker: str, code: Code) -> bool:
        """Note the code of another worker; return whether it has changed."""
        changed = self._others.get(worker, {}) != code
        if code:
            self._others[worker] = code
            self._last |= dict.fromkeys(code, worker)
        else:
            self._others.pop(worker, None)
        return changed

    def forget(self, worker: str) -> None:
        """Note that a worker is gone."""
        self._others.pop(worker, None)

    @property
    def differ(self) -> bool:
        """Whether another worker has code that this one does not have."""
        mine = self.mine()
        return any(
            not set(digests) <= set(mine.get(entry, ()))
            for code in self._others.values()
            for entry, digests in code.items()
        )

    def home(self, entry: str, digest: str, live: Collection[str]) -> str:
        """Return the live worker that is to perform runs of an entry point, maybe this one; empty if none has its code.

        The same digest is preferred to another, and this worker to others.
        """
        having = {worker: code.get(entry, []) for worker, code in self._others.items() if worker in live}
        having[self._worker] = self.mine().get(entry, [])
        same = [worker for worker, digests in having.items() if digest[:SHORT] in digests]
        able = same or [worker for worker, digests in having.items() if digests]
        if self._worker in able:
            return self._worker
        return owner(entry, able) if able else ""

    def last(self, entry: str) -> str:
        """Return the worker that had an entry point last; empty if none is known."""
        return self._last.get(entry, "")


def owner(partition: int | str, workers: Iterable[str]) -> str:
    """Return the worker that reads a partition (rendezvous hashing)."""
    return max(workers, key=lambda worker: (blake2b(f"{partition}/{worker}".encode(), digest_size=8).digest(), worker))
