"""Queries of the index: lists of runs in an order, page by page, their counts, values and costs."""

import sqlite3
import sys
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec

from callboard.bus.effects import Usage
from callboard.bus.prices import Bill, Cost
from callboard.features.index.sql import BY, KEY, WARNING, Values, condition
from callboard.projections.lists.runs import RowStatus, RunFold, RunRow
from callboard.projections.lists.where import Where

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

decode_fold = msgspec.msgpack.Decoder(RunFold).decode

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


class IndexQueries:
    """What the index of a tenant's runs is asked for. `callboard.features.index.store` describes the tables."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

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
                return self._with_children([decode_fold(state).row for (state,) in rows])
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
        return self._with_children([decode_fold(states[place]).row for place in places])

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

    def open_rows(self) -> list[RunRow]:
        """Return the rows of the runs that have not ended, the newest first, without the number of their child runs."""
        sql = "SELECT state FROM runs CROSS JOIN states USING (place) WHERE ended IS NULL ORDER BY place DESC"
        return [decode_fold(state).row for (state,) in self._query(sql, [])]

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

    def _place(self, run: str) -> int | None:
        row = self._db.execute("SELECT place FROM runs WHERE run = ?", (run,)).fetchone()
        return row[0] if row is not None else None
