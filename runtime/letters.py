"""Letters: what one run says to another, stored in one atomic batch with the event that it follows from.

The ``run.end`` of a child run goes with the wake of its parent, the ``effect.cancelled`` of a ``child.start`` with the
cancellation of the child. So there is no moment at which a worker could die and leave the other without its message.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Kill, Wake
from callboard.bus.effects import Failure
from callboard.bus.events import Problem
from callboard.bus.log import Alarm, Entry, EventLog, Recorded
from callboard.bus.subjects import RunRef

LETTER_BYTES_MAX = 128 * 1024
"""A letter is one message, and nothing of it is stored beside: a cause that is larger goes without its details."""

WORDS_CHARS_MAX = 5_000
"""Code and message of a cause are cut here in a letter; what was said is in the log of the run that says it. As JSON
a character takes up to 6 bytes."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A command of one run to another."""

    to: RunRef
    verb: str
    body: bytes


class Children(Protocol):
    """How runs reach each other."""

    async def admit(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        """Admit a run as a child, and call for somebody to perform it; every problem if it is refused.

        Repeating it is harmless.

        :raises Unknown: if the log does not answer
        """
        ...

    async def call(self, child: RunRef) -> None:
        """Call for somebody to perform a run that is admitted; harmless if somebody does.

        :raises Unknown: if the log does not answer
        """
        ...

    async def put(self, ref: RunRef, entry: Entry, after: int, letter: Letter) -> int:
        """Store an entry as `EventLog.put` does, and a letter: both or neither."""
        ...


class Posting:
    """An `EventLog` that stores a letter together with the event it goes with; otherwise the log that it is given."""

    def __init__(self, log: EventLog, children: Children) -> None:
        self.letters: dict[int, Letter] = {}
        """By the number of the event."""
        self._log = log
        self._children = children

    async def put(self, ref: RunRef, entry: Entry, after: int, alarm: Alarm | None = None) -> int:
        letter = self.letters.get(entry.n)
        if letter is None:
            return await self._log.put(ref, entry, after, alarm)
        sequence = await self._children.put(ref, entry, after, letter)
        del self.letters[entry.n]
        return sequence

    async def last(self, ref: RunRef) -> Recorded | None:
        return await self._log.last(ref)

    async def read(self, ref: RunRef, after: int = 0, limit: int | None = None) -> list[Recorded]:
        return await self._log.read(ref, after, limit)

    def follow(self, filter: str, after: int | None = None) -> AbstractAsyncContextManager[AsyncIterator[Recorded]]:
        return self._log.follow(filter, after)

    async def put_blob(self, ref: RunRef, digest: str, data: bytes) -> None:
        await self._log.put_blob(ref, digest, data)

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        return await self._log.get_blob(ref, digest)


def wake_of(parent: ev.Parent, child: RunRef) -> Letter:
    """Tell a parent that its child has ended."""
    return Letter(RunRef(child.tenant, parent.run), "wake", msgspec.json.encode(Wake(parent.key, child.run)))


def stop_of(child: RunRef, parent: RunRef, cause: Failure, *, kill: bool) -> Letter:
    """Tell a child to stop, because of what stopped its parent's wait for it."""
    by = f"run {parent.run}"
    code, message = cause.code[:WORDS_CHARS_MAX], (cause.message or cause.code)[:WORDS_CHARS_MAX]
    if kill:
        return Letter(child, "kill", msgspec.json.encode(Kill(by=by, reason=message)))
    body = msgspec.json.encode(Cancel(by=by, reason=code, message=message, details=msgspec.to_builtins(cause)))
    if len(body) > LETTER_BYTES_MAX:
        body = msgspec.json.encode(Cancel(by=by, reason=code, message=message))
    return Letter(child, "cancel", body)
