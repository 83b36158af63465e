"""Registration: definitions that are kept in the stream under a name and under their hash, validated before."""

import re

import msgspec
from msgspec import Struct

from callboard.bus.asking import api
from callboard.bus.commands import DefinitionSource
from callboard.bus.commit import Message
from callboard.bus.events import Problem
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import Unknown
from callboard.bus.subjects import TOKEN_BYTES_MAX, name_of, token
from callboard.languages.language import Definition
from callboard.runtime.definitions import Definitions

SOURCE_BYTES_MAX = 800 * 1024
"""Largest text of a registered definition; with subject and headers it stays below the server's 1 MiB."""

_HASH = re.compile(r"[0-9a-f]{64}")


class Registered(Struct, frozen=True, omit_defaults=True):
    """A registered definition. ``hash`` is the sha256 of its canonical form; ``name`` is empty if it has none."""

    language: str
    hash: str
    name: str = ""
    source: str | None = None
    unchanged: bool = False
    warnings: list[Problem] = []


async def register(
    log: JetStreamLog, definitions: Definitions, tenant: str, wanted: DefinitionSource
) -> Registered | list[Problem]:
    """Validate a definition and keep it, under its hash and the wanted name or else its own; or say what is wrong.

    A name may be registered again: starts that name it take the newest.

    :raises Full: if there is no room
    :raises Unknown: if the stream does not answer
    """
    source = wanted.source or ""
    problems = _check(source, wanted.name)
    parsed = parse(definitions, source, wanted.language) if not problems else []
    if not isinstance(parsed, Definition):
        return [*problems, *parsed]
    name = wanted.name or _usable(parsed.name)
    kept = DefinitionSource(language=parsed.language, source=source, hash=parsed.hash, name=name or None)
    warnings = [each for each in parsed.warnings if each.severity == "warning"]
    unchanged = [await log.definition(tenant, key) for key in (parsed.hash, name) if key]
    if all(found is not None and (found.source, found.language) == (source, parsed.language) for found in unchanged):
        return Registered(parsed.language, parsed.hash, name, unchanged=True, warnings=warnings)
    body = msgspec.json.encode(kept)
    messages = [Message(log.subjects.definition(tenant, key), body, {}) for key in (parsed.hash, name) if key]
    await (log.publish_together(messages) if len(messages) > 1 else log.publish(messages[0]))
    return Registered(parsed.language, parsed.hash, name, warnings=warnings)


async def names(log: JetStreamLog, tenant: str) -> list[str]:
    """Return the names under which definitions are registered, in order.

    :raises Unknown: if JetStream does not answer
    """
    prefix = log.subjects.definition(tenant, "x").removesuffix("x")
    answer = await api(log.requests, f"STREAM.INFO.{log.stream}", {"subjects_filter": f"{prefix}*"})
    if "error" in answer:
        raise Unknown(str(answer["error"].get("description")))
    subjects: dict[str, int] = answer["state"].get("subjects") or {}
    found = [name_of(subject.removeprefix(prefix)) for subject in subjects]
    return sorted(name for name in found if not _HASH.fullmatch(name))


def parse(definitions: Definitions, source: str, spoken: str | None) -> Definition[object] | list[Problem]:
    """Parse a definition in the language named, or the one it is recognised as."""
    from callboard.languages.registry import LANGUAGES, detect

    name = spoken or detect(source)
    if isinstance(name, list):
        return name
    if name not in LANGUAGES:
        message = f"there is no language {name!r}"
        return [Problem(code="definition.language", message=message, where="language", expected=" | ".join(LANGUAGES))]
    return definitions.language(name).parse(source)


def _check(source: str, name: str | None) -> list[Problem]:
    problems: list[Problem] = []
    size = len(source.encode())
    if size > SOURCE_BYTES_MAX:
        message = f"the definition has {size} bytes"
        expected = f"at most {SOURCE_BYTES_MAX} bytes; give longer ones with each start"
        problems.append(Problem(code="definition.too_large", message=message, where="source", expected=expected))
    if name is not None and not _usable(name):
        message = f"{name[:80]!r} cannot be a definition's name"
        expected = f"a name of at most {TOKEN_BYTES_MAX} bytes that does not look like a hash"
        problems.append(Problem(code="definition.name", message=message, where="name", expected=expected))
    return problems


def _usable(name: str) -> str:
    """The name, if a definition can be registered under it; a hash belongs to the definition it is made of."""
    try:
        token(name)
    except ValueError:
        return ""
    return "" if _HASH.fullmatch(name) else name
