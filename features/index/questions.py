"""The questions to people in all runs, from the events that an index keeps of them.

The index keeps the events of people as they are stored, so encrypted if their run is: of all open questions, and of the
last ones that were closed. A reader folds them, and later only the new ones.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anyio
import msgspec

from callboard.bus.events import Event, HumanAsked, HumanClosed, RunEnd, RunQuarantined, encode_event
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import decode_recorded, decrypt_event
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.projections.lists.questions import Questions

OPEN_MAX = 10_000
"""The maximum number of runs of a tenant whose open questions are kept, the last ones that have asked; the questions of
others are only in the log."""

CLOSED_MAX = 500
"""The number of closed questions of a tenant, the last ones."""

ENDS = (RunEnd.type, RunQuarantined.type)

SCHEMA = """
CREATE TABLE people (
  sequence INTEGER PRIMARY KEY, run TEXT, key TEXT, asks INTEGER, closed INTEGER, id TEXT, data BLOB
);
CREATE INDEX people_of_run ON people (run, sequence);
CREATE INDEX people_closed ON people (closed) WHERE closed IS NOT NULL;
"""
"""An event that ``asks`` has the sequence of the one that ``closed`` its question."""


class HumanEvent(NamedTuple):
    """An event of a person, or a question to one, with the id and the bytes of its message."""

    sequence: int
    event: Event
    id: str
    data: bytes


class KeptEvents(NamedTuple):
    """The events of people up to a sequence. With another ``edition``, earlier events were removed."""

    edition: int
    sequence: int
    rows: list[tuple[int, str, str, bytes]]


class HumanEvents:
    """The table of the events of people, in the transactions of the index that has it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._open: dict[str, dict[str, int]] | None = None

    def lose(self) -> None:
        """Note that a transaction was not committed."""
        self._open = None

    def take(self, one: HumanEvent) -> None:
        """Keep an event of a run, if it asks a question, or the run has an open one."""
        event, asking = one.event, self._asking()
        ours = asking.get(event.run)
        asks = event.type == HumanAsked.type
        if ours is None and not asks:
            return
        self._insert(one.sequence, event, one.id, one.data)
        if asks:
            asking.setdefault(event.run, {})[event.key] = one.sequence
            # Runs that ask wait, so few of them have more than one question.
            if len(asking) > OPEN_MAX:
                self._drop_oldest(asking)
        elif event.type == HumanClosed.type and ours is not None and event.key in ours:
            self._close([ours.pop(event.key)], one.sequence)
            if not ours:
                del asking[event.run]

    def end(self, sequence: int, event: Event) -> None:
        """Note the end of a run, which closes its questions."""
        ours = self._asking().pop(event.run, None)
        if ours is not None:
            # How it ended does not matter here, and its output may be long.
            end = msgspec.structs.replace(event, type=RunEnd.type, blobs=[], payload=_ENDED)
            self._insert(sequence, end, "", encode_event(end))
            self._close([*ours.values()], sequence)

    def remove(self, run: str) -> None:
        """Remove the events of a purged run."""
        self._asking().pop(run, None)
        if self._db.execute("DELETE FROM people WHERE run = ?", (run,)).rowcount:
            self._change_edition()

    def clear(self) -> None:
        """Remove all events."""
        self._db.execute("DELETE FROM people")
        self._change_edition()
        self.lose()

    def since(self, edition: int, sequence: int) -> KeptEvents:
        """Return the events after a sequence, or all events if others were removed since an edition."""
        self._db.execute("BEGIN")
        try:
            known = dict(self._db.execute("SELECT name, value FROM meta WHERE name IN ('edition', 'sequence')"))
            after = sequence if edition == known["edition"] and sequence <= known["sequence"] else 0
            sql = "SELECT sequence, run, id, data FROM people WHERE sequence > ? ORDER BY sequence"
            return KeptEvents(known["edition"], known["sequence"], self._db.execute(sql, (after,)).fetchall())
        finally:
            self._db.rollback()

    def _asking(self) -> dict[str, dict[str, int]]:
        """Return the sequences of the open questions, by run and key."""
        if self._open is None:
            self._open = {}
            sql = "SELECT run, key, sequence FROM people WHERE asks AND closed IS NULL ORDER BY sequence"
            for run, key, sequence in self._db.execute(sql):
                self._open.setdefault(run, {})[key] = sequence
        return self._open

    def _insert(self, sequence: int, event: Event, id: str, data: bytes) -> None:
        asks = event.type == HumanAsked.type
        row = (sequence, event.run, event.key, asks, None, id, data)
        self._db.execute("INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def _close(self, asked: list[int], sequence: int) -> None:
        closed = [(sequence, one) for one in asked]
        self._db.executemany("UPDATE people SET closed = ? WHERE sequence = ?", closed)
        # Only now and then, because readers then read all events again.
        sql = "SELECT closed FROM people WHERE closed IS NOT NULL ORDER BY closed DESC LIMIT 1 OFFSET ?"
        if self._db.execute(sql, (2 * CLOSED_MAX,)).fetchone() is not None:
            (last,) = self._db.execute(sql, (CLOSED_MAX - 1,)).fetchone()
            self._drop("closed < ?", last)

    def _drop_oldest(self, asking: dict[str, dict[str, int]]) -> None:
        run = next(iter(asking))
        for sequence in asking.pop(run).values():
            self._drop("sequence = ?", sequence)

    def _drop(self, condition: str, value: int) -> None:
        """Remove questions, and then the events that no question of their run precedes any longer."""
        self._db.execute(f"DELETE FROM people WHERE asks AND {condition}", (value,))
        asked = "SELECT 1 FROM people AS one WHERE one.run = people.run AND one.asks AND one.sequence < people.sequence"
        self._db.execute(f"DELETE FROM people WHERE NOT asks AND NOT EXISTS ({asked})")
        self._change_edition()

    def _change_edition(self) -> None:
        self._db.execute("UPDATE meta SET value = value + 1 WHERE name = 'edition'")


_ENDED = msgspec.Raw(b'{"status":"completed"}')


class IndexedQuestions:
    """The questions of a tenant, folded from the events that its index has."""

    def __init__(self, log: JetStreamLog, tenant: str) -> None:
        self._log = log
        self._tenant = tenant
        self._one = anyio.Lock()
        self._forget(0)

    def _forget(self, edition: int) -> None:
        self._questions = Questions(closed_max=CLOSED_MAX)
        self._edition, self._sequence = edition, 0

    async def read(self, ask: Callable[[Callable[[Any], KeptEvents]], Awaitable[KeptEvents]]) -> Questions:
        """Return the questions of the index that ``ask`` queries.

        :raises NoAnswer: if the log does not answer, or the index cannot be queried
        """
        async with self._one:
            edition, sequence = self._edition, self._sequence
            found = await ask(lambda index: index.people.since(edition, sequence))
            if found.edition != edition or found.sequence < sequence:
                self._forget(found.edition)
            for at, run, id, data in found.rows:
                self._questions.apply(await self._read(at, RunRef(self._tenant, run), id, data))
                self._sequence = at
            self._sequence = found.sequence
            return self._questions

    async def _read(self, sequence: int, ref: RunRef, id: str, data: bytes) -> Event:
        item = decode_recorded(f"a question of run {ref.run}", sequence, ref, id, data)
        return await whole(self._log, await decrypt_event(self._log.ring, item) if item.encrypted else item)
