"""The in-memory log: the same semantics as the JetStream log, with injected faults. For simulations and tests only.

A function chooses the fault of each put: none, refused (as if another write were in flight), stored but not
acknowledged, lost before it is stored, or answered late. ``bytes_max`` is the capacity of the log.
"""

import datetime as dt
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Literal

import anyio
import anyio.lowlevel

from callboard.bus.log.encryption import KEY_BYTES, Key, KeyRing, Lack, NoKeys, key_of_value
from callboard.bus.log.forks import with_origin
from callboard.bus.log.port import (
    Alarm,
    AppendRefused,
    Beside,
    Entry,
    FirstCommand,
    Full,
    LogReader,
    NoAnswer,
    RunMessage,
    RunMessages,
    Shares,
    SuccessorStart,
)
from callboard.bus.log.recorded import Recorded, decode_recorded, decrypt_event, within
from callboard.bus.subjects import RunRef, Subjects

Fault = Literal["none", "refused", "stored_but_unknown", "lost", "late"]

LATE_S = 0.05
"""Delay of a late answer."""


def no_faults(_ref: RunRef, _entry: Entry) -> Fault:
    return "none"


class MemoryKeys:
    """A `callboard.bus.log.encryption.KeyRing` in a dictionary."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], Key | None] = {}

    async def get(self, tenant: str, name: str) -> Key | Lack:
        return self._keys.get((tenant, name), Lack.MISSING) or Lack.DESTROYED

    async def make(self, tenant: str, name: str) -> Key | None:
        return self._keys.setdefault((tenant, name), Key(name, os.urandom(KEY_BYTES)))

    async def destroy(self, tenant: str, name: str) -> bool:
        """Destroy a key; return whether it existed."""
        there = self._keys.get((tenant, name)) is not None
        self._keys[tenant, name] = None
        return there


class MemoryLog:
    """An `EventLog` in a list."""

    def __init__(self, faults: Callable[[RunRef, Entry], Fault] = no_faults, prefix: str = "cb") -> None:
        self.faults = faults
        self.bytes_max: int | None = None
        """Capacity for events and large values, in bytes; None: unlimited."""
        self._bytes = 0
        self.alarms: dict[RunRef, Alarm] = {}
        self.run_messages: list[RunMessage] = []
        """The messages that runs sent to each other, in order."""
        self.starts: list[SuccessorStart] = []
        """The starts of runs that continue others, in order."""
        self.keys = MemoryKeys()
        self._ring: KeyRing = self.keys
        self._subjects = Subjects(prefix)
        self._all: list[tuple[str, Recorded]] = []
        self._runs: dict[RunRef, list[Recorded]] = {}
        self._blobs: dict[tuple[RunRef, str], bytes] = {}
        self._grown = anyio.Event()

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        if beside is not None:
            return await self._put(ref, entries, after, beside)
        for entry in entries:
            after = await self._put(ref, [entry], after)
        return after

    async def _put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        """Store entries and what belongs to them, all or nothing. The first entry decides the fault."""
        fault = self.faults(ref, entries[0])
        if fault == "lost":
            raise NoAnswer
        if fault == "late":
            await anyio.sleep(LATE_S)
        else:
            await anyio.lowlevel.checkpoint()
        run = self._runs.setdefault(ref, [])
        last = run[-1].sequence if run else 0
        if last != after:
            raise AppendRefused(last)
        if fault == "refused":
            raise AppendRefused
        self._take_in(sum(len(entry.data) for entry in entries))
        for entry in entries:
            subject = self._subjects.event(ref, entry.definition, entry.type)
            stored = decode_recorded(subject, len(self._all) + 1, ref, entry.id, entry.data)
            run.append(stored)
            self._all.append((subject, stored))
        match beside:
            case Alarm():
                self.alarms[ref] = beside
            case RunMessage():
                self.run_messages.append(beside)
            case SuccessorStart():
                self.starts.append(beside)
            case RunMessages(all=several):
                self.run_messages += [one for one in several if isinstance(one, RunMessage)]
                self.starts += [one for one in several if isinstance(one, SuccessorStart)]
            case Shares() | FirstCommand() | None:
                pass  # nothing is ever purged here, and runs are activated without commands
        grown, self._grown = self._grown, anyio.Event()
        grown.set()
        if fault == "stored_but_unknown":
            raise NoAnswer
        return run[-1].sequence

    async def last(self, ref: RunRef) -> Recorded | None:
        run = self._runs.get(ref)
        return await self._decrypt(run[-1]) if run else None

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        own = [each for each in self._runs.get(ref, []) if each.sequence > after][:limit]
        told = within([await self._decrypt(each) for each in own], bytes_max)
        return await with_origin(self, ref, told, after, limit, bytes_max)

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def without_keys(self) -> LogReader:
        log = copy(self)
        log._ring = NoKeys()
        return log

    @asynccontextmanager
    async def follow(
        self, filter: str | Sequence[str], after: int | None = None
    ) -> AsyncGenerator[AsyncIterator[Recorded]]:
        filters = (filter,) if isinstance(filter, str) else filter
        start = len(self._all) if after is None else after

        async def events() -> AsyncIterator[Recorded]:
            position = start
            while True:
                while position < len(self._all):
                    subject, stored = self._all[position]
                    position += 1
                    if any(matches(one, subject) for one in filters):
                        yield await self._decrypt(stored)
                await self._grown.wait()

        yield events()

    async def put_blob(self, ref: RunRef, digest: str, data: bytes) -> None:
        if (ref, digest) not in self._blobs:
            self._take_in(len(data))
        self._blobs[ref, digest] = data

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        stored = self._blobs[ref, digest]
        if (name := key_of_value(stored)) is None:
            return stored
        key = await self._ring.get(ref.tenant, name)
        if key is Lack.MISSING:
            raise NoAnswer(f"the key {name!r} is missing")
        if key is Lack.DESTROYED:
            raise KeyError(digest)
        return key.decrypted_value(stored)

    async def _decrypt(self, item: Recorded) -> Recorded:
        return await decrypt_event(self._ring, item) if item.encrypted else item

    def _take_in(self, size: int) -> None:
        if self.bytes_max is not None and self._bytes + size > self.bytes_max:
            raise Full(f"{self._bytes} of {self.bytes_max} bytes are used up")
        self._bytes += size


def matches(filter: str, subject: str) -> bool:
    """Return whether a NATS filter (with ``*`` and ``>``) matches a subject."""
    wanted, found = filter.split("."), subject.split(".")
    for i, part in enumerate(wanted):
        if part == ">":
            return len(found) > i
        if i >= len(found) or (part != "*" and part != found[i]):
            return False
    return len(wanted) == len(found)
