"""The memory of entities: facts about persons and things, returned when these are mentioned."""

import re
from typing import Any

from callboard.actors.memory.operation import MemoryOperation, as_text
from callboard.actors.memory.store import Document, change_document, effect_failed, read, surplus

ENTITIES_MAX = 300
FACTS_MAX = 25
FACT_CHARS_MAX = 400
"""Limits of a memory. The entities that were not mentioned for the longest time are deleted, and the oldest facts of an
entity, also if all of them together are too large for a document."""

OPERATIONS = ("store", "retrieve", "list", "delete", "clear")

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"[\w'-]+")
_NAME = re.compile(r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")

_FIRST_WORDS = """
A After All Also An And Any Are As At Be Because Before But Can Could Did Do Does For From Had Has Have He Hello Her
Here Hi His How I I'm I'd I've I'll If In Is It Its Just Let Many May Me Might Most Must My Never No Not Now Of On
Once Or Our Please She Should Since So Some Such Tell Thank Thanks That The Their Then There These They This Those To
Was We Were What When Where Which While Who Why Will With Would Yes You Your
"""
"""Words that begin sentences and are not names, in spite of their capital letter."""

_NO_NAMES = frozenset(_FIRST_WORDS.split())


async def entities(asked: MemoryOperation) -> Any:
    """Carry an operation of a memory of entities out."""
    match asked.operation:
        case "get_context" if not asked.own:
            return _context(await _read(asked), str(asked.brought.get("query", "")))
        case "store" if not asked.own:
            told = [one.get("content", "") for one in asked.brought.get("messages", []) if one.get("role") == "user"]
            facts = [fact for text in told for fact in find_mentions(as_text(text))]
            if facts:
                await _store_facts(asked, facts)
            return {}
        case "get_context":
            return {"success": True, **_context(await _read(asked), asked.text("query", "entity_name", "text"))}
        case "store" | "add":
            name, facts = _own(asked)
            return _to_payload(name, await _store_facts(asked, [(name, fact) for fact in facts]))
        case "retrieve" | "get":
            name = _entity(asked)
            return _to_payload(name, await _read(asked))
        case "list" | "keys":
            return {"success": True, "entities": sorted(one["name"] for one in (await _read(asked)).values())}
        case "delete" | "clear":
            return await _remove_entity(asked)
        case _:
            raise asked.unknown_operation(*OPERATIONS)


def find_mentions(text: str) -> list[tuple[str, str]]:
    """Return the persons and things that a text mentions: each name with its sentence."""
    found: list[tuple[str, str]] = []
    for sentence in _SENTENCE.split(text):
        fact = sentence.strip()[:FACT_CHARS_MAX]
        for match in _NAME.finditer(fact):
            words = match[0].split(" ")
            while words and words[0] in _NO_NAMES:
                words = words[1:]
            if words:
                found.append((" ".join(words), fact))
    return found


def _key(asked: MemoryOperation) -> str:
    return f"{asked.place}.entities"


async def _read(asked: MemoryOperation) -> dict[str, Any]:
    return read(await asked.store.get(_key(asked))).get("entities", {})


def _entity(asked: MemoryOperation) -> str:
    name = asked.text("entity_name", "entity", "name").strip()
    if not name:
        raise effect_failed("memory.malformed", "an operation on an entity needs its name in `entity_name`")
    return name


def _own(asked: MemoryOperation) -> tuple[str, list[str]]:
    given = asked.first_given("facts", "fact", "value", "content")
    listed: list[Any] = given if isinstance(given, list) else [given] if given is not None else []
    if isinstance(given, dict):
        listed = [f"{name}: {as_text(value)}" for name, value in given.items()]
    return _entity(asked), [as_text(fact)[:FACT_CHARS_MAX] for fact in listed]


async def _store_facts(asked: MemoryOperation, facts: list[tuple[str, str]]) -> dict[str, Any]:
    def keep(document: Document) -> None:
        known: dict[str, Any] = document.setdefault("entities", {})
        for name, fact in facts:
            # Removed and inserted again, so that the latest one is last.
            one = known.pop(name.lower(), {"name": name, "facts": []})
            one["facts"] = [*(old for old in one["facts"] if old != fact), fact][-FACTS_MAX:]
            known[name.lower()] = one
        _forget(known, len(known) - ENTITIES_MAX)
        # The latest entity is kept: one that is too large alone is refused.
        _forget(known, surplus(document, list(known.values())[:-1]))

    return (await change_document(asked.store, _key(asked), asked.once, keep))["entities"]


def _forget(known: dict[str, Any], count: int) -> None:
    for name in list(known)[: max(0, count)]:
        del known[name]


async def _remove_entity(asked: MemoryOperation) -> dict[str, Any]:
    name = _entity(asked).lower() if asked.operation == "delete" else None

    def remove(document: Document) -> None:
        known: dict[str, Any] = document.setdefault("entities", {})
        for one in [name] if name is not None else list(known):
            known.pop(one, None)

    await change_document(asked.store, _key(asked), asked.once, remove)
    return {"success": True}


def _to_payload(name: str, known: dict[str, Any]) -> dict[str, Any]:
    one = known.get(name.lower(), {"name": name, "facts": []})
    return {"success": True, "entity": one["name"], "facts": one["facts"]}


def _context(known: dict[str, Any], query: str) -> dict[str, Any]:
    words = f" {' '.join(_WORD.findall(query.lower()))} "
    meant = [one for name, one in known.items() if f" {name} " in words]
    lines = [f"- {one['name']}: {fact}" for one in meant for fact in one["facts"]]
    return {"context": "\n".join(lines)} if lines else {}
