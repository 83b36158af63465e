"""The store of the index: SQLite, in a file or in memory. Plain calls, for one thread at a time.

``runs`` has a row per run; its place is the sequence of the run's first event. ``states`` has the states of the folds:
they are long, and a scan of all runs does not read them. There is an index for every column by which runs are sorted or
listed. ``tags`` has the tags, warnings, starters and encryption keys of runs, ``attributes`` the values of their
attributes, and ``texts`` their searchable texts. ``people`` has events of people. Events and the sequence up to which
they were indexed are written in one transaction.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from callboard.bus.effects import Usage
from callboard.bus.events import Event, RunAccepted, RunEnd
from callboard.bus.prices import Bill, Prices, list_prices
from callboard.features.index.queries import IndexQueries, decode_fold
from callboard.features.index.questions import ENDS, HumanEvent, HumanEvents
from callboard.features.index.questions import SCHEMA as PEOPLE
from callboard.features.index.sql import BY, KEY, WARNING
from callboard.projections.lists.runs import AT_WORK, RowStatus, RunFold, RunRow, begin_fold, begin_without_start
from callboard.projections.lists.where import Both
from callboard.projections.run.run_texts import texts

VERSION = 16
"""The version of the tables and of the folds in them. An index of another version is rebuilt."""

FOLDS_KEPT_MAX = 2_000
"""The maximum number of decoded folds in memory."""

CACHE_KIB = 32 * 1024
"""The size of SQLite's cache."""

SCHEMA = f"""{PEOPLE}
CREATE TABLE meta (name TEXT PRIMARY KEY, value);
CREATE TABLE runs (
  place INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, definition TEXT, hash TEXT, language TEXT, status TEXT,
  at_work INTEGER, accepted REAL, started REAL, ended REAL, duration REAL, tokens INTEGER, cost REAL,
  claims INTEGER, worker TEXT, error TEXT, words TEXT, origin TEXT, parent TEXT
);
CREATE TABLE states (place INTEGER PRIMARY KEY, state BLOB);
CREATE INDEX runs_of_definition ON runs (definition, place);
CREATE INDEX runs_of_status ON runs (status, place);
CREATE INDEX runs_of_hash ON runs (hash);
CREATE INDEX runs_of_language ON runs (language);
CREATE INDEX by_duration ON runs (duration);
CREATE INDEX by_tokens ON runs (tokens);
CREATE INDEX by_cost ON runs (cost);
CREATE INDEX by_error ON runs (error) WHERE error IS NOT NULL;
CREATE INDEX by_end ON runs (ended);
CREATE INDEX children ON runs (parent, place) WHERE parent != '';
CREATE INDEX forks ON runs (origin) WHERE origin != '';
CREATE INDEX forks_open ON runs (place) WHERE origin != '' AND ended IS NULL;
CREATE INDEX runs_at_work ON runs (place) WHERE at_work;
CREATE TABLE tags (name TEXT, value TEXT, place INTEGER, PRIMARY KEY (name, value, place)) WITHOUT ROWID;
CREATE INDEX tags_of_run ON tags (place);
CREATE TABLE attributes (
  name TEXT, value TEXT, number REAL, place INTEGER, PRIMARY KEY (name, value, place)
) WITHOUT ROWID;
CREATE INDEX numbers ON attributes (name, number) WHERE number IS NOT NULL;
CREATE INDEX attributes_of_run ON attributes (place);
CREATE TABLE bills (
  place INTEGER, model TEXT, input INTEGER, output INTEGER, pico INTEGER, unknown INTEGER, unmetered INTEGER,
  PRIMARY KEY (place, model)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE texts USING fts5 (input, output, error);
"""

_COLUMNS = (
    "place, run, definition, hash, language, status, at_work, accepted, started, ended, duration, tokens, cost, "
    "claims, worker, error, words, origin, parent"
)
_PUT = f"INSERT OR REPLACE INTO runs ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})"

_PUT_STATE = "INSERT OR REPLACE INTO states VALUES (?, ?)"

_encode = msgspec.msgpack.Encoder().encode


class IndexedEvent(NamedTuple):
    """An event with its sequence and its resolved large values."""

    sequence: int
    event: Event


class PurgedRun(NamedTuple):
    """The mark of a purged run, with its sequence."""

    sequence: int
    run: str


Taken = IndexedEvent | HumanEvent | PurgedRun


class _Kept(NamedTuple):
    place: int
    fold: RunFold


