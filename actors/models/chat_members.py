"""Members that servers with OpenAI's chat completions add to messages and calls, and want back. Pure.

They are not in OpenAI's API: ``reasoning_content`` (DeepSeek, Kimi, Qwen and others refuse a conversation without it),
``reasoning`` and ``reasoning_details`` (OpenRouter), ``thinking_blocks`` and ``provider_specific_fields`` (LiteLLM),
``extra_content`` (Google, for the signature of a call). So every member that the API does not have is sent back as it
came. In a stream they come in pieces.
"""

from collections.abc import Collection, Mapping
from typing import Any

from callboard.lib.json_types import JSON

_TEXTS = frozenset({"text", "thinking", "summary", "reasoning", "reasoning_content", "reasoning_text", "data"})
"""Members of calls, and below the members of messages, whose texts come in pieces. Others come whole."""

_WHOLE = ("signature", "id", "type", "format")
"""How the names of members of messages end whose texts come whole."""


def extra_members(value: Mapping[str, JSON], known: Collection[str]) -> dict[str, Any]:
    """Return the members that the API does not have, and that are not null."""
    return {name: value[name] for name in value if name not in known and value[name] is not None}


def add_members(whole: dict[str, Any], piece: Mapping[str, Any], *, below: bool = False) -> int:
    """Add the members of a piece to the ``whole``; return the number of characters that were added. ``below``: they are
    not members of a message itself."""
    chars = 0
    for name, new in piece.items():
        old = whole.get(name)
        match old, new:
            case str(), str() if _comes_in_pieces(name, below=below):
                if name != "data" or old != new:
                    whole[name] = old + new
                    chars += len(new)
            case str(), "" | None:
                continue
            case dict(), dict():
                chars += add_members(old, new, below=True)
            case list(), list():
                chars += sum(_add_item(old, item) for item in new)
            case _:
                whole[name] = [] if isinstance(new, list) else new
                chars += sum(_add_item(whole[name], item) for item in new) if isinstance(new, list) else _size(new)
    return chars


def _comes_in_pieces(name: str, *, below: bool) -> bool:
    return name in _TEXTS if below else not name.endswith(_WHOLE)


def _add_item(items: list[Any], new: Any) -> int:
    """Add an item to a list: to the one that it continues, or as another."""
    if isinstance(new, dict):
        old = next((item for item in reversed(items) if _goes_on(item, new, is_last=item is items[-1])), None)
        if old is not None:
            return add_members(old, new, below=True)
        new = dict(new)
    items.append(new)
    return _size(new)


def _goes_on(old: Any, new: Mapping[str, Any], *, is_last: bool) -> bool:
    """Return whether an item continues an older one: that of the same index and type, or else the last one, if it
    has a text and no signature yet."""
    if not isinstance(old, dict) or new.get("type", old.get("type")) != old.get("type"):
        return False
    if new.get("id") and old.get("id") and new["id"] != old["id"]:
        return False
    if new.get("index") is not None or old.get("index") is not None:
        return new.get("index") == old.get("index")
    return is_last and not old.get("signature") and any(name in old for name in ("text", "thinking", "summary"))


def _size(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return sum(len(name) + _size(one) for name, one in value.items())
        case list():
            return sum(_size(one) for one in value)
        case _:
            return 1
