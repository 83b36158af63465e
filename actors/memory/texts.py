"""The memory of texts, found again by what they are about: documents, episodes, knowledge. Each is a document.

The search is exact: every text's vector is compared, which bounds how many there may be.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from anyio import to_thread

from callboard.actors.memory.asked import Asked
from callboard.actors.memory.embedders import EmbedderOf
from callboard.actors.memory.embedding import Embedder, Vector, cosine, packed, unpacked
from callboard.actors.memory.store import Conflict, Document, Entry, changed, encoded, failed, read_all, swept

TEXTS_MAX = 5_000
"""How many texts a memory holds: a search reads them all."""

RESULTS = 5
THRESHOLD = 0.7
"""What the tables of the graph language say where a node does not."""

ITEMS_MAX = 500
"""How many texts one operation may bring."""

TEXT_CHARS_MAX = 32 * 1024
TEXT_CHARS_TOLD = 2_000
"""A longer text is kept, and looked for, with its end cut off; so much of it is told to an agent."""

OPERATIONS = ("search", "store", "get", "delete", "clear")


class _Text(NamedTuple):
    id: str
    text: str
    metadata: Any


class Texts:
    """Texts with their vectors."""

    def __init__(self, embedder_of: EmbedderOf) -> None:
        self._embedder_of = embedder_of

    async def carry(self, asked: Asked) -> Any:
        """Carry an operation of a memory of texts out."""
        match asked.operation:
            case "get_context" if not asked.own:
                return _context(await self._found(asked, str(asked.brought.get("query", ""))))
            case "store" if not asked.own:
                # Said twice, it is two episodes; carried out twice, one.
                text = str(asked.brought.get("text", ""))[:TEXT_CHARS_MAX]
                await self._keep(asked, [_Text(asked.once[:32], text, asked.brought.get("metadata"))])
                return {}
            case "search" | "retrieve" | "get_context":
                return _told(await self._found(asked, asked.text("query", "text", "message")))
            case "store" | "add" | "upsert":
                items = _items(asked)
                await self._keep(asked, items)
                return {"success": True, "results": [{"id": one.id} for one in items], "total_results": len(items)}
            case "get":
                wanted = set(_ids(asked))
                return _told([(one, 1.0) for one in await _all(asked) if one["id"] in wanted])
            case "delete":
                ids = _ids(asked)
                for id in ids:
                    if entry := await asked.store.get(_key(asked, id)):
                        await swept(asked.store, entry)
                return {"success": True, "total_results": len(ids)}
            case "clear":
                entries = await asked.store.below(f"{asked.place}.text")
                for entry in entries:
                    await swept(asked.store, entry)
                return {"success": True, "total_results": len(entries)}
            case _:
                raise asked.unknown(*OPERATIONS)

    async def _keep(self, asked: Asked, items: Sequence[_Text]) -> None:
        # Of those with the same id the last one counts.
        by_key = {_key(asked, one.id): one for one in items}
        held = await asked.store.keys(f"{asked.place}.text")
        if len(by_key.keys() | held) > TEXTS_MAX:
            raise failed("memory.full", f"a memory holds {TEXTS_MAX} texts at most, and has {len(held)}")
        embedder = self._embedder_of(asked.settings)
        vectors = await _embedded(asked, embedder, [one.text for one in by_key.values()], "texts")
        for (key, one), vector in zip(by_key.items(), vectors, strict=True):
            document: Document = {**one._asdict(), "at_ms": asked.at_ms}
            document |= {"vector": packed(vector), "embedder": embedder.name}
            # The same id is the same text anew, whoever comes last.
            await changed(asked.store, key, asked.once, partial(Document.update, **document))

    async def _found(self, asked: Asked, query: str) -> list[tuple[Document, float]]:
        """The texts that are most like a query, with how much they are, the most alike first."""
        query = query[:TEXT_CHARS_MAX]
        entries = await asked.store.below(f"{asked.place}.text")
        texts = list(zip(entries, await read_all(entries), strict=True))
        filters = asked.given("filters")
        if isinstance(filters, dict):
            texts = [(entry, one) for entry, one in texts if _fits(one["metadata"], filters)]
        if not query.strip() or not texts:
            return []
        embedder = self._embedder_of(asked.settings)
        [wanted] = await _embedded(asked, embedder, [query], "query")
        await _made_anew(asked, embedder, [pair for pair in texts if pair[1]["embedder"] != embedder.name])
        least = asked.number("similarity_threshold", THRESHOLD)
        most = max(1, int(asked.number("max_results", RESULTS)))
        documents = [one for _, one in texts]
        return await to_thread.run_sync(_ranked, embedder, documents, query.strip().lower(), wanted, least, most)


async def _embedded(asked: Asked, embedder: Embedder, texts: Sequence[str], part: str) -> list[Vector]:
    made = await embedder.embed(texts, f"{asked.once}.{part}")
    if made.model:
        asked.spent.add(made.model, made.usage)
    return made.vectors


async def _made_anew(asked: Asked, embedder: Embedder, strange: Sequence[tuple[Entry, Document]]) -> None:
    """Make the vectors of another embedder anew. Those of a model are kept: the next search need not pay for them."""
    paid = asked.spent.model
    vectors = await _embedded(asked, embedder, [one["text"] for _, one in strange], "anew")
    for (entry, one), vector in zip(strange, vectors, strict=True):
        one |= {"vector": packed(vector), "embedder": embedder.name}
        if paid:
            with suppress(Conflict):
                await asked.store.put(entry.key, encoded(one), entry.revision)


def _ranked(
    embedder: Embedder, texts: list[Document], query: str, wanted: Vector, least: float, most: int
) -> list[tuple[Document, float]]:
    found: list[tuple[Document, float]] = []
    for one in texts:
        vector = unpacked(one["vector"])
        if len(vector) != len(wanted):
            raise other_dimension(embedder.name, len(wanted), len(vector))
        score = embedder.likeness(cosine(wanted, vector))
        if query in one["text"].lower():
            score = max(score, least)
        if score >= least:
            found.append((one, round(score, 6)))
    return sorted(found, key=lambda one: (-one[1], one[0]["at_ms"], one[0]["id"]))[:most]


def other_dimension(embedder: str, has: int, kept: int) -> Exception:
    """The failure of an embedder whose vectors cannot be compared with those that are kept."""
    message = f"vectors of {embedder} have {has} dimensions, those of the memory {kept}: clear it, or name their model"
    return failed("memory.dimension", message)


def _key(asked: Asked, id: str) -> str:
    return f"{asked.place}.text.{sha256(id.encode('utf-8', 'replace')).hexdigest()[:40]}"


async def _all(asked: Asked) -> list[Document]:
    return await read_all(await asked.store.below(f"{asked.place}.text"))


def _items(asked: Asked) -> list[_Text]:
    """The texts that a node brings: a list of items, or a single one.

    :raises EffectFailed: ``memory.malformed``, ``memory.full``
    """
    given = asked.given("items")
    if not isinstance(given, list):
        own = asked.brought.get("input")
        text = asked.text("text", "content", "document", "query")
        given = [{**own, "text": text} if isinstance(own, dict) else text]
    if len(given) > ITEMS_MAX:
        raise failed("memory.full", f"one operation keeps {ITEMS_MAX} texts at most, not {len(given)}")
    return [_item(one) for one in given]


def _item(given: Any) -> _Text:
    own: dict[str, Any] = given if isinstance(given, dict) else {"text": given}
    text = own.get("text") or own.get("content")
    if not isinstance(text, str) or not text.strip():
        raise failed("memory.malformed", "a text to be kept is a text, or an object with `text` or `content`")
    id = own.get("id") or sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
    return _Text(str(id), text[:TEXT_CHARS_MAX], own.get("metadata"))


def _ids(asked: Asked) -> list[str]:
    given = asked.given("ids", "id")
    return [str(id) for id in given] if isinstance(given, list) else [str(given)] if given is not None else []


def _fits(metadata: Any, filters: dict[str, Any]) -> bool:
    return isinstance(metadata, dict) and all(metadata.get(name) == value for name, value in filters.items())


def _told(found: list[tuple[Document, float]]) -> dict[str, Any]:
    results = [{"id": one["id"], "text": one["text"], "metadata": one["metadata"], "score": at} for one, at in found]
    return {"success": True, "results": results, "scores": [at for _, at in found], "total_results": len(found)}


def _context(found: list[tuple[Document, float]]) -> dict[str, Any]:
    lines = [f"- {one['text'][:TEXT_CHARS_TOLD]}" for one, _ in found]
    return {"context": "\n".join(lines)} if lines else {}
