"""The store of texts without another server: each text is a document of the memory's store, and a search compares all.

The search is exact, and finds texts with the very words of the query whatever their vectors. This limits their number.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

from anyio import to_thread

from callboard.actors.memory.embedder import Embedder, Vector, cosine, pack_vector, unpack_vector
from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.store import (
    Document,
    change_document,
    effect_failed,
    encode_document,
    includes_change,
    read,
    read_all,
    sweep_document,
)
from callboard.actors.memory.text_store import Embedding, StoredText, TextMatch, TextQuery, best_of, other_dimension
from callboard.bus.nats.key_value import Conflict, KeyValueEntry

TEXTS_MAX = 5_000
"""How many texts a memory holds: a search reads all of them."""

ANEW_MAX = 96
"""How many texts are embedded again before their vectors are stored: later requests may fail."""


class Exact:
    """Texts as documents."""

    async def keep(self, asked: MemoryOperation, texts: Sequence[StoredText], embedding: Embedding) -> None:
        by_key = {_key(asked, one.id): one for one in texts}
        held = await asked.store.keys(_below(asked))
        if len(by_key.keys() | held) > TEXTS_MAX:
            raise effect_failed("memory.full", f"a memory holds {TEXTS_MAX} texts at most, and has {len(held)}")
        # Texts that this effect has stored already need not be embedded again.
        here = {key: read(await asked.store.get(key)) for key in by_key.keys() & held}
        new = {key: one for key, one in by_key.items() if key not in here or not includes_change(here[key], asked.once)}
        vectors = await embedding.of([one.text for one in new.values()], "texts")
        for (key, one), vector in zip(new.items(), vectors, strict=True):
            document: Document = {**one._asdict(), "at_ms": asked.at_ms}
            document |= {"vector": pack_vector(vector), "embedder": embedding.embedder.name}
            await change_document(asked.store, key, asked.once, partial(Document.update, **document))

    async def find(self, asked: MemoryOperation, wanted: TextQuery, embedding: Embedding) -> list[TextMatch]:
        entries = await asked.store.below(_below(asked))
        read_too = zip(entries, await read_all(entries), strict=True)
        texts = [(entry, one) for entry, one in read_too if _fits(one["metadata"], wanted.filters)]
        if not texts:
            return []
        embedder = embedding.embedder
        [vector] = await embedding.of([wanted.query], "query")
        await _made_anew(embedding, [pair for pair in texts if pair[1]["embedder"] != embedder.name])
        return await to_thread.run_sync(_rank, embedder, [one for _, one in texts], vector, wanted)

    async def get(self, asked: MemoryOperation, ids: Sequence[str]) -> list[Document]:
        entries = [await asked.store.get(_key(asked, id)) for id in ids]
        return [read(entry) for entry in entries if entry is not None]

    async def delete(self, asked: MemoryOperation, ids: Sequence[str]) -> None:
        for id in ids:
            if entry := await asked.store.get(_key(asked, id)):
                await sweep_document(asked.store, entry)

    async def clear(self, asked: MemoryOperation) -> int:
        entries = await asked.store.below(_below(asked))
        for entry in entries:
            await sweep_document(asked.store, entry)
        return len(entries)

    async def aclose(self) -> None:
        """Do nothing: this store has no connections."""


def _below(asked: MemoryOperation) -> str:
    return f"{asked.place}.text"


def _key(asked: MemoryOperation, id: str) -> str:
    return f"{_below(asked)}.{sha256(id.encode('utf-8', 'replace')).hexdigest()[:40]}"


def _fits(metadata: Any, filters: Mapping[str, Any]) -> bool:
    if not filters:
        return True
    return isinstance(metadata, dict) and all(metadata.get(name) == value for name, value in filters.items())


async def _made_anew(embedding: Embedding, strange: Sequence[tuple[KeyValueEntry, Document]]) -> None:
    """Make new vectors for texts of another embedder. Those of a model are stored, so that they are paid for once."""
    asked = embedding.asked
    for start in range(0, len(strange), ANEW_MAX):
        part = strange[start : start + ANEW_MAX]
        vectors = await embedding.of([one["text"] for _, one in part], f"anew.{start}")
        for (entry, one), vector in zip(part, vectors, strict=True):
            one |= {"vector": pack_vector(vector), "embedder": embedding.embedder.name}
            if asked.spent.model:
                with suppress(Conflict):
                    await asked.store.put(entry.key, encode_document(one), entry.revision)


def _rank(embedder: Embedder, texts: list[Document], vector: Vector, wanted: TextQuery) -> list[TextMatch]:
    query = wanted.query.strip().lower()
    found: list[TextMatch] = []
    for one in texts:
        kept = unpack_vector(one["vector"])
        if len(kept) != len(vector):
            raise other_dimension(embedder.name, len(vector), len(kept))
        score = embedder.likeness(cosine(vector, kept))
        if query in one["text"].lower():
            score = max(score, wanted.least)
        found.append(TextMatch(one, score))
    return best_of(found, wanted)
