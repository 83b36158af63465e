"""The store of the index: SQLite, in a file or in memory. Plain calls, for one thread at a time.

``runs`` has a row per run; its place is the sequence of the run's first event. ``states`` has the states of the folds:
they are long, and a scan of all runs does not read them. There is an index for every column by which runs are sorted or
listed. ``tags`` has the tags, warnings, starters and encryption keys of runs, ``attributes`` the values of their
attributes, and ``texts`` their searchable texts. Events and the sequence up to which they were indexed are written in
one transaction.
"""

import sqlite3
import sys
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from callboard.bus.effects import Usage
from callboard.bus.events import Event, RunAccepted, RunEnd
from callboard.bus.prices import Bill, Cost, Prices, list_prices
from callboard.features.index.sql import BY, KEY, WARNING, Values, condition
from callboard.projections.lists.runs import AT_WORK, RowStatus, RunFold, RunRow, begin_fold, begin_without_start
from callboard.projections.lists.where import Both, Where
from callboard.projections.run.run_texts import Texts, texts

VERSION = 14
"""The version of the tables and of the folds in them. An index of another version is rebuilt."""

FOLDS_KEPT_MAX = 2_000
"""The maximum number of decoded folds in memory."""

WINDOW = 200_000
WIDER = 8
"""The number of places, which are sequences of the stream, that the search for a page begins with, and the factor by
which the search is extended while it finds too few runs."""

WIDTHS = (2_000, 50_000)
"""The numbers of runs in the first parts of a list that is sorted by a column."""

REST_MAX = 100_000
"""The number of remaining rows of such a list from which on the rows that match are found first, and then sorted."""

FEW_MAX = 10_000
"""The number of matching runs up to which they are sorted, instead of searched in a sorted list."""

COUNTED_MAX = 1_000
"""The number of runs up to which their children are looked up by parent. For more runs, all children are counted."""

CACHE_KIB = 32 * 1024
"""The size of SQLite's cache."""