class RunIndex(IndexQueries):
    """The runs of one tenant, folded from the events up to `sequence`."""

    def __init__(
        self, path: Path | None, source: str, runs_max: int, prices: Prices | None = None, *, shared: bool = False
    ) -> None:
        """Open the index in a file, or a new one in memory.

        ``source`` identifies the stream, and the ``prices`` of the costs. An index of another source or version is
        emptied, and so is a damaged one, unless it is ``shared``: then another process indexes the events.

        :raises sqlite3.Error: if the index cannot be opened
        :raises OSError: if the index cannot be opened
        """
        self.runs_max = runs_max
        self._prices = prices or list_prices()
        self._folds: OrderedDict[str, _Kept] = OrderedDict()
        self._said: dict[int, dict[str, str]] = {}
        """The texts of the transaction by place, with an input if the run is new."""
        super().__init__(self._open_database(path, source, shared=shared))
        self.people = HumanEvents(self._db)
        self.sequence = int(self._meta("sequence"))
        """The sequence up to which events, and marks of purged runs, were indexed."""
        self.last, self.mark = int(self._meta("last")), self._meta("mark")
        """The sequence of the last event in the index, and the identity of that event."""
        self.count = 0 if shared else self._count()
        """The number of runs; only for the process that indexes the events."""

    def _count(self) -> int:
        return self._query("SELECT count(*) FROM runs", [])[0][0]

    def _open_database(self, path: Path | None, source: str, *, shared: bool) -> sqlite3.Connection:
        if path is not None and path.exists():
            if (db := _open_known(path, source)) is not None:
                return db
            if shared:
                raise sqlite3.DatabaseError(f"{path} is not an index of this stream in this version")
            remove(path)
        db = _connect_to_file(path)
        db.executescript(SCHEMA)
        known = [("version", VERSION), ("source", source), ("sequence", 0), ("last", 0), ("mark", "")]
        known += [("edition", 0)]
        db.executemany("INSERT INTO meta VALUES (?, ?)", known)
        db.commit()
        return db

    def refresh(self) -> None:
        """Read how far another process has indexed the log."""
        self.sequence = int(self._meta("sequence"))

    def clear(self) -> None:
        """Remove everything."""
        for table in ("runs", "states", "tags", "attributes", "bills", "texts"):
            self._db.execute(f"DELETE FROM {table}")
        self.people.clear()
        self._db.execute("UPDATE meta SET value = 0 WHERE name IN ('sequence', 'last')")
        self._db.commit()
        self._folds.clear()
        self.sequence = self.last = self.count = 0

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _meta(self, name: str) -> str:
        return str(self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])

    # -- writing ------------------------------------------------------------------------------------------------------

    def find_unadmitted(self, taken: Sequence[IndexedEvent]) -> list[IndexedEvent]:
        """Return the first event of each run whose admission is neither in the index nor among these events."""
        begun = set[str]()
        found: dict[str, IndexedEvent] = {}
        for one in taken:
            run = one.event.run
            if one.sequence <= self.sequence or run in begun or run in found:
                continue
            if one.event.type == RunAccepted.type or self._place(run) is not None:
                begun.add(run)
            else:
                found[run] = one
        return list(found.values())

    def take(
        self,
        taken: Sequence[Taken],
        sequence: int,
        moved: Sequence[IndexedEvent] = (),
        lost: Sequence[IndexedEvent] = (),
    ) -> None:
        """Index events, remove purged runs, and record that the log was read up to a sequence, in one transaction.

        ``moved`` are all events of runs that were moved out of the log, except for their last event. ``lost`` are the
        first existing events of runs whose first event the log has lost. Events of other runs without an admission are
        skipped.
        """
        changed: dict[str, _Kept] = {}
        before, quarantined = {one.sequence for one in moved}, {one.event.run for one in lost}
        try:
            for one in moved:
                self._take(one, changed)
            unadmitted = [_Kept(one.sequence, begin_without_start(one.event)) for one in lost]
            self._put(unadmitted)
            self.count += len(unadmitted)
            last = None
            for one in taken:
                if isinstance(one, PurgedRun):
                    self._remove(one, changed)
                    continue
                if isinstance(one, HumanEvent):
                    self.people.take(one)
                    continue
                last = one
                if one.event.type in ENDS:
                    self.people.end(one.sequence, one.event)
                # A run without its first event stays as it is: whatever the other events say, they are incomplete.
                skips = one.sequence in before or one.event.run in quarantined
                if one.sequence > self.sequence and not skips:
                    self._take(one, changed)
            self._put(changed.values())
            at, mark = (last.sequence, mark_of(last.event)) if last is not None else (self.last, self.mark)
            known = [(sequence, "sequence"), (at, "last"), (mark, "mark")]
            self._db.executemany("UPDATE meta SET value = ? WHERE name = ?", known)
            self._db.commit()
        except BaseException:
            self._db.rollback()
            self._folds.clear()
            self._said.clear()
            self.people.lose()
            self.count = self._count()
            raise
        self.sequence, self.last, self.mark = sequence, at, mark
        while len(self._folds) > FOLDS_KEPT_MAX:
            self._folds.popitem(last=False)

    def _take(self, one: IndexedEvent, changed: dict[str, _Kept]) -> None:
        event = one.event
        if event.type == RunAccepted.type:
            if (before := self._place(event.run)) is not None:
                # It was stored again, from an archive or from cold storage, with all its events.
                self._forget([before])
                self.people.remove(event.run)
            kept = _Kept(one.sequence, begin_fold(event))
            self.count += 1
        else:
            known = self._fold(event.run)
            if known is None:
                return
            kept = known
            kept.fold.apply(event)
            if event.type == RunEnd.type:
                kept.fold.price(self._prices)
        self._folds[event.run] = changed[event.run] = kept
        self._folds.move_to_end(event.run)
        if (said := texts(event)) is not None:
            given = {name: value for name in said.__struct_fields__ if (value := getattr(said, name)) is not None}
            self._said.setdefault(kept.place, {}).update(given)

    def _put(self, changed: Collection[_Kept]) -> None:
        self._db.executemany(_PUT, [_row(one) for one in changed])
        self._db.executemany(_PUT_STATE, [(one.place, _encode(one.fold)) for one in changed])
        self._mark(changed)
        self._bill(changed)
        self._say()
        self._keep_newest()

    def _fold(self, run: str) -> _Kept | None:
        if run not in self._folds:
            sql = "SELECT place, state FROM runs JOIN states USING (place) WHERE run = ?"
            row = self._db.execute(sql, (run,)).fetchone()
            return _Kept(row[0], decode_fold(row[1])) if row is not None else None
        return self._folds[run]

    def _place(self, run: str) -> int | None:
        return self._folds[run].place if run in self._folds else super()._place(run)

    def _say(self) -> None:
        said, self._said = self._said, {}
        new = [
            (place, one["input"], one.get("output", ""), one.get("error", ""))
            for place, one in said.items()
            if "input" in one
        ]
        self._db.executemany("INSERT INTO texts (rowid, input, output, error) VALUES (?, ?, ?, ?)", new)
        for place, one in said.items():
            if "input" not in one and any(one.values()):
                sets = ", ".join(f"{name} = ?" for name in one)
                self._db.execute(f"UPDATE texts SET {sets} WHERE rowid = ?", (*one.values(), place))

    def _mark(self, changed: Iterable[_Kept]) -> None:
        kept = [(one.fold.row, one.place) for one in changed]
        marks = [(name, value, place) for row, place in kept for name, value in _marks(row)]
        self._db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?, ?)", marks)
        values = [(*value, place) for row, place in kept for value in _values(row)]
        self._db.executemany("INSERT OR IGNORE INTO attributes VALUES (?, ?, ?, ?)", values)

    def _bill(self, changed: Iterable[_Kept]) -> None:
        bills: list[tuple[Any, ...]] = []
        for kept in changed:
            row, sums = kept.fold.row, dict[str, tuple[Usage, Bill]]()
            for one in row.models if row.ended_at is not None else []:
                usage, bill = sums.get(one.model, (Usage(), Bill()))
                sums[one.model] = usage + one.usage, bill + self._prices.bill([one], row.ended_at or row.accepted_at)
            bills += [
                (
                    *(kept.place, model, usage.input_tokens, usage.output_tokens),
                    *(bill.pico, bill.unknown_tokens, bill.unmetered),
                )
                for model, (usage, bill) in sums.items()
            ]
        self._db.executemany("INSERT OR REPLACE INTO bills VALUES (?, ?, ?, ?, ?, ?, ?)", bills)

    def _keep_newest(self) -> None:
        if (beyond := self.count - self.runs_max) > 0:
            old = self._db.execute("SELECT place FROM runs ORDER BY place LIMIT ?", (beyond,))
            self._forget([place for (place,) in old])
            self._folds.clear()

    def _forget(self, places: Sequence[int]) -> None:
        self.count -= len(places)
        for place in places:
            self._said.pop(place, None)
        for table, key in (
            ("runs", "place"),
            ("states", "place"),
            ("tags", "place"),
            ("attributes", "place"),
            ("bills", "place"),
            ("texts", "rowid"),
        ):
            self._db.executemany(f"DELETE FROM {table} WHERE {key} = ?", [(place,) for place in places])

    def _remove(self, mark: PurgedRun, changed: dict[str, _Kept]) -> None:
        """Remove a purged run that is older than its mark."""
        self.people.remove(mark.run)
        place = self._place(mark.run)
        if place is not None and place < mark.sequence:
            self._folds.pop(mark.run, None)
            changed.pop(mark.run, None)
            self._forget([place])

    def tell(self, statuses: Mapping[str, RowStatus]) -> None:
        """Record the exact statuses of runs in progress, from their own events, until their next event is indexed."""
        told = [(status, run, status) for run, status in statuses.items()]
        self._db.executemany("UPDATE runs SET status = ? WHERE run = ? AND at_work AND status != ?", told)
        self._db.commit()

    def rows(self) -> list[RunRow]:
        """Return the rows of all runs, the newest first."""
        return self.select(Both(()), self.runs_max)


