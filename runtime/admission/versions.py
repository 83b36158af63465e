"""Versions: the registrations under a name, in the order of the log, and rollbacks to earlier ones.

A name refers to its latest registration. A rollback registers an earlier version once more. A withdrawal registers an
empty definition, after which the name refers to none. Nothing is erased; the order of the log decides.
"""

import datetime as dt
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from callboard.bus.commands import Registration
from callboard.bus.errors import CallboardError
from callboard.bus.log.port import AppendRefused
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.registrations import decode_registration, read_registration, store_registration
from callboard.runtime.admission.registration import VERSION_SIGN, Registered, to_registered, without_labels

HASH_DIGITS_MIN = 6
"""Minimum number of digits of a hash that identify a version."""

_NUMBER = re.compile(r"v([1-9][0-9]{0,8})")
_HASH = re.compile(rf"[0-9a-f]{{{HASH_DIGITS_MIN},64}}")


class Version(Struct, frozen=True):
    """The ``number``-th registration under a name; ``restores`` is the number of the version restored by a rollback."""

    number: int
    sequence: int
    registered_at: dt.datetime
    kept: Registration
    restores: int | None = None

    @property
    def withdrawn(self) -> bool:
        """Whether this registration withdrew the name."""
        return self.kept.source is None


class UnknownDefinition(CallboardError):
    """No definition is registered under a name or a hash."""

    def __init__(self, name: str) -> None:
        remedy = "`callboard definitions` lists all definitions; `callboard push FILE --name NAME` registers one."
        super().__init__("definition.unknown", f"no definition {name!r} is registered", remedy=remedy)


class UnknownVersion(CallboardError):
    """A name has no version of this number or hash, or more than one hash begins with these digits."""

    def __init__(self, name: str, version: str) -> None:
        message = f"{name!r} has no version {version!r}, or more than one version matches"
        remedy = "`callboard definitions NAME` lists its versions; each has a number and a hash."
        super().__init__("definition.version_unknown", message, remedy=remedy)


class NoEarlierVersion(CallboardError):
    """A rollback was requested for a name whose first version is in force."""

    def __init__(self, name: str) -> None:
        remedy = "`callboard definitions NAME` lists its versions."
        super().__init__("definition.no_earlier", f"{name!r} has no version before the one in force", remedy=remedy)


class RegisteredMeanwhile(CallboardError):
    """Another registration under the name was stored during a rollback or withdrawal."""

    def __init__(self, name: str) -> None:
        message = f"another version of {name!r} was registered at the same time; nothing was changed"
        remedy = "Check `callboard definitions NAME`, then repeat the command."
        super().__init__("definition.moved", message, remedy=remedy)


async def versions(log: JetStreamLog, tenant: str, name: str) -> list[Version]:
    """Return all registrations under a name, oldest first; the last one is in force.

    :raises NoAnswer: if the log does not answer
    """
    try:
        subject = log.subjects.definition(tenant, name)
    except ValueError:
        return []  # a name that does not fit a subject was never registered
    found: list[Version] = []
    numbers: dict[int, int] = {}
    after = 0
    while (stored := await log.next_message(subject, after + 1)) is not None:
        after, number = stored.sequence, len(found) + 1
        numbers[after] = number
        kept = decode_registration(stored)
        found.append(Version(number, after, stored.time, kept, numbers.get(kept.restores)))
    return found


async def find_registration(log: JetStreamLog, tenant: str, name: str) -> Registration | None:
    """Return the registration that a name refers to: the version in force, or that of ``NAME@VERSION``.

    A hash may be used as a name.

    :raises NoAnswer: if the log does not answer
    """
    try:
        found = await read_registration(log, tenant, name)
    except ValueError:
        return None  # a name that does not fit a subject was never registered
    base, at, version = name.rpartition(VERSION_SIGN)
    if found is not None or not at:
        return found
    chosen = _choose_version(await versions(log, tenant, base), version)
    return chosen.kept if chosen is not None else None


async def rollback(
    log: JetStreamLog, tenant: str, name: str, to: str | None = None, by: str | None = None
) -> Registered:
    """Make a name refer to an earlier version again: that of a number (``v2``) or a hash, or else the previous one.

    A repeated rollback goes further back: the version before a restored one is the one before its first registration.

    :raises UnknownDefinition: if nothing is registered under the name
    :raises UnknownVersion: if it has no such version
    :raises NoEarlierVersion: if the one in force is the first
    :raises RegisteredMeanwhile: if another version was registered at the same time
    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    known = await versions(log, tenant, name)
    if not known:
        raise UnknownDefinition(name)
    in_force = known[-1]
    first = in_force.restores or in_force.number
    earlier = [one for one in known[: first - 1] if not one.withdrawn]
    if to is None and not earlier:
        raise NoEarlierVersion(name)
    wanted = earlier[-1] if to is None else _choose_version(known, to)
    if wanted is None or wanted.withdrawn:
        raise UnknownVersion(name, to or "")
    if without_labels(wanted.kept) == without_labels(in_force.kept):
        return msgspec.structs.replace(to_registered(in_force.kept), source=None, unchanged=True)
    origin = known[(wanted.restores or wanted.number) - 1]
    kept = msgspec.structs.replace(origin.kept, by=by, restores=origin.sequence)
    try:
        await store_registration(log, tenant, kept, after=in_force.sequence)
    except AppendRefused:
        raise RegisteredMeanwhile(name) from None
    return msgspec.structs.replace(to_registered(kept), source=None)


async def withdraw(log: JetStreamLog, tenant: str, name: str, by: str | None = None) -> None:
    """Withdraw a name, so that it refers to no definition; its versions remain under their numbers and hashes.

    :raises UnknownDefinition: if the name refers to none already
    :raises RegisteredMeanwhile: if another version was registered at the same time
    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    known = await versions(log, tenant, name)
    if not known or known[-1].withdrawn:
        raise UnknownDefinition(name)
    try:
        await store_registration(log, tenant, Registration(name=name, by=by), after=known[-1].sequence)
    except AppendRefused:
        raise RegisteredMeanwhile(name) from None


def _choose_version(known: Sequence[Version], version: str) -> Version | None:
    """The version with a number, or the newest whose hash begins with these digits.

    None without a match, or if several hashes match.
    """
    if number := _NUMBER.fullmatch(version):
        return known[int(number[1]) - 1] if int(number[1]) <= len(known) else None
    if not _HASH.fullmatch(version):
        return None
    found = [one for one in known if (one.kept.hash or "").startswith(version)]
    return found[-1] if len({one.kept.hash for one in found}) == 1 else None
