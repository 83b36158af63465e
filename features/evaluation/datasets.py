"""Datasets: cases for experiments, in a key-value bucket beside the log. Each version of a dataset is immutable.

A case refers to a recorded run, or has an input. The runs of a dataset are kept: a purge refuses them while a version
refers to them, because each has a note beside its events (`callboard.bus.nats.purge`).
"""

import datetime as dt
import zlib
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from callboard.bus.errors import CallboardError
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.key_value import Conflict, KeyValueStore
from callboard.bus.nats.purge import hold_run, release_run
from callboard.bus.nats.stream import bucket_of
from callboard.bus.subjects import RunRef, is_name, token
from callboard.lib.canonical_json import digest
from callboard.lib.concurrency import side_by_side
from callboard.lib.json_types import JSON

PART_BYTES = 512 * 1024
"""The size of the parts in which the cases of a version are stored."""

HELD_AT_ONCE = 16
"""How many runs get their notes at the same time."""

TRIES_MAX = 10
"""How often a version is added again if another process adds one at the same time."""


class DatasetCase(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A case: a recorded run, or an input. ``expected`` is the right answer, where it is known."""

    id: str = ""
    run: str = ""
    input: JSON | UnsetType = UNSET
    expected: JSON | UnsetType = UNSET
    tags: list[str] = []


class DatasetRow(Struct, frozen=True):
    """A version of a dataset, as a list shows it."""

    name: str
    version: int
    cases: int
    made_at: dt.datetime
    by: str | None = None


class Dataset(Struct, frozen=True):
    """A version of a dataset."""

    name: str
    version: int
    cases: list[DatasetCase]
    made_at: dt.datetime
    by: str | None = None

    @property
    def row(self) -> DatasetRow:
        return DatasetRow(self.name, self.version, len(self.cases), self.made_at, self.by)


class _Head(Struct, frozen=True):
    """A stored version: the digest of its cases, and the number of parts they are in."""

    row: DatasetRow
    digest: str
    parts: int


class DatasetUnknown(CallboardError):
    """No dataset, or no version of it, has this name."""

    def __init__(self, name: str, version: int | None = None) -> None:
        what = name if version is None else f"{name}@{version}"
        remedy = "`callboard dataset list` lists them; `callboard dataset add NAME` makes one."
        super().__init__("dataset.unknown", f"the dataset {what!r} does not exist", what, remedy)


class CaseInvalid(CallboardError):
    """A case cannot be added."""

    def __init__(self, message: str, where: str, remedy: str) -> None:
        super().__init__("dataset.case", message, where, remedy)


class Datasets:
    """The datasets of a tenant. Every method raises `NoAnswer` if the server does not answer."""

    def __init__(self, log: JetStreamLog, tenant: str, replicas: int = 1) -> None:
        self._log = log
        self._tenant = tenant
        self._kept = KeyValueStore(log.nc, bucket_of(log.subjects, "DATASETS"), replicas)

    async def rows(self) -> list[DatasetRow]:
        """Return every version of every dataset, by name, the newest version first."""
        heads = [msgspec.json.decode(one.value, type=_Head).row for one in await self._kept.below(self._heads())]
        return sorted(heads, key=lambda row: (row.name, -row.version))

    async def get(self, name: str, version: int | None = None) -> Dataset:
        """Return a version of a dataset, by default the newest.

        :raises DatasetUnknown: if it does not exist
        """
        versions = [] if version else await self._versions(name)
        number = version or (max(versions) if versions else 0)
        found = await self._kept.get(self._head(name, number)) if is_name(name) else None
        if found is None:
            raise DatasetUnknown(name, version)
        head = msgspec.json.decode(found.value, type=_Head)
        parts = [await self._kept.get(self._part(head.digest, place)) for place in range(head.parts)]
        data = b"".join(part.value for part in parts if part is not None)
        if sha256(data).hexdigest() != head.digest:
            raise CallboardError("dataset.damaged", f"version {number} has lost cases", name, "Add its cases again.")
        row = head.row
        cases = msgspec.json.decode(zlib.decompress(data), type=list[DatasetCase])
        return Dataset(row.name, row.version, cases, row.made_at, row.by)

    async def add(self, name: str, cases: Iterable[DatasetCase], by: str | None = None) -> Dataset:
        """Store a new version, with the cases of the newest one and further ones. One with the same id is replaced.

        :raises CaseInvalid: if the dataset cannot have this name, or a run does not exist
        """
        if not is_name(name) or "@" in name:
            raise CaseInvalid("this is not a name for a dataset", name, "Use letters, digits and dashes.")
        new = {case.id: case for case in map(_with_id, cases)}
        runs = [case.run for case in new.values() if case.run]
        held = await side_by_side(runs, lambda run: hold_run(self._log, RunRef(self._tenant, run), name), HELD_AT_ONCE)
        if not all(held):
            message = "the run does not exist, or has been purged"
            raise CaseInvalid(message, runs[held.index(False)], "`callboard runs` lists them.")
        for _ in range(TRIES_MAX):
            versions = await self._versions(name)
            before = (await self.get(name, max(versions))).cases if versions else []
            merged = {**{case.id: case for case in before}, **new}
            made = Dataset(name, max(versions, default=0) + 1, [*merged.values()], dt.datetime.now(dt.UTC), by)
            if await self._store(made):
                return made
        raise CallboardError("dataset.changed", "other processes keep adding versions", name, "Try again.")

    async def remove(self, name: str) -> int:
        """Remove all versions of a dataset, and release its runs; return the number of versions.

        :raises DatasetUnknown: if it does not exist
        """
        versions = await self._versions(name)
        if not versions:
            raise DatasetUnknown(name)
        runs = {case.run for number in versions for case in (await self.get(name, number)).cases if case.run}
        for number in versions:
            if (found := await self._kept.get(self._head(name, number))) is not None:
                await self._kept.delete(found.key, found.revision)
        for run in sorted(runs):
            await release_run(self._log, RunRef(self._tenant, run), name)
        return len(versions)

    async def _store(self, made: Dataset) -> bool:
        """Store a version; return False if there is one of its number."""
        data = zlib.compress(msgspec.json.encode(made.cases))
        parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        named = sha256(data).hexdigest()
        for place, part in enumerate(parts):
            try:
                await self._kept.put(self._part(named, place), part, 0)
            except Conflict:
                continue  # An equal part is there: it is named by its content.
        head = _Head(made.row, named, len(parts))
        try:
            await self._kept.put(self._head(made.name, made.version), msgspec.json.encode(head), 0)
        except Conflict:
            return False
        return True

    async def _versions(self, name: str) -> list[int]:
        keys = await self._kept.keys(self._heads(name)) if is_name(name) else []
        return [int(key.rpartition(".")[2]) for key in keys]

    def _heads(self, name: str | None = None) -> str:
        below = f".{token(name)}" if name is not None else ""
        return f"head.{token(self._tenant)}{below}"

    def _head(self, name: str, version: int) -> str:
        return f"{self._heads(name)}.{version}"

    def _part(self, named: str, place: int) -> str:
        return f"part.{token(self._tenant)}.{named}.{place}"


def _with_id(case: DatasetCase, where: str = "") -> DatasetCase:
    """Return a case with an id: its own, that of its run, or one made of its input."""
    if bool(case.run) == (case.input is not UNSET):
        raise CaseInvalid("a case has either a run or an input", where or case.id, "Give one of them.")
    if case.id and not is_name(case.id):
        raise CaseInvalid("the id of the case is too long", where or case.id, "Use a shorter one.")
    return msgspec.structs.replace(case, id=case.id or case.run or digest(case.input)[:12])


def sampled(runs: Sequence[str], count: int, seed: int) -> list[str]:
    """Return ``count`` of some runs, chosen by a seed: the same for the same runs, in their order."""
    chosen = sorted(runs, key=lambda run: sha256(f"{seed}/{run}".encode()).digest())[:count]
    kept = set(chosen)
    return [run for run in runs if run in kept]


def case_of(members: Any, where: str) -> DatasetCase:
    """Return the case that a line of a file has.

    :raises CaseInvalid: if it has unknown members, or wrong ones
    """
    try:
        return _with_id(msgspec.convert(members, DatasetCase), where)
    except msgspec.ValidationError as error:
        expected = "Expected an object with run or input, and optionally id, expected and tags."
        raise CaseInvalid(str(error), where, expected) from error
