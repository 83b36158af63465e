"""The store port: keeps memories as small JSON documents under keys, changed one at a time.

Keys are tokens with dots between them, like NATS subjects. One effect makes a change at most once, however often the
effect is carried out: a document lists the idempotency keys of its latest changes.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Protocol

import anyio
import msgspec
from anyio import to_thread

from callboard.actors.carrier import EffectFailed
from callboard.bus.effects import Failure
from callboard.bus.nats.key_value import Conflict, KeyValueEntry
from callboard.bus.subjects import token
from callboard.lib.backoff import backoff_s
from callboard.lib.json_decoder import decode_json

DOCUMENT_BYTES_MAX = 512 * 1024
"""Maximum size of a document: it has to fit into a message with room to spare."""

APPLIED_MAX = 64
"""How many changes a document remembers; an effect is carried out again soon after, or not at all."""

ONCE_CHARS = 24
"""How many hex digits of an idempotency key are remembered."""

NAME_CHARS_MAX = 64
"""A name that is longer as a token appears in a key as its hash."""

TRIES_MAX = 12
TRY_AGAIN_S = 0.01
TRY_AGAIN_MAX_S = 1.0
"""How often a change is tried again after a conflict or without an answer, and the pauses between the tries."""

Document = dict[str, Any]


class Unavailable(EffectFailed):
    """A store does not answer; it may have carried out the request all the same."""

    def __init__(self, why: str) -> None:
        super().__init__(Failure("memory.unavailable", f"the store of memories: {why}", retryable=True))


class Store(Protocol):
    """Keeps documents. Every method raises `Unavailable` if the store cannot be reached."""

    async def get(self, key: str) -> KeyValueEntry | None: ...

    async def put(self, key: str, value: bytes, revision: int) -> None:
        """Write a document that has this revision, 0 if it must not exist.

        :raises Conflict: if it has another revision
        """
        ...

    async def delete(self, key: str, revision: int) -> None:
        """Remove a document that has this revision.

        :raises Conflict: if it has another revision, or does not exist
        """
        ...

    async def below(self, prefix: str) -> list[KeyValueEntry]:
        """Return all documents whose keys begin with these tokens, in the order of their keys."""
        ...

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys of these documents, in their order, without removed ones."""
        ...


def place_of(tenant: str, workflow_id: str, user_id: str, id: str) -> str:
    """Return the prefix of a memory's keys in the store."""
    return ".".join(map(_part, (tenant, workflow_id, user_id, id)))


def _part(name: str) -> str:
    """Return a name as one token of a key."""
    try:
        made = token(name)
    except ValueError:
        made = ""
    return made if 0 < len(made) <= NAME_CHARS_MAX else f"=={sha256(name.encode()).hexdigest()[:40]}"


def effect_failed(code: str, message: str, retryable: bool | None = False) -> EffectFailed:
    """Return the exception for a failure."""
    return EffectFailed(Failure(code, message, retryable=retryable))


def read(entry: KeyValueEntry | None) -> Document:
    """Return a document; an empty one if it does not exist."""
    return decode_json(entry.value) if entry is not None else {}


async def read_all(entries: Sequence[KeyValueEntry]) -> list[Document]:
    """Return these documents, decoded in a thread because there may be many."""
    return await to_thread.run_sync(lambda: [read(entry) for entry in entries])


def encode_document(document: Document) -> bytes:
    """Return a document in its stored form.

    :raises EffectFailed: ``memory.too_large``
    """
    body = msgspec.json.encode(document)
    if len(body) > DOCUMENT_BYTES_MAX:
        message = f"the document to be stored has {len(body)} bytes, the limit is {DOCUMENT_BYTES_MAX}"
        raise effect_failed("memory.too_large", message)
    return body


def includes_change(document: Document, once: str) -> bool:
    """Return whether a document includes the change of this effect."""
    return once[:ONCE_CHARS] in document.get("applied", [])


def surplus(document: Document, parts: Iterable[Any]) -> int:
    """Return how many of these parts of a document, from the first on, have to be removed for the rest to fit."""
    over = len(msgspec.json.encode(document)) - DOCUMENT_BYTES_MAX
    count = 0
    for part in parts:
        if over <= 0:
            break
        over -= len(msgspec.json.encode(part))
        count += 1
    return count


async def change_document(store: Store, key: str, once: str, change: Callable[[Document], None]) -> Document:
    """Change a document in place, unless ``once`` has changed it already; return it as it is then.

    An unanswered write may have been made all the same. That is checked here, because a later operation has another
    ``once``.

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
            # First, so that a change that makes room includes this in the document's size.
            document["applied"] = [*applied, once][-APPLIED_MAX:]
            change(document)
            try:
                await store.put(key, encode_document(document), entry.revision if entry is not None else 0)
                return document
            except Conflict:
                pass
            except Unavailable as error:
                unanswered = error
        await anyio.sleep(backoff_s(number, TRY_AGAIN_S, TRY_AGAIN_MAX_S))
    raise unanswered or effect_failed(
        "memory.contended", f"others changed the same document {TRIES_MAX} times in between", retryable=True
    )


async def sweep_document(store: Store, entry: KeyValueEntry) -> None:
    """Remove a document unless it has changed since it was read."""
    with suppress(Conflict):
        await store.delete(entry.key, entry.revision)


class InMemory:
    """A store in memory, which ends with its process."""

    def __init__(self) -> None:
        self._entries: dict[str, KeyValueEntry] = {}
        self._revision = 0

    async def get(self, key: str) -> KeyValueEntry | None:
        return self._entries.get(key)

    async def put(self, key: str, value: bytes, revision: int) -> None:
        found = self._entries.get(key)
        if (found.revision if found is not None else 0) != revision:
            raise Conflict
        self._revision += 1
        self._entries[key] = KeyValueEntry(key, value, self._revision)

    async def delete(self, key: str, revision: int) -> None:
        found = self._entries.get(key)
        if found is None or found.revision != revision:
            raise Conflict
        del self._entries[key]

    async def below(self, prefix: str) -> list[KeyValueEntry]:
        return [entry for key, entry in sorted(self._entries.items()) if key.startswith(f"{prefix}.")]

    async def keys(self, prefix: str) -> list[str]:
        return [entry.key for entry in await self.below(prefix)]
