"""Registration: validates definitions and stores them in the stream under a name and under their hash."""

import re
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.commands import Bundle, Registration
from callboard.bus.events import Problem
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.registrations import read_registration, store_registration
from callboard.bus.subjects import TOKEN_BYTES_MAX, name_of, token
from callboard.languages.plan import Definition
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.start_message import check_attributes

KEPT_BYTES_MAX = 850 * 1024
"""Maximum size of a stored definition; with subject and headers it stays below the server's limit of 1 MiB."""

HASH_DIGITS_SHOWN = 12
"""Number of digits of a hash in texts for people."""

VERSION_SIGN = "@"
"""Separates a name from its version."""

_HASH = re.compile(r"[0-9a-f]{64}")


class Registered(Struct, frozen=True, omit_defaults=True):
    """A registered definition. ``hash`` is the sha256 of its canonical form; ``name`` is empty if it has none.

    ``files``, ``skills``, ``children`` and ``attributes`` are added to its starts; a lookup returns them too.
    """

    language: str
    hash: str
    name: str = ""
    source: str | None = None
    files: dict[str, str] = {}
    skills: list[Any] = []
    children: dict[str, Bundle] = {}
    attributes: dict[str, str] = {}
    by: str | None = None
    unchanged: bool = False
    warnings: list[Problem] = []


async def register(
    log: JetStreamLog, definitions: Definitions, tenant: str, wanted: Registration
) -> Registered | list[Problem]:
    """Validate a definition and store it under its hash and under the wanted name, or else the definition's own name.

    A name may be registered again: starts that name it use the newest version. Returns every problem of an invalid
    definition.

    :raises Full: if the store is full
    :raises NoAnswer: if the stream does not answer
    """
    source = wanted.source or ""
    problems = _check(wanted)
    read = partial(parse, definitions, source, wanted.language)
    parsed = await definitions.offload(read, source=source) if not problems else []
    if not isinstance(parsed, Definition):
        return [*problems, *parsed]
    if parsed.objections:
        return list(parsed.objections)
    if problems := _check_children(definitions, wanted.children):
        return problems
    name = wanted.name or _usable(parsed.name)
    kept = msgspec.structs.replace(wanted, language=parsed.language, hash=parsed.hash, name=name or None, restores=0)
    warnings = [each for each in parsed.warnings if each.severity == "warning"]
    before = [await read_registration(log, tenant, key) for key in (parsed.hash, name) if key]
    if all(found is not None and without_labels(found) == without_labels(kept) for found in before):
        return Registered(parsed.language, parsed.hash, name, unchanged=True, warnings=warnings)
    await store_registration(log, tenant, kept)
    return Registered(parsed.language, parsed.hash, name, warnings=warnings)


def to_registered(kept: Registration) -> Registered:
    """Return a stored definition in the form that a lookup returns."""
    found = Registered(kept.language or "", kept.hash or "", kept.name or "", kept.source)
    return msgspec.structs.replace(
        found, files=kept.files, skills=kept.skills, children=kept.children, attributes=kept.attributes, by=kept.by
    )


def without_labels(kept: Registration) -> Registration:
    """A stored definition without the members that do not affect its starts: name, author, origin of a rollback."""
    return msgspec.structs.replace(kept, name=None, by=None, restores=0)


async def registered_names(log: JetStreamLog, tenant: str) -> dict[str, int]:
    """Return the names under which definitions are registered, sorted, with the number of registrations of each.

    :raises NoAnswer: if JetStream does not answer
    """
    prefix = log.subjects.definition(tenant, "x").removesuffix("x")
    answer = await api(log.requests, f"STREAM.INFO.{log.stream}", {"subjects_filter": f"{prefix}*"})
    if "error" in answer:
        raise NoAnswer(str(answer["error"].get("description")))
    subjects: dict[str, int] = answer["state"].get("subjects") or {}
    found = {name_of(subject.removeprefix(prefix)): count for subject, count in subjects.items()}
    return {name: found[name] for name in sorted(found) if not _HASH.fullmatch(name)}


def parse(definitions: Definitions, source: str, spoken: str | None) -> Definition[object] | list[Problem]:
    """Parse a definition in the given language, or else in the language that is detected."""
    from callboard.languages.kit import kits
    from callboard.languages.registry import detect_nearly

    name = spoken or detect_nearly(source)
    if isinstance(name, list):
        return name
    if name not in kits():
        message = f"there is no language {name!r}"
        return [Problem(code="definition.language", message=message, where="language", expected=" | ".join(kits()))]
    return definitions.language(name).parse(source)


def _check_children(definitions: Definitions, children: dict[str, Bundle]) -> list[Problem]:
    problems: list[Problem] = []
    for path, child in children.items():
        parsed = parse(definitions, child.source, child.language)
        wrong = [] if isinstance(parsed, Definition) else parsed
        places = [f'children["{path}"].{one.where}'.rstrip(".") for one in wrong]
        problems += [msgspec.structs.replace(one, where=where) for one, where in zip(wrong, places, strict=True)]
    return problems


def _check(wanted: Registration) -> list[Problem]:
    name = wanted.name
    problems = check_attributes(wanted.attributes)
    size = len(msgspec.json.encode(wanted))
    if size > KEPT_BYTES_MAX:
        message = f"the definition has {size} bytes, including its files, skills and children"
        expected = f"at most {KEPT_BYTES_MAX} bytes; pass a larger definition with each start"
        problems.append(Problem(code="definition.too_large", message=message, where="source", expected=expected))
    if name is not None and not _usable(name):
        message = f"invalid definition name {name[:80]!r}"
        expected = f"a name of at most {TOKEN_BYTES_MAX} bytes, without {VERSION_SIGN}, that does not look like a hash"
        problems.append(Problem(code="definition.name", message=message, where="name", expected=expected))
    return problems


def _usable(name: str) -> str:
    """Return the name if a definition can be registered under it, else an empty string.

    A hash is reserved for the definition that has it, and a name with the version sign would hide the versions of the
    name before the sign.
    """
    try:
        token(name)
    except ValueError:
        return ""
    return "" if _HASH.fullmatch(name) or VERSION_SIGN in name else name