def mark_of(event: Event) -> str:
    """Return a text that identifies an event."""
    return f"{event.run} {event.n} {event.time.isoformat()}"


def _connect_to_file(path: Path | None) -> sqlite3.Connection:
    db = sqlite3.connect(path or ":memory:", check_same_thread=False)
    db.create_function("casefold", 1, lambda text: cast("str", text).casefold(), deterministic=True)
    # Writes that are lost in a crash are read again from the log. Only the file must stay valid.
    try:
        for pragma in (
            *("journal_mode = WAL", "synchronous = NORMAL", "temp_store = MEMORY"),
            f"cache_size = -{CACHE_KIB}",
        ):
            db.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def remove(path: Path) -> None:
    """Remove the file of an index, and SQLite's files next to it."""
    for part in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        part.unlink(missing_ok=True)


def _marks(row: RunRow) -> Iterator[tuple[str, str]]:
    yield from row.tags.items()
    yield from ((WARNING, code) for code in row.warnings)
    if row.encryption_key:
        yield KEY, row.encryption_key
    if row.by:
        yield BY, row.by


def _values(row: RunRow) -> Iterator[tuple[str, str, float | None]]:
    """Yield the attributes of a run: name, text, and the number if the value is one."""
    for name, values in row.attributes.items():
        for value in values if isinstance(values, list) else [values]:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield name, text, None if isinstance(value, str | bool) else float(value)


