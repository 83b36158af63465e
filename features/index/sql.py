"""The SQL of a query: a tree of tests as a condition on the index's table of runs, with separate values."""

import re
import sys
from typing import NamedTuple

from callboard.projections.lists.runs import STATUSES, TOLD_BY_EVENTS
from callboard.projections.lists.where import Both, Either, Not, Term, Where

WARNING = "!"
KEY = "*"
BY = "@"
"""The names of the entries for a run's warnings and its encryption key in the table of tags. Tags cannot have them."""

Values = list[str | float | None]

_COLUMNS = {
    "run": "run",
    "definition": "definition",
    "hash": "hash",
    "language": "language",
    "error": "error",
    "worker": "worker",
    "origin": "origin",
    "accepted": "accepted",
    "started": "started",
    "ended": "ended",
    "duration": "duration",
    "tokens": "tokens",
    "cost": "cost",
    "parent": "parent",
    "claims": "claims",
}


class SqlCondition(NamedTuple):
    """An SQL condition on a row of ``runs``, and the values of its placeholders."""

    sql: str
    values: Values


class _Scope(NamedTuple):
    since: int
    until: int
    each: bool


def condition(where: Where, since: int = 0, until: int = sys.maxsize, *, each: bool = False) -> SqlCondition:
    """Return the SQL condition of a tree of tests, for rows whose place is ``since`` or later, and before ``until``.

    With ``each`` the texts of each row are searched, otherwise all texts at once. That is faster unless few rows are
    tested.
    """
    return _condition(where, _Scope(since, until, each))


def _condition(where: Where, scope: _Scope) -> SqlCondition:
    match where:
        case Term():
            return _test(where, scope)
        case Not(inner):
            found = _condition(inner, scope)
            return SqlCondition(f"NOT ({found.sql})", found.values)
        case Both(parts):
            return _join_conditions(" AND ", parts, "1", scope)
        case Either(parts):
            return _join_conditions(" OR ", parts, "0", scope)


def _join_conditions(word: str, parts: tuple[Where, ...], of_none: str, scope: _Scope) -> SqlCondition:
    found = [_condition(part, scope) for part in parts]
    sql = word.join(f"({one.sql})" for one in found) or of_none
    return SqlCondition(sql, [value for one in found for value in one.values])


def _test(test: Term, scope: _Scope) -> SqlCondition:
    match test.field:
        case "status":
            return _not(test, _status(str(test.value)))
        case "tag":
            return _not(test, _mark_condition(test.name, test))
        case "attr":
            return _not(test, _attribute(test))
        case "warning":
            return _not(test, _mark_condition(WARNING, test))
        case "encryption_key":
            return _not(test, _mark_condition(KEY, test))
        case "by":
            return _not(test, _mark_condition(BY, test))
        case "input" | "output" | "text":
            columns = "input output error" if test.field == "text" else test.field
            return _not(test, _texts(f"{{{columns}}} : ({words(str(test.value))})", scope))
        case "any":
            # The text of a search field: part of a name, or words of a text.
            value = str(test.value)
            if not re.search(r"\w", value):
                return SqlCondition("instr(words, ?) > 0", [value.casefold()])
            found = _texts(words(value), scope)
            return SqlCondition(f"(instr(words, ?) > 0 OR {found.sql})", [value.casefold(), *found.values])
        case field:
            return _column(_COLUMNS[field], test)


def _texts(match: str, scope: _Scope) -> SqlCondition:
    """Return the condition of a full-text query. Texts outside of the scope are not searched."""
    if scope.each:
        return SqlCondition("EXISTS (SELECT 1 FROM texts WHERE texts MATCH ? AND rowid = runs.place)", [match])
    matching = "SELECT rowid FROM texts WHERE texts MATCH ? AND rowid >= ? AND rowid < ?"
    return SqlCondition(f"place IN ({matching})", [match, scope.since, scope.until])


def _status(status: str) -> SqlCondition:
    """Return the condition for a status or one of its kinds: ``waiting`` includes ``waiting:human``."""
    kinds: Values = [one for one in STATUSES if one.startswith(f"{status}:")] if status in TOLD_BY_EVENTS else []
    if not kinds:
        return SqlCondition("status = ?", [status])
    return SqlCondition(f"status IN ({', '.join('?' * (1 + len(kinds)))})", [status, *kinds])


def _not(test: Term, found: SqlCondition) -> SqlCondition:
    """Return the condition, negated if the operator is a negation."""
    return SqlCondition(f"NOT {found.sql}", found.values) if test.op.startswith("!") else found


def _mark_condition(name: str, test: Term) -> SqlCondition:
    compared = _contains("value", test.value) if test.op.endswith("~") else SqlCondition("value = ?", [test.value])
    return SqlCondition(
        f"place IN (SELECT place FROM tags WHERE name = ? AND {compared.sql})", [name, *compared.values]
    )


def _attribute(test: Term) -> SqlCondition:
    """Return the condition that one of an attribute's values matches, as a number for comparisons of numbers."""
    match test.op:
        case "~" | "!~":
            compared = _contains("value", test.value)
        case "=" | "!=":
            number = as_number(str(test.value))
            compared = SqlCondition("(value = ? OR number = ?)", [test.value, number])
        case _:
            compared = SqlCondition(f"number {test.op} ?", [test.value])
    found = f"place IN (SELECT place FROM attributes WHERE name = ? AND {compared.sql})"
    return SqlCondition(found, [test.name, *compared.values])


def as_number(text: str) -> float | None:
    """Return the number that a text represents; None if it is not a number."""
    return float(text) if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", text) else None


def _contains(column: str, value: str | float) -> SqlCondition:
    """Return the condition that a column contains a text, ignoring case. For ASCII, use SQLite's faster function."""
    fold = "lower" if str(value).isascii() else "casefold"
    return SqlCondition(f"(instr({fold}({column}), ?) > 0)", [str(value).casefold()])


def _column(column: str, test: Term) -> SqlCondition:
    match test.op:
        case "~" | "!~":
            found = _contains(column, test.value)
            return _not(test, SqlCondition(f"({column} IS NOT NULL AND {found.sql})", found.values))
        case "=" | "!=":
            # SQLite uses the indexes of parents and origins, which leave out runs without one, only if told that there
            # is one.
            known = f"{column} != ''" if column in ("parent", "origin") and test.value else f"{column} IS NOT NULL"
            return _not(test, SqlCondition(f"({column} = ? AND {known})", [test.value]))
        case _:
            # A comparison with an unknown value is false, also for a negation, which would take NULL for unknown.
            return SqlCondition(f"({column} {test.op} ? AND {column} IS NOT NULL)", [test.value])


def words(text: str) -> str:
    """Return a full-text query for all words of a text, in any order. A word that ends in an asterisk is a prefix."""
    found: list[str] = []
    for word in text.split():
        bare = word.rstrip("*").replace('"', '""')
        if re.search(r"\w", bare):
            found.append(f'"{bare}"*' if word.endswith("*") else f'"{bare}"')
    return " AND ".join(found)