SCHEMA = """
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
_decode = msgspec.msgpack.Decoder(RunFold).decode


By = Literal["definition", "day", "model", "tag"]
"""The property by which costs are grouped. The day (UTC) is that of a run's end. A run with several tags is in the
group of each of them."""

_GROUPS: Mapping[By, str] = {
    "definition": "runs.definition",
    "day": "date(runs.ended, 'unixepoch')",
    "model": "bills.model",
    "tag": "tags.name || '=' || tags.value",
}

Column = Literal["run", "definition", "status", "duration", "tokens", "cost", "error", "ended"]
"""The columns by which runs can be sorted, besides the order in which they were accepted."""

_INDEX_OF: Mapping[Column, str] = {
    "run": "sqlite_autoindex_runs_1",
    "definition": "runs_of_definition",
    "status": "runs_of_status",
    "duration": "by_duration",
    "tokens": "by_tokens",
    "cost": "by_cost",
    "error": "by_error",
    "ended": "by_end",
}
"""The index for the order of each column."""

_MARKS = f"('{WARNING}', '{KEY}', '{BY}')"
"""The names in the table of tags that are not those of tags."""

Property = Literal["definition", "language", "error", "tag", "by"]
"""The properties of runs whose values can be listed."""

_LISTED: Mapping[Property, str] = {
    "definition": "SELECT definition, count(*) FROM runs WHERE definition != ''",
    "language": "SELECT language, count(*) FROM runs WHERE language != ''",
    "error": "SELECT error, count(*) FROM runs WHERE error IS NOT NULL",
    "tag": f"SELECT name || '=' || value, count(*) FROM tags WHERE name NOT IN {_MARKS}",
    "by": f"SELECT value, count(*) FROM tags WHERE name = '{BY}'",
}


class Order(msgspec.Struct, frozen=True):
    """The order of a list of runs: by a column, or without one by the time of acceptance. ``descending`` puts the
    greatest, or the newest, first. Of equal runs the newer one is first."""

    column: Column | None = None
    descending: bool = True


class ValueCount(msgspec.Struct, frozen=True):
    """A value of a property, and the number of runs that have it."""

    value: str
    runs: int


_JOINED: Mapping[By, str] = {"tag": f"JOIN tags ON tags.place = runs.place AND tags.name NOT IN {_MARKS} "}
"""The tables besides those of runs and bills that groups need."""


class Spending(msgspec.Struct, frozen=True):
    """The usage and the cost of a group of runs, which share ``name``."""

    name: str
    runs: int
    usage: Usage
    cost: Cost


class _Part(NamedTuple):
    """A part of a sorted list: its condition with the values of the placeholders, its order, and a clause ``by`` that
    names the index to use.

    A part ``is_short`` if it is faster to test each of its rows than to find all rows that match.
    """

    sql: str
    values: Values
    order: str
    by: str = ""
    is_short: bool = False


class Taken(NamedTuple):
    """An event with its sequence and its resolved large values."""

    sequence: int
    event: Event


class _Kept(NamedTuple):
    place: int
    fold: RunFold


class RunIndex:
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
        self._db = self._open_database(path, source, shared=shared)
        self.sequence = int(self._meta("sequence"))
        """The sequence of the last event in the index."""
        self.mark = self._meta("mark")
        """The identity of that event."""
        self.gone = int(self._meta("gone"))
        """The sequence up to which purge marks were applied."""
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
        known = [("version", VERSION), ("source", source), ("sequence", 0), ("gone", 0), ("mark", "")]
        db.executemany("INSERT INTO meta VALUES (?, ?)", known)
        db.commit()
        return db

    def refresh(self) -> None:
        """Read how far another process has indexed the log."""
        known = dict(self._query("SELECT name, value FROM meta", []))
        self.sequence, self.gone = int(known["sequence"]), int(known["gone"])

    def clear(self) -> None:
        """Remove everything."""
        for table in ("runs", "states", "tags", "attributes", "bills", "texts"):
            self._db.execute(f"DELETE FROM {table}")
        self._db.execute("UPDATE meta SET value = 0 WHERE name = 'sequence'")
        self._db.commit()
        self._folds.clear()
        self.sequence = self.count = 0

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _meta(self, name: str) -> str:
        return str(self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])

    # -- writing ------------------------------------------------------------------------------------------------------

    def unknown(self, taken: Sequence[Taken]) -> list[Taken]:
        """Return the first event of each run whose admission is neither in the index nor among these events."""
        begun = set[str]()
        found: dict[str, Taken] = {}
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
        self, taken: Sequence[Taken], sequence: int, moved: Sequence[Taken] = (), lost: Sequence[Taken] = ()
    ) -> None:
        """Index events, and record that the log was read up to a sequence, in one transaction.

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
            for one in taken:
                # A run without its first event stays as it is: whatever the other events say, they are incomplete.
                skips = one.sequence in before or one.event.run in quarantined
                if one.sequence > self.sequence and not skips:
                    self._take(one, changed)
            self._put(changed.values())
            mark = mark_of(taken[-1].event) if taken else self.mark
            known = [(sequence, "sequence"), (mark, "mark"), (self.gone, "gone")]
            self._db.executemany("UPDATE meta SET value = ? WHERE name = ?", known)
            self._db.commit()
        except BaseException:
            self._db.rollback()
            self._folds.clear()
            self.count = self._count()
            raise
        self.sequence, self.mark = sequence, mark
        while len(self._folds) > FOLDS_KEPT_MAX:
            self._folds.popitem(last=False)

    def _take(self, one: Taken, changed: dict[str, _Kept]) -> None:
        event = one.event
        if event.type == RunAccepted.type:
            if (before := self._place(event.run)) is not None:
                self._forget([before])
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
            self._say(kept.place, said, new=event.type == RunAccepted.type)

    def _put(self, changed: Collection[_Kept]) -> None:
        self._db.executemany(_PUT, [_row(one) for one in changed])
        self._db.executemany(_PUT_STATE, [(one.place, _encode(one.fold)) for one in changed])
        self._mark(changed)
        self._bill(changed)
        self._keep_newest()

    def _fold(self, run: str) -> _Kept | None:
        if run not in self._folds:
            sql = "SELECT place, state FROM runs JOIN states USING (place) WHERE run = ?"
            row = self._db.execute(sql, (run,)).fetchone()
            return _Kept(row[0], _decode(row[1])) if row is not None else None
        return self._folds[run]

    def _place(self, run: str) -> int | None:
        if run in self._folds:
            return self._folds[run].place
        row = self._db.execute("SELECT place FROM runs WHERE run = ?", (run,)).fetchone()
        return row[0] if row is not None else None

    def _say(self, place: int, said: Texts, *, new: bool) -> None:
        if new:
            self._db.execute(
                "INSERT INTO texts (rowid, input, output, error) VALUES (?, ?, '', '')", (place, said.input)
            )
            return
        given = {name: value for name, value in msgspec.structs.asdict(said).items() if value is not None}
        if any(given.values()):
            sets = ", ".join(f"{name} = ?" for name in given)
            self._db.execute(f"UPDATE texts SET {sets} WHERE rowid = ?", (*given.values(), place))

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
        for table, key in (
            ("runs", "place"),
            ("states", "place"),
            ("tags", "place"),
            ("attributes", "place"),
            ("bills", "place"),
            ("texts", "rowid"),
        ):
            self._db.executemany(f"DELETE FROM {table} WHERE {key} = ?", [(place,) for place in places])

    def forget(self, marks: Mapping[str, int], gone: int) -> None:
        """Remove purged runs that are older than their purge mark's sequence.

        ``gone`` is the sequence up to which there are no other marks.
        """
        for run, mark in marks.items():
            place = self._place(run)
            if place is not None and place < mark:
                self._folds.pop(run, None)
                self._forget([place])
        self._db.execute("UPDATE meta SET value = ? WHERE name = 'gone'", (gone,))
        self._db.commit()
        self.gone = gone

    def tell(self, statuses: Mapping[str, RowStatus]) -> None:
        """Record the exact statuses of runs in progress, from their own events, until their next event is indexed."""
        told = [(status, run, status) for run, status in statuses.items()]
        self._db.executemany("UPDATE runs SET status = ? WHERE run = ? AND at_work AND status != ?", told)
        self._db.commit()

    # -- queries ------------------------------------------------------------------------------------------------------

    def select(self, where: Where, limit: int, before: str | None = None, order: Order | None = None) -> list[RunRow]:
        """Return up to ``limit`` matching rows in an order, by default the newest first. ``before`` names a run after
        which to continue.

        :raises KeyError: if that run is not in the index
        """
        if order is not None and (order.column is not None or not order.descending):
            return self._select_sorted(where, limit, before, order)
        end = sys.maxsize
        if before is not None and (end := self._place(before)) is None:
            raise KeyError(before)
        newest = self._query("SELECT max(place) FROM runs", [])[0][0] or 0
        width = WINDOW
        while True:
            # Most queries match many runs. Then the newest rows suffice, and no others are searched.
            since = max(0, min(newest, end) - width)
            found = condition(where, since, end)
            # The plus excludes the order of places: few of all rows match, and they are found by the query first.
            by = "place" if since or width == WINDOW else "+place"
            sql = f"SELECT place FROM runs WHERE {by} < ? AND {by} >= ? AND ({found.sql}) ORDER BY {by} DESC LIMIT ?"
            rows = self._query(
                f"SELECT state FROM ({sql}) CROSS JOIN states USING (place) ORDER BY place DESC",
                [end, since, *found.values, limit],
            )
            if len(rows) >= limit or not since:
                return self._with_children([_decode(state).row for (state,) in rows])
            width *= WIDER

    def _select_sorted(self, where: Where, limit: int, before: str | None, order: Order) -> list[RunRow]:
        begins = self._place(before) if before is not None else None
        if before is not None and begins is None:
            raise KeyError(before)
        places = list[int]()
        for number, part in enumerate(self._parts(order, begins)):
            if number == 1 and (few := self._few(where, order, begins)) is not None:
                places = few[:limit]
                break
            found = condition(where, each=part.is_short)
            sql = f"SELECT place FROM runs {part.by} WHERE {part.sql} AND ({found.sql}) ORDER BY {part.order} LIMIT ?"
            places += [place for (place,) in self._query(sql, [*part.values, *found.values, limit - len(places)])]
            if len(places) >= limit:
                break
        marks = ", ".join("?" * len(places))
        states = dict(self._query(f"SELECT place, state FROM states WHERE place IN ({marks})", [*places]))
        return self._with_children([_decode(states[place]).row for place in places])

    def _with_children(self, rows: list[RunRow]) -> list[RunRow]:
        """Return the rows with the number of child runs of each."""
        few = [row.run for row in rows] if len(rows) <= COUNTED_MAX else []
        parents = f" AND parent IN ({', '.join('?' * len(few))})" if few else ""
        sql = f"SELECT parent, count(*) FROM runs WHERE parent != ''{parents} GROUP BY parent"
        children = dict(self._query(sql, [*few])) if rows else {}
        return [msgspec.structs.replace(row, children=children.get(row.run, 0)) for row in rows]

    def _few(self, where: Where, order: Order, begins: int | None) -> list[int] | None:
        """Return the sorted places of all matching runs behind the place ``begins``; None if many runs match."""
        found = condition(where)
        column = order.column or "place"
        sql = f"SELECT {column} IS NOT NULL, {column}, -place FROM runs WHERE"
        rows = self._query(f"{sql} {found.sql} LIMIT ?", [*found.values, FEW_MAX + 1])
        if len(rows) > FEW_MAX:
            return None
        # The list may continue behind a run that does not match any longer.
        rows += [row for row in self._query(f"{sql} place = ?", [begins]) if row not in rows]
        # Of equal runs the newer one is first, in both orders.
        rows.sort(key=itemgetter(2))
        rows.sort(key=lambda row: row[:2] if row[0] else (0,), reverse=order.descending)
        places = [-place for *_, place in rows]
        return places if begins is None else places[places.index(begins) + 1 :]

    def _parts(self, order: Order, begins: int | None) -> Iterator[_Part]:
        """Yield the parts of a sorted list, in order, from behind the place ``begins``. Unknown values are the least.

        Most queries match many runs. So the parts are short at first, and the first rows of the list are found without
        a search of the others.
        """
        column, way = order.column, "DESC" if order.descending else "ASC"
        beyond, within = ("<", ">") if order.descending else (">", "<")
        if column is None:
            after, bound = ("1", []) if begins is None else (f"place {beyond} ?", [begins])
            sql = f"SELECT place FROM runs WHERE {after} ORDER BY place {way} LIMIT 1 OFFSET {WIDTHS[0]}"
            for (last,) in self._query(sql, [*bound]):
                yield _Part(f"{after} AND place {within} ?", [*bound, last], f"place {way}", "", True)
                after, bound = f"NOT place {within} ?", [last]
            yield _Part(after, [*bound], f"place {way}")
            return
        value = None
        if begins is not None:
            [(value,)] = self._query(f"SELECT {column} FROM runs WHERE place = ?", [begins])
            yield from self._parts_of(column, value, begins)
        elif not order.descending:
            yield from self._parts_of(column, None, sys.maxsize)
        if begins is None or value is not None or not order.descending:
            after, bound = (f"{column} {beyond} ?", [value]) if value is not None else (f"{column} IS NOT NULL", [])
            for width in WIDTHS:
                sql = f"SELECT {column} FROM runs WHERE {after} ORDER BY {column} {way} LIMIT 1 OFFSET {width}"
                if not (last := self._query(sql, [*bound])):
                    break
                index, by = f"INDEXED BY {_INDEX_OF[column]}", f"{column} {way}, place DESC"
                yield _Part(f"{after} AND {column} {within} ?", [*bound, *last[0]], by, index, width == WIDTHS[0])
                yield from self._parts_of(column, last[0][0], sys.maxsize)
                after, bound = f"{column} {beyond} ?", [*last[0]]
            yield self._rest(column, after, bound, f"{column} {way}, place DESC")
        if order.descending and (begins is None or value is not None):
            yield from self._parts_of(column, None, sys.maxsize)

    def _parts_of(self, column: Column, value: str | float | None, end: int) -> Iterator[_Part]:
        """Yield the parts of a sorted list with one value of the column, before the place ``end``."""
        same, bound = (f"{column} IS NULL", []) if value is None else (f"{column} = ?", [value])
        sql = f"SELECT place FROM runs WHERE {same} AND place < ? ORDER BY place DESC LIMIT 1 OFFSET {WIDTHS[0]}"
        for (first,) in self._query(sql, [*bound, end]):
            between = [*bound, end, first]
            yield _Part(f"{same} AND place < ? AND place >= ?", between, "place DESC", "", True)
            end = first
        yield self._rest(column, f"{same} AND place < ?", [*bound, end], "place DESC")

    def _rest(self, column: Column, sql: str, values: Values, order: str) -> _Part:
        """Return the part of a sorted list of which few rows match."""
        rows = self._query(f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE {sql} LIMIT {REST_MAX})", values)[0][0]
        if rows == REST_MAX:
            # The plus excludes the index of this column, so that the rows that match the query are found first.
            return _Part(f"+{sql}", values, f"+{order}")
        # The index of errors does not have the runs without one.
        index = "" if sql.startswith("error IS NULL") else f"INDEXED BY {_INDEX_OF[column]}"
        return _Part(sql, values, order, index)

    def values(self, of: Property, limit: int) -> list[ValueCount]:
        """Return up to ``limit`` values of a property, those of the most runs first."""
        sql = f"{_LISTED[of]} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?"
        return [ValueCount(value, runs) for value, runs in self._query(sql, [limit])]

    def matching(self, where: Where) -> int:
        """Return the number of matching runs."""
        found = condition(where)
        return self._query(f"SELECT count(*) FROM runs WHERE {found.sql}", found.values)[0][0]

    def ids(self, where: Where) -> list[str]:
        """Return the ids of all matching runs, the oldest first."""
        found = condition(where)
        return [run for (run,) in self._query(f"SELECT run FROM runs WHERE {found.sql} ORDER BY place", found.values)]

    def rows(self) -> list[RunRow]:
        """Return the rows of all runs, the newest first."""
        return self.select(Both(()), self.runs_max)

    def open_rows(self) -> list[RunRow]:
        """Return the rows of the runs that have not ended, the newest first, without the number of their child runs."""
        sql = "SELECT state FROM runs CROSS JOIN states USING (place) WHERE ended IS NULL ORDER BY place DESC"
        return [_decode(state).row for (state,) in self._query(sql, [])]

    def at_work(self) -> list[str]:
        """Return the ids of the runs in progress, whose exact status is only in their own events."""
        return [run for (run,) in self._query("SELECT run FROM runs WHERE at_work", [])]

    def forks_open(self) -> list[str]:
        """Return the ids of the forks that have not ended."""
        sql = "SELECT run FROM runs WHERE origin != '' AND ended IS NULL ORDER BY place"
        return [run for (run,) in self._query(sql, [])]

    def counts(self) -> dict[RowStatus, int]:
        """Return the number of runs by status. The statuses of runs in progress are coarse."""
        return dict(self._query("SELECT status, count(*) FROM runs GROUP BY status", []))

    def costs(self, where: Where, by: By) -> list[Spending]:
        """Return the costs of the matching runs that have ended, grouped, the most expensive group first.

        Child runs are not counted separately, because the ends of their parents include them.
        """
        found = condition(where)
        # Sums in trillionths of a dollar would overflow an SQLite integer.
        sql = (
            f"SELECT {_GROUPS[by]}, count(DISTINCT runs.place), sum(input), sum(output), "
            "sum(pico / 1000000), sum(pico % 1000000), sum(unknown), sum(unmetered) "
            f"FROM runs JOIN bills ON bills.place = runs.place {_JOINED.get(by, '')}"
            f"WHERE runs.place IN (SELECT place FROM runs WHERE parent = '' AND ({found.sql})) GROUP BY 1 ORDER BY 1"
        )
        rows = [
            Spending(name, runs, Usage(input, output), Bill(micro * 1_000_000 + pico, unknown, unmetered).cost)
            for name, runs, input, output, micro, pico, unknown, unmetered in self._query(sql, found.values)
        ]
        return rows if by == "day" else sorted(rows, key=lambda row: (-row.cost.usd, -row.cost.unknown_tokens))

    def versions(self) -> dict[str, int]:
        """Return the number of runs by hash of the definition."""
        return dict(self._query("SELECT hash, count(*) FROM runs GROUP BY hash", []))

    def _query(self, sql: str, values: Values) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, values).fetchall()


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
