"""The memory of texts, searched by meaning: documents, episodes, knowledge."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from callboard.actors.memory.embedders import EmbedderOf
from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.store import effect_failed
from callboard.actors.memory.text_store import Embedding, StoredText, TextMatch, TextQuery, TextStore

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
