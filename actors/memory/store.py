"""The store port: where memories are kept, as small JSON documents under keys, changed one at a time.

Keys are tokens with dots between them, as NATS has them. A change is made at most once for one effect, however often
that is carried out: a document lists the idempotency keys of its latest changes.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import anyio
import msgspec
from anyio import to_thread

from callboard.actors.carrier import EffectFailed
from callboard.bus.backoff import backoff_s
from callboard.bus.decoding import decode_json
from callboard.bus.effects import Failure

DOCUMENT_BYTES_MAX = 512 * 1024
"""How large a document may be: it has to fit a message with room to spare."""

APPLIED_MAX = 64
"""So many changes are remembered; an effect is carried out again soon after, or not at all."""

ONCE_CHARS = 24
"""How much of an idempotency key, in hex, is remembered."""

TRIES_MAX = 12
TRY_AGAIN_S = 0.01
TRY_AGAIN_MAX_S = 1.0
"""How often a change is made anew because another one came between or nothing was answered, and how long after."""

Document = dict[str, Any]


class Conflict(Exception):
    """A document has another revision than was expected."""


class Unavailable(EffectFailed):
    """A store does not answer: what it was told to do, it may have done."""

    def __init__(self, why: str) -> None:
        super().__init__(Failure("memory.unavailable", f"the store of memories: {why}", retryable=True))


class Entry(NamedTuple):
    """A document as it is stored."""

    key: str
    value: bytes
    revision: int


class Store(Protocol):
    """Keeps documents. Every method raises `Unavailable` if it cannot be reached."""

    async def get(self, key: str) -> Entry | None: ...

    async def put(self, key: str, value: bytes, revision: int) -> None:
        """Write a document that has this revision, 0 if there must be none.

        :raises Conflict: if it has another one
        """
        ...

    async def delete(self, key: str, revision: int) -> None:
        """Remove a document that has this revision.

        :raises Conflict: if it has another one, or is gone
        """
        ...

    async def below(self, prefix: str) -> list[Entry]:
        """Return all documents whose keys begin with these tokens, in the order of their keys."""
        ...

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys of these documents, in their order; none that was removed is among them."""
        ...


def failed(code: str, message: str, retryable: bool | None = False) -> EffectFailed:
    """Build the exception of a failure."""
    return EffectFailed(Failure(code, message, retryable=retryable))


def read(entry: Entry | None) -> Document:
    """Return a document; an empty one where there is none."""
    return decode_json(entry.value) if entry is not None else {}


async def read_all(entries: Sequence[Entry]) -> list[Document]:
    """Return these documents; in a thread, for there may be many."""
    return await to_thread.run_sync(lambda: [read(entry) for entry in entries])


def encoded(document: Document) -> bytes:
    """Write a document.

    :raises EffectFailed: ``memory.too_large``
    """
    body = msgspec.json.encode(document)
    if len(body) > DOCUMENT_BYTES_MAX:
        raise failed("memory.too_large", f"what is to be kept has {len(body)} bytes, the limit is {DOCUMENT_BYTES_MAX}")
    return body


def seen(document: Document, once: str) -> bool:
    """Whether a document has seen the change of this effect."""
    return once[:ONCE_CHARS] in document.get("applied", [])


def surplus(document: Document, parts: Iterable[Any]) -> int:
    """Say how many of these parts of a document, from the first on, have to go for the rest to fit."""
    over = len(msgspec.json.encode(document)) - DOCUMENT_BYTES_MAX
    count = 0
    for part in parts:
        if over <= 0:
            break
        over -= len(msgspec.json.encode(part))
        count += 1
    return count


async def changed(store: Store, key: str, once: str, change: Callable[[Document], None]) -> Document:
    """Change a document in place, unless that has been done for ``once``; return it as it is then.

    A write that is not answered may have been made all the same, and whoever tries again later has another ``once``: so
    it is found out here.

    :raises EffectFailed: ``memory.contended``, ``memory.too_large``, ``memory.unavailable``
    """
    once = once[:ONCE_CHARS]
    unanswered: Unavailable | None = None
    for number in range(1, TRIES_MAX + 1):
        try:
            entry = await store.get(key)
        except Unavailable:
            if unanswered is None:
                raise
        else:
            document = read(entry)
            applied: list[str] = document.get("applied", [])
            if once in applied:
                return document
            # First, so that whoever makes room knows how large all of it is.
            document["applied"] = [*applied, once][-APPLIED_MAX:]
            change(document)
            try:
                await store.put(key, encoded(document), entry.revision if entry is not None else 0)
                return document
            except Conflict:
                pass
            except Unavailable as error:
                unanswered = error
        await anyio.sleep(backoff_s(number, TRY_AGAIN_S, TRY_AGAIN_MAX_S))
    raise unanswered or failed(
        "memory.contended", f"others changed the same {TRIES_MAX} times in between", retryable=True
    )


async def swept(store: Store, entry: Entry) -> None:
    """Remove a document as it was read: what others have written since stays."""
    with suppress(Conflict):
        await store.delete(entry.key, entry.revision)


class InMemory:
    """A store that is gone with its process."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._revision = 0

    async def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    async def put(self, key: str, value: bytes, revision: int) -> None:
        found = self._entries.get(key)
        if (found.revision if found is not None else 0) != revision:
            raise Conflict
        self._revision += 1
        self._entries[key] = Entry(key, value, self._revision)

    async def delete(self, key: str, revision: int) -> None:
        found = self._entries.get(key)
        if found is None or found.revision != revision:
            raise Conflict
        del self._entries[key]

    async def below(self, prefix: str) -> list[Entry]:
        return [entry for key, entry in sorted(self._entries.items()) if key.startswith(f"{prefix}.")]

    async def keys(self, prefix: str) -> list[str]:
        return [entry.key for entry in await self.below(prefix)]
