"""Sessions: the items of a conversation, in their order, which runs of any definition continue under a key.

An item is any JSON value: a message of a library, or of Callboard. The oldest items are deleted if all together are too
large for a document, or more than ``items_max``. A session that has not been changed for ``expires_s`` is empty.
"""

from typing import Any

from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.store import (
    ONCE_CHARS,
    Document,
    Store,
    change_document,
    effect_failed,
    place_of,
    read,
    read_all,
    surplus,
    sweep_document,
)
from callboard.bus.nats.key_value import Conflict
from callboard.bus.subjects import token

SCOPE = "sessions"
"""The workflow id in the scope of a request, so that all sessions of a tenant are beside each other."""

ITEMS_MAX = 10_000
"""How many items a session keeps unless it is configured otherwise."""

GONE_MS = 3_600_000
"""How long an emptied session is remembered: an effect that is carried out again must not empty a newer one."""

POPPED_MAX = 8
"""How many removed items a session remembers."""

OPERATIONS = ("items", "append", "pop", "forget")

_SUFFIX = ".session"


async def session(asked: MemoryOperation) -> Any:
    """Carry an operation of a session out."""
    match asked.operation:
        case "items":
            found = live_items(read(await asked.store.get(_key(asked))), asked.at_ms)
            limit = asked.brought.get("limit")
            return {"items": [one["item"] for one in (found if limit is None else found[-limit:] if limit else [])]}
        case "append":
            return {"items": len((await _change(asked, _append))["items"])}
        case "pop":
            return (await _change(asked, _pop))["popped"][_once(asked)]
        case "forget":
            await _change(asked, _forget)
            return {}
        case _:
            raise asked.unknown_operation(*OPERATIONS)


def _key(asked: MemoryOperation) -> str:
    return f"{asked.place}{_SUFFIX}"


async def _change(asked: MemoryOperation, change: Any) -> Document:
    def apply(document: Document) -> None:
        document["items"] = live_items(document, asked.at_ms)
        change(asked, document)
        expires_s = asked.number("expires_s", 0)
        document |= {"key": asked.brought.get("key", ""), "at_ms": asked.at_ms}
        document["expires_ms"] = asked.at_ms + int(expires_s * 1000) if expires_s > 0 else None

    return await change_document(asked.store, _key(asked), asked.once, apply)


def _append(asked: MemoryOperation, document: Document) -> None:
    run, kept = str(asked.brought.get("run", "")), document["items"]
    kept += [{"item": one, "at_ms": asked.at_ms, "run": run} for one in asked.brought.get("items", [])]
    del kept[: max(0, len(kept) - int(asked.number("items_max", ITEMS_MAX)))]
    # The latest item is kept: one that is too large alone is refused.
    del kept[: surplus(document, kept[:-1])]


def _pop(asked: MemoryOperation, document: Document) -> None:
    items = document["items"]
    outcome = {"item": items.pop()["item"], "exists": True} if items else {"item": None, "exists": False}
    # It stays in the document for a while, so that the effect has the same outcome if it is carried out again.
    latest = list(document.get("popped", {}).items())[1 - POPPED_MAX :]
    document["popped"] = {**dict(latest), _once(asked): outcome}


def _once(asked: MemoryOperation) -> str:
    return asked.once[:ONCE_CHARS]


def _forget(_asked: MemoryOperation, document: Document) -> None:
    document["items"] = []
    document.pop("popped", None)


def live_items(document: Document, at_ms: int) -> list[Any]:
    """Return the items of a session that have not expired at that time, each with ``item``, ``at_ms`` and ``run``."""
    expires_ms = document.get("expires_ms")
    return document.get("items", []) if expires_ms is None or at_ms < expires_ms else []


# -- for people -------------------------------------------------------------------------------------------------------


async def list_sessions(store: Store, tenant: str, at_ms: int) -> list[Document]:
    """Return the sessions of a tenant that have items, by their keys. Those that expired or were emptied long ago are
    removed from the store."""
    entries = [one for one in await store.below(f"{token(tenant)}.{SCOPE}") if one.key.endswith(_SUFFIX)]
    found: list[Document] = []
    for entry, document in zip(entries, await read_all(entries), strict=True):
        if live_items(document, at_ms):
            found.append(document)
        elif at_ms - document["at_ms"] > GONE_MS:
            await sweep_document(store, entry)
    return sorted(found, key=lambda document: str(document["key"]))


async def read_session(store: Store, tenant: str, key: str, at_ms: int) -> list[Any]:
    """Return the items of a session, each with ``item``, ``at_ms`` and ``run``; none if it does not exist."""
    return live_items(read(await store.get(_key_of(tenant, key))), at_ms)


async def forget_session(store: Store, tenant: str, key: str) -> bool:
    """Remove a session with all its items from the store; return whether it existed.

    :raises EffectFailed: ``memory.contended``, if a run has changed it in between
    """
    entry = await store.get(_key_of(tenant, key))
    if entry is None:
        return False
    try:
        await store.delete(entry.key, entry.revision)
    except Conflict as error:
        message = "a run has changed the session in between"
        raise effect_failed("memory.contended", message, retryable=True) from error
    return True


def _key_of(tenant: str, key: str) -> str:
    return f"{place_of(tenant, SCOPE, '', key)}{_SUFFIX}"
