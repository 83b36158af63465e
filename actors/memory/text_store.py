"""The memory of texts, searched by meaning, and the port of the stores that have the texts with their vectors.

A store finds the texts of a memory by its place, which begins with the tenant. A text has an id in its memory. Storing
the id again replaces the text; carrying the same effect out again changes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from callboard.actors.memory.embedder import Embedder, EmbeddingFailed, Vector
from callboard.actors.memory.embedders import EmbedderOf
from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.store import Document, effect_failed
from callboard.lib.canonical_json import canonical

SLUG_CHARS_MAX = 16
"""How much of a tenant's name is readable in the name of a collection."""


class StoredText(NamedTuple):
    """A text to store."""

    id: str
    text: str
    metadata: Any


class TextMatch(NamedTuple):
    """A text that was found, with its similarity to the query, from 0 to 1."""

    document: Document
    score: float


class TextQuery(Struct, frozen=True):
    """A search: texts like ``query`` with this metadata, with a similarity of at least ``least``, at most ``most``."""

    query: str
    filters: Mapping[str, Any]
    least: float
    most: int


class Embedding(Struct, frozen=True):
    """An embedder at work for one operation, which is charged its usage."""

    embedder: Embedder
    asked: MemoryOperation

    async def of(self, texts: Sequence[str], part: str) -> list[Vector]:
        """Return a vector of each text; ``part`` distinguishes the requests of one operation."""
        try:
            made = await self.embedder.embed(texts, f"{self.asked.once}.{part}")
        except EmbeddingFailed as failed:
            if failed.usage.tokens:
                self.asked.spent.add(failed.model, failed.usage, failed.requests)
            raise
        if made.model:
            self.asked.spent.add(made.model, made.usage, made.requests, unmetered=made.unmetered)
        return made.vectors


class TextStore(Protocol):
    """Keeps texts. Methods raise `Unavailable` if the store cannot be reached, ``memory.refused`` if it refuses.

    Documents have ``id``, ``text``, ``metadata`` and ``at_ms``.
    """

    async def keep(self, asked: MemoryOperation, texts: Sequence[StoredText], embedding: Embedding) -> None:
        """Store texts, no two of which have the same id, once per effect.

        :raises EffectFailed: ``memory.full``, ``memory.too_large``, ``memory.dimension``
        """
        ...

    async def find(self, asked: MemoryOperation, wanted: TextQuery, embedding: Embedding) -> list[TextMatch]:
        """Return the most similar texts, in this order.

        :raises EffectFailed: ``memory.dimension``, ``memory.embedder``
        """
        ...

    async def get(self, asked: MemoryOperation, ids: Sequence[str]) -> list[Document]: ...

    async def delete(self, asked: MemoryOperation, ids: Sequence[str]) -> None: ...

    async def clear(self, asked: MemoryOperation) -> int:
        """Remove all texts; return how many there were."""
        ...


def collection_of(namespace: str, place: str) -> str:
    """Return the name of a memory's collection or table. Two memories, and so two tenants, never have the same.

    ``namespace`` is that of the stream, because several streams may use one server.
    """
    slug = re.sub(r"[^a-z0-9]+", "_", place.partition(".")[0].lower())[:SLUG_CHARS_MAX].strip("_")
    return f"cb_{slug}_{sha256(f'{namespace} {place}'.encode()).hexdigest()[:40]}"


def facets_of(metadata: Any) -> list[str]:
    """Return a hash of each member of a text's metadata, for filters: servers compare values in different ways."""
    return sorted(facet_of(name, value) for name, value in metadata.items()) if isinstance(metadata, dict) else []


def facet_of(name: str, value: Any) -> str:
    """Return the hash of a member."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return sha256(canonical([name, value])).hexdigest()[:32]


def best_of(found: Sequence[TextMatch], wanted: TextQuery) -> list[TextMatch]:
    """Return the texts that are similar enough, the most similar first, at most as many as wanted."""
    enough = [TextMatch(one, round(score, 6)) for one, score in found if score >= wanted.least]
    return sorted(enough, key=lambda one: (-one.score, one.document["at_ms"], one.document["id"]))[: wanted.most]


def other_dimension(embedder: str, has: int, kept: int) -> Exception:
    """Return the failure of an embedder whose vectors cannot be compared with the stored ones."""
    message = f"vectors of {embedder} have {has} dimensions, those of the memory {kept}: clear it, or name their model"
    return effect_failed("memory.dimension", message)


def other_embedder(embedder: str, count: int) -> Exception:
    """Return the failure of a search if all stored texts have vectors of other embedders."""
    message = f"{count} texts of the memory were not embedded by {embedder}: clear it, or name the model that did"
    return effect_failed("memory.embedder", message)


RESULTS = 5
THRESHOLD = 0.7
"""The defaults of the graph language's tables."""

