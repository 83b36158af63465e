"""Versions: what has been registered under a name, in the order of the log, and the way back to an earlier one.

A name means what was registered under it last. A rollback registers an earlier version once more, and a withdrawal
registers nothing, so that the name means nothing from then on: nothing is erased, and the order of the log decides.
"""

import datetime as dt
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from callboard.bus.commands import Registration
from callboard.bus.errors import CallboardError
from callboard.bus.log.port import Refused
from callboard.bus.nats.jetstream import JetStreamLog, registration
from callboard.runtime.admission.registration import VERSION_SIGN, Registered, registered, travels

HASH_DIGITS_MIN = 6
"""With how much of its hash a version can be named."""

_NUMBER = re.compile(r"v([1-9][0-9]{0,8})")
_HASH = re.compile(rf"[0-9a-f]{{{HASH_DIGITS_MIN},64}}")


class Version(Struct, frozen=True):
    """One registration under a name, the ``number``-th; ``restores`` is the number of the one that a rollback brought
    back."""

    number: int
    sequence: int
    registered_at: dt.datetime
    kept: Registration
    restores: int | None = None

    @property
    def withdrawn(self) -> bool:
        """Whether it says that the name means nothing."""
        return self.kept.source is None


class UnknownDefinition(CallboardError):
    """Nothing is registered under a name or a hash."""

    def __init__(self, name: str) -> None:
        remedy = "`callboard definitions` lists what is; `callboard push FILE --name NAME` registers one."
        super().__init__("definition.unknown", f"no definition {name!r} is registered", remedy=remedy)


class UnknownVersion(CallboardError):
    """A name has no version of this number or hash, or more than one hash begins so."""

    def __init__(self, name: str, version: str) -> None:
        message = f"{name!r} has no version {version!r}, or several"
        remedy = "`callboard definitions NAME` lists its versions; each has a number and a hash."
        super().__init__("definition.version_unknown", message, remedy=remedy)


class NoEarlierVersion(CallboardError):
    """A name is to be rolled back behind its first version."""

    def __init__(self, name: str) -> None:
        remedy = "`callboard definitions NAME` lists its versions."
        super().__init__("definition.no_earlier", f"{name!r} has no version before the one in force", remedy=remedy)


class RegisteredMeanwhile(CallboardError):
    """Somebody else has registered something under a name that was to be rolled back."""

    def __init__(self, name: str) -> None:
        message = f"{name!r} has been registered anew meanwhile; nothing was changed"
        super().__init__("definition.moved", message, remedy="See `callboard definitions NAME`, and say it again.")


async def versions(log: JetStreamLog, tenant: str, name: str) -> list[Version]:
    """Return all that has been registered under a name, the oldest first: the last one is in force.

    :raises NoAnswer: if no answer came
    """
    try:
        subject = log.subjects.definition(tenant, name)
    except ValueError:
        return []  # a name that no subject takes was never registered
    found: list[Version] = []
    numbers: dict[int, int] = {}
    after = 0
    while (stored := await log.next_message(subject, after + 1)) is not None:
        after, number = stored.sequence, len(found) + 1
        numbers[after] = number
        kept = registration(stored)
        found.append(Version(number, after, stored.time, kept, numbers.get(kept.restores)))
    return found


async def meant(log: JetStreamLog, tenant: str, name: str) -> Registration | None:
    """Return what a name means: the version in force, or that of ``NAME@VERSION``. A hash is a name too.

    :raises NoAnswer: if no answer came
    """
    try:
        found = await log.definition(tenant, name)
    except ValueError:
        return None  # a name that no subject takes was never registered
    base, at, version = name.rpartition(VERSION_SIGN)
    if found is not None or not at:
        return found
    chosen = _chosen(await versions(log, tenant, base), version)
    return chosen.kept if chosen is not None else None


async def rollback(
    log: JetStreamLog, tenant: str, name: str, to: str | None = None, by: str | None = None
) -> Registered:
    """Have a name mean an earlier version again: that of a number (``v2``) or a hash, or else the one before.

    Said once more it goes further back: before a version that was brought back is what stood before it at first.

    :raises UnknownDefinition: if nothing is registered under the name
    :raises UnknownVersion: if it has no such version
    :raises NoEarlierVersion: if the one in force is the first
    :raises RegisteredMeanwhile: if something else was registered in between
    :raises Full: if there is no room
    :raises NoAnswer: if no answer came
    """
    known = await versions(log, tenant, name)
    if not known:
        raise UnknownDefinition(name)
    in_force = known[-1]
    first = in_force.restores or in_force.number
    earlier = [one for one in known[: first - 1] if not one.withdrawn]
    if to is None and not earlier:
        raise NoEarlierVersion(name)
    wanted = earlier[-1] if to is None else _chosen(known, to)
    if wanted is None or wanted.withdrawn:
        raise UnknownVersion(name, to or "")
    if travels(wanted.kept) == travels(in_force.kept):
        return msgspec.structs.replace(registered(in_force.kept), source=None, unchanged=True)
    origin = known[(wanted.restores or wanted.number) - 1]
    kept = msgspec.structs.replace(origin.kept, by=by, restores=origin.sequence)
    try:
        await log.register(tenant, kept, after=in_force.sequence)
    except Refused:
        raise RegisteredMeanwhile(name) from None
    return msgspec.structs.replace(registered(kept), source=None)


async def withdraw(log: JetStreamLog, tenant: str, name: str, by: str | None = None) -> None:
    """Have a name mean nothing any more; its versions stay, under their numbers and hashes.

    :raises UnknownDefinition: if it means nothing
    :raises RegisteredMeanwhile: if something else was registered in between
    :raises Full: if there is no room
    :raises NoAnswer: if no answer came
    """
    known = await versions(log, tenant, name)
    if not known or known[-1].withdrawn:
        raise UnknownDefinition(name)
    try:
        await log.register(tenant, Registration(name=name, by=by), after=known[-1].sequence)
    except Refused:
        raise RegisteredMeanwhile(name) from None


def _chosen(known: Sequence[Version], version: str) -> Version | None:
    """The version of a number, or the newest of a hash that begins so; None if there is none, or several hashes do."""
    if number := _NUMBER.fullmatch(version):
        return known[int(number[1]) - 1] if int(number[1]) <= len(known) else None
    if not _HASH.fullmatch(version):
        return None
    found = [one for one in known if (one.kept.hash or "").startswith(version)]
    return found[-1] if len({one.kept.hash for one in found}) == 1 else None
