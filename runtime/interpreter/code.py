"""Code: what a run's events record of the code that its definition names, if its definition is code.

A definition names an entry point and the digest of its sources. The run may later have been adopted with other sources.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.log.forks import origin_of
from callboard.languages.kit import kits
from callboard.languages.registry import hosting


class NamedCode(Struct, frozen=True):
    """An entry point, and the digest of sources; the digest is empty if it is not known."""

    entry: str
    digest: str


class _Definition(Struct):
    language: str
    source: str


class _Accepted(Struct):
    """The members of ``run.accepted`` that are read here."""

    definition: _Definition


def named_code(first: Event) -> NamedCode | None:
    """Return the code that the definition of a run names; None if its definition is not code, or cannot be read."""
    if first.type == ev.NEWER:
        return None
    ref = msgspec.json.decode(first.payload, type=_Accepted).definition
    if ref.language not in kits() or not kits()[ref.language].code_module:
        return None
    return code_in(ref.source)


def code_in(source: str) -> NamedCode | None:
    """Return the code that the text of a definition names; None if it does not name code."""
    spoken = next(kit.language for kit in kits().values() if kit.code_module)
    parsed = spoken.parse(source)
    return None if isinstance(parsed, list) else NamedCode(*hosting().code_named(parsed.document))


def same_entry(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> bool:
    """Whether two definitions, as a start names them, are the same entry point of code, with whatever sources."""
    one, other = (_code_of_definition(named) for named in (recorded, requested))
    return one is not None and other is not None and one.entry == other.entry


def _code_of_definition(named: Mapping[str, Any]) -> NamedCode | None:
    source = named.get("source")
    return code_in(source) if isinstance(source, str) and set(named) <= {"source", "language"} else None


def adopted_digest(events: Sequence[Event]) -> str:
    """Return the digest of the code that the run was last adopted with; empty if it has that of its definition."""
    adopted = next((event for event in reversed(events) if event.type == ev.RunAdopted.type), None)
    if adopted is None or adopted.n <= _shared_n(events[0]):
        return ""
    payload = ev.payload_of(adopted)
    assert isinstance(payload, ev.RunAdopted)
    return payload.digest


def code_of(events: Sequence[Event]) -> NamedCode | None:
    """Return the code that a run was last performed with; None if its definition is not code."""
    named = named_code(events[0])
    return named and NamedCode(named.entry, adopted_digest(events) or named.digest)


def hosted_digest(code: NamedCode) -> str:
    """Return the digest of the sources that this process has for an entry point; empty if it has none."""
    digests = hosting().entries().get(code.entry, [])
    return code.digest if code.digest in digests else next(reversed(digests), "")


def _shared_n(first: Event) -> int:
    """Return the last event that a fork shares with its origin; 0 if the run is not a fork."""
    origin = origin_of(first)
    return origin.n if origin is not None else 0