ITEMS_MAX = 500
"""How many texts one operation may store."""

TEXT_CHARS_MAX = 32 * 1024
TEXT_CHARS_TOLD = 2_000
"""A longer text, or query, is truncated; an agent gets at most this much of a text."""

OPERATIONS = ("search", "store", "get", "delete", "clear")


class TextMemory:
    """Texts, in a store of them."""

    def __init__(self, store: TextStore, embedder_of: EmbedderOf) -> None:
        self._store = store
        self._embedder_of = embedder_of

    async def carry(self, asked: MemoryOperation) -> Any:
        """Carry an operation of a memory of texts out."""
        match asked.operation:
            case "get_context" if not asked.own:
                return _context(await self._found(asked, str(asked.brought.get("query", ""))))
            case "store" if not asked.own:
                # The same text in two effects is two episodes; one effect carried out twice is one.
                text = str(asked.brought.get("text", ""))[:TEXT_CHARS_MAX]
                await self._keep(asked, [StoredText(asked.once[:32], text, asked.brought.get("metadata"))])
                return {}
            case "search" | "retrieve" | "get_context":
                return _to_payload(await self._found(asked, asked.text("query", "text", "message")))
            case "store" | "add" | "upsert":
                items = _items(asked)
                await self._keep(asked, items)
                return {"success": True, "results": [{"id": one.id} for one in items], "total_results": len(items)}
            case "get":
                return _to_payload([TextMatch(one, 1.0) for one in await self._store.get(asked, _ids(asked))])
            case "delete":
                ids = _ids(asked)
                await self._store.delete(asked, ids)
                return {"success": True, "total_results": len(ids)}
            case "clear":
                return {"success": True, "total_results": await self._store.clear(asked)}
            case _:
                raise asked.unknown_operation(*OPERATIONS)

    async def _embedding(self, asked: MemoryOperation) -> Embedding:
        return Embedding(await self._embedder_of(asked.settings), asked)

    async def _keep(self, asked: MemoryOperation, items: Sequence[StoredText]) -> None:
        # Of several texts with the same id, the last one counts.
        distinct = {one.id: one for one in items}
        await self._store.keep(asked, list(distinct.values()), await self._embedding(asked))

    async def _found(self, asked: MemoryOperation, query: str) -> list[TextMatch]:
        """Return the texts that are most similar to a query, with their similarity, the most similar first."""
        query = query[:TEXT_CHARS_MAX]
        if not query.strip():
            return []
        filters = asked.first_given("filters")
        wanted = TextQuery(
            query=query,
            filters=filters if isinstance(filters, dict) else {},
            least=asked.number("similarity_threshold", THRESHOLD),
            most=max(1, int(asked.number("max_results", RESULTS))),
        )
        return await self._store.find(asked, wanted, await self._embedding(asked))


def _items(asked: MemoryOperation) -> list[StoredText]:
    """Return the texts of a node's input: a list of items, or a single one.

    :raises EffectFailed: ``memory.malformed``, ``memory.full``
    """
    given = asked.first_given("items")
    if not isinstance(given, list):
        own = asked.brought.get("input")
        text = asked.text("text", "content", "document", "query")
        given = [{**own, "text": text} if isinstance(own, dict) else text]
    if len(given) > ITEMS_MAX:
        raise effect_failed("memory.full", f"one operation keeps {ITEMS_MAX} texts at most, not {len(given)}")
    return [_item(one) for one in given]


def _item(given: Any) -> StoredText:
    own: dict[str, Any] = given if isinstance(given, dict) else {"text": given}
    text = own.get("text") or own.get("content")
    if not isinstance(text, str) or not text.strip():
        raise effect_failed("memory.malformed", "a text to be kept is a text, or an object with `text` or `content`")
    id = own.get("id") or sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
    return StoredText(str(id), text[:TEXT_CHARS_MAX], own.get("metadata"))


def _ids(asked: MemoryOperation) -> list[str]:
    given = asked.first_given("ids", "id")
    ids = given if isinstance(given, list) else [] if given is None else [given]
    return list(dict.fromkeys(map(str, ids)))


def _to_payload(found: list[TextMatch]) -> dict[str, Any]:
    results = [{"id": one["id"], "text": one["text"], "metadata": one["metadata"], "score": at} for one, at in found]
    return {"success": True, "results": results, "scores": [at for _, at in found], "total_results": len(found)}


def _context(found: list[TextMatch]) -> dict[str, Any]:
    lines = [f"- {one['text'][:TEXT_CHARS_TOLD]}" for one, _ in found]
    return {"context": "\n".join(lines)} if lines else {}
