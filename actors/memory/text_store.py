"""The port of stores of texts with their vectors, and their common parts.

A store finds the texts of a memory by its place, which begins with the tenant. A text has an id in its memory. Storing
the id again replaces the text; carrying the same effect out again changes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from callboard.actors.memory.embedder import Embedder, EmbeddingFailed, Vector
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