def is_known(path: Path, source: str) -> bool:
    """Return whether a file has an index of this source and version."""
    return _identity(path) == (VERSION, source)


def is_begun(path: Path) -> bool:
    """Return whether the process that keeps a file has created its tables."""
    return _identity(path)[0] is not None


def _identity(path: Path) -> tuple[int | None, str | None]:
    """Return the version and the source of the index in a file; None for each if there is none."""
    if not path.exists():
        return None, None
    try:
        with closing(sqlite3.connect(path)) as db:
            found = dict(db.execute("SELECT name, value FROM meta"))
    except sqlite3.DatabaseError:
        return None, None
    return found.get("version"), found.get("source")


def _open_known(path: Path, source: str) -> sqlite3.Connection | None:
    """Open the index in a file; None if it is of another source or version, or not an index."""
    try:
        db = _connect_to_file(path)
    except sqlite3.DatabaseError:
        return None
    try:
        found = dict(db.execute("SELECT name, value FROM meta"))
        if (found.get("version"), found.get("source")) == (VERSION, source):
            return db
    except sqlite3.DatabaseError:
        pass
    db.close()
    return None


def _row(kept: _Kept) -> tuple[Any, ...]:
    row = kept.fold.row
    started, ended = (at.timestamp() if at is not None else None for at in (row.started_at, row.ended_at))
    return (
        kept.place,
        row.run,
        row.definition,
        row.definition_hash,
        row.language,
        row.status,
        row.status in AT_WORK and not row.awaits,
        row.accepted_at.timestamp(),
        started,
        ended,
        row.duration_s,
        row.tokens,
        row.cost.usd if row.cost is not None else None,
        row.claims,
        row.worker,
        row.error or None,
        "\n".join((row.run, row.definition, row.error or "")).casefold(),
        row.origin,
        row.parent,
    )
