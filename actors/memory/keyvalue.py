"""The key-value memory: values under names, which may expire; one document per value."""

from hashlib import sha256
from typing import Any

import msgspec

from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.store import Document, change_document, effect_failed, read, read_all, sweep_document

KEYS_MAX = 1_000
"""How many keys a memory holds unless it is configured otherwise."""

GONE_MS = 3_600_000
"""How long a removed key is remembered: an effect that is carried out again must not remove a newer value."""

CONTEXT_CHARS_MAX = 8_000
"""How many characters of its values an agent gets."""

OPERATIONS = ("get", "set", "append", "delete", "exists", "keys", "clear")


async def key_value(asked: MemoryOperation) -> Any:
    """Carry an operation of a key-value memory out."""
    match asked.operation:
        case "get_context" if not asked.own:
            return await _context(asked)
        case "store" if not asked.own:
            # The texts of an agent have no key.
            return {}
        case "get" | "retrieve":
            found = await _live(asked)
            return _to_payload(value=found.get("value"), exists=bool(found))
        case "exists":
            return _to_payload(exists=bool(await _live(asked)))
        case "set" | "store" | "append":
            return await _store_value(asked)
        case "delete":
            return _to_payload(exists=await _remove_value(asked, _key(asked)))
        case "keys" | "list":
            return _to_payload(keys=sorted(await _all(asked)))
        case "clear":
            gone = [await _remove_value(asked, _key(asked, name)) for name in sorted(await _all(asked))]
            return _to_payload(exists=any(gone))
        case "get_context":
            return _to_payload(value=await _context(asked), exists=True)
        case _:
            raise asked.unknown_operation(*OPERATIONS)


def _to_payload(**more: Any) -> dict[str, Any]:
    return {"success": True, **more}


def _name(asked: MemoryOperation) -> str:
    """Return the complete name of the key, as it is listed."""
    namespace = asked.first_given("namespace")
    name = asked.text("key")
    if not name:
        raise effect_failed("memory.malformed", f"{asked.operation} needs a `key`")
    return f"{namespace}:{name}" if namespace else f"{asked.settings.get('key_prefix') or ''}{name}"


def _key(asked: MemoryOperation, name: str | None = None) -> str:
    # A name may have any characters, a token of the store may not.
    digest = sha256((_name(asked) if name is None else name).encode("utf-8", "replace")).hexdigest()
    return f"{asked.place}.key.{digest[:40]}"


def _is_live(asked: MemoryOperation, document: Document) -> bool:
    expires_ms = document.get("expires_ms")
    return "value" in document and (expires_ms is None or asked.at_ms < expires_ms)


async def _live(asked: MemoryOperation) -> Document:
    document = read(await asked.store.get(_key(asked)))
    return document if _is_live(asked, document) else {}


async def _all(asked: MemoryOperation) -> dict[str, Any]:
    """Return all values by their names; entries that expired long ago are removed on the way."""
    found: dict[str, Any] = {}
    entries = await asked.store.below(f"{asked.place}.key")
    for entry, document in zip(entries, await read_all(entries), strict=True):
        if _is_live(asked, document):
            found[document["key"]] = document["value"]
        elif asked.at_ms - document["at_ms"] > GONE_MS:
            await sweep_document(asked.store, entry)
    return found


async def _store_value(asked: MemoryOperation) -> dict[str, Any]:
    most = int(asked.number("max_keys", KEYS_MAX))
    given = asked.brought["input"]
    name = _name(asked)
    value = given["value"] if isinstance(given, dict) and "value" in given else asked.settings.get("value")
    if not await _live(asked) and len(await _all(asked)) >= most:
        return {"success": False, "error_message": f"the memory holds {most} keys already"}
    options = asked.first_given("options")
    own = options.get("ttl") if isinstance(options, dict) else None
    ttl_s = own if isinstance(own, int | float) else asked.number("default_ttl", 0)

    def keep(document: Document) -> None:
        before = document.get("value") if _is_live(asked, document) else None
        document["value"] = _append_value(before, value) if asked.operation == "append" else value
        document |= {"key": name, "at_ms": asked.at_ms}
        document["expires_ms"] = asked.at_ms + int(ttl_s * 1000) if ttl_s > 0 else None

    document = await change_document(asked.store, _key(asked), asked.once, keep)
    return _to_payload(value=document.get("value"), exists=True)


def _append_value(before: Any, value: Any) -> Any:
    match before, value:
        case None, _:
            return value if isinstance(value, str | list) else [value]
        case str(), str():
            return before + value
        case list(), list():
            return [*before, *value]
        case list(), _:
            return [*before, value]
        case _:
            return [before, value]


async def _remove_value(asked: MemoryOperation, key: str) -> bool:
    """Remove a value, and return whether it existed."""
    if await asked.store.get(key) is None:
        return False
    was: list[bool] = []

    def remove(document: Document) -> None:
        was.append(_is_live(asked, document))
        document.pop("value", None)
        document["at_ms"] = asked.at_ms

    await change_document(asked.store, key, asked.once, remove)
    # If the effect is carried out again, there is nothing to remove: the value existed the first time.
    return was[-1] if was else True


async def _context(asked: MemoryOperation) -> dict[str, Any]:
    values = await _all(asked)
    lines = [f"{name}: {_show_value(value)}" for name, value in sorted(values.items())]
    return {"context": "\n".join(lines)[:CONTEXT_CHARS_MAX]} if lines else {}


def _show_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
