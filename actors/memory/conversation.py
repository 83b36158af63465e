"""The conversation buffer: the latest messages, and a summary of the messages before them.

When the buffer is nearly full, it asks for a summary of its oldest messages, and deletes them after it has the summary.
Messages are numbered, so that two simultaneous summaries do not both delete messages.
"""

from typing import Any

import msgspec

from callboard.actors.memory.operation import MemoryOperation, as_text
from callboard.actors.memory.store import Document, change_document, read, surplus

MESSAGES_MAX = 50
NEARLY_FULL = 5
SUMMARIZED = 10
"""The defaults of the graph language's tables."""

CONTENT_CHARS_MAX = 64 * 1024
SUMMARY_BYTES_MAX = 64 * 1024
"""A longer message, or a longer summary in its encoded form, is truncated, so that a message always fits next to it.
The oldest messages are deleted if all of them together are too large for a document."""


async def conversation(asked: MemoryOperation) -> Any:
    """Carry an operation of a conversation buffer out."""
    match asked.operation:
        case "get_context" if not asked.own:
            return _context(await _read(asked), int(asked.brought.get("limit") or MESSAGES_MAX))
        case "store" if not asked.own:
            return await _store_message(asked)
        case "summarize" if not asked.own:
            return await _summarize(asked)
        case "store" | "add" | "append":
            said = {"role": asked.first_given("role") or "user", "content": asked.text("message", "content", "text")}
            return _to_payload(asked, await _append_message(asked, [said], asked.first_given("metadata")))
        case "get" | "retrieve" | "get_context":
            return _to_payload(asked, await _read(asked))
        case "clear":
            return _to_payload(asked, await change_document(asked.store, _key(asked), asked.once, _clear))
        case _:
            raise asked.unknown_operation("store", "retrieve", "get_context", "clear")


def _key(asked: MemoryOperation) -> str:
    return f"{asked.place}.conversation"


async def _read(asked: MemoryOperation) -> Document:
    return read(await asked.store.get(_key(asked)))


def _context(document: Document, limit: int) -> dict[str, Any]:
    messages = [{"role": one["role"], "content": one["content"]} for one in document.get("messages", [])[-limit:]]
    summary: str = document.get("summary", "")
    told = {"context": f"Summary of the conversation so far: {summary}"} if summary else {}
    return {"messages": messages, **told}


async def _store_message(asked: MemoryOperation) -> dict[str, Any]:
    document = await _append_message(asked, asked.brought.get("messages", []), asked.brought.get("metadata"))
    messages: list[Any] = document["messages"]
    most = _messages_max(asked)
    nearly = most - min(NEARLY_FULL, most // 2)
    if not asked.settings.get("auto_summarize", True) or len(messages) < nearly:
        return {}
    oldest = messages[: max(1, int(asked.number("summarize_count", SUMMARIZED)))]
    wanted = {"messages": oldest, "summary": document.get("summary", ""), "from": document["first"]}
    return {"to_summarize": wanted}


async def _append_message(asked: MemoryOperation, said: list[Any], metadata: Any) -> Document:
    most = _messages_max(asked)

    def add(document: Document) -> None:
        messages: list[Any] = document.setdefault("messages", [])
        document.setdefault("first", 0)
        for one in said:
            content = as_text(one.get("content", ""))[:CONTENT_CHARS_MAX]
            messages.append({"role": one.get("role", "user"), "content": content, "timestamp": asked.at_ms})
            if metadata:
                messages[-1]["metadata"] = metadata
        _forget(document, len(messages) - most)
        _fit(document)

    return await change_document(asked.store, _key(asked), asked.once, add)


async def _summarize(asked: MemoryOperation) -> dict[str, Any]:
    def fold(document: Document) -> None:
        first = document.get("first", 0)
        count = int(asked.brought.get("count", 0))
        # A full buffer may have dropped some of them by now, or all, if another summary includes them.
        left = asked.brought.get("from", first) + count - first
        if left > 0:
            document["summary"] = _cut(str(asked.brought.get("summary", "")))
            document["summarized"] = document.get("summarized", 0) + count
            _forget(document, left)
            _fit(document)

    await change_document(asked.store, _key(asked), asked.once, fold)
    return {}


def _forget(document: Document, count: int) -> None:
    if count > 0:
        messages: list[Any] = document.get("messages", [])
        document["first"] = document.get("first", 0) + min(count, len(messages))
        del messages[:count]


def _fit(document: Document) -> None:
    # The latest message is kept: one that is too large alone is refused.
    _forget(document, surplus(document, document.get("messages", [])[:-1]))


def _cut(summary: str) -> str:
    while (size := len(msgspec.json.encode(summary))) > SUMMARY_BYTES_MAX:
        summary = summary[: len(summary) * SUMMARY_BYTES_MAX // size]
    return summary


def _clear(document: Document) -> None:
    _forget(document, len(document.get("messages", [])))
    document.pop("summary", None)
    document.pop("summarized", None)


def _to_payload(asked: MemoryOperation, document: Document) -> dict[str, Any]:
    """Return the payload of a node."""
    messages: list[Any] = document.get("messages", [])
    return {
        "messages": messages,
        "total_messages": len(messages),
        "buffer_full": len(messages) >= _messages_max(asked),
        "success": True,
        "summary": document.get("summary", ""),
        "summary_metadata": {"summarized": document["summarized"]} if document.get("summarized") else {},
    }


def _messages_max(asked: MemoryOperation) -> int:
    return max(2, int(asked.number("max_messages", MESSAGES_MAX)))
