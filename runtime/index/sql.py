"""The SQL of a question: a tree of tests as a condition on the index's table of runs, with its values apart."""

import re
from typing import NamedTuple

from callboard.projections.runs import TOLD_BY_EVENTS
from callboard.projections.where import Both, Either, Not, Term, Where

WARNING = "!"
KEY = "*"
"""The names under which the warnings of a run, and the name of its key, stand among its tags; no tag has them."""

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


class Condition(NamedTuple):
    """SQL that is true or false of a row of ``runs``, and the values of its question marks."""

    sql: str
    values: Values


def condition(where: Where) -> Condition:
    """Return the condition that a tree of tests amounts to."""
    match where:
        case Term():
            return _test(where)
        case Not(inner):
            found = condition(inner)
            return Condition(f"NOT ({found.sql})", found.values)
        case Both(parts):
            return _joined(" AND ", parts, "1")
        case Either(parts):
            return _joined(" OR ", parts, "0")


def _joined(word: str, parts: tuple[Where, ...], of_none: str) -> Condition:
    found = [condition(part) for part in parts]
    sql = word.join(f"({one.sql})" for one in found) or of_none
    return Condition(sql, [value for one in found for value in one.values])


def _test(test: Term) -> Condition:
    match test.field:
        case "status":
            return _not(test, _status(str(test.value)))
        case "tag":
            return _not(test, _marked(test.name, test))
        case "attr":
            return _not(test, _attribute(test))
        case "warning":
            return _not(test, _marked(WARNING, test))
        case "encryption_key":
            return _not(test, _marked(KEY, test))
        case "input" | "output" | "text":
            columns = "input output error" if test.field == "text" else test.field
            found = "place IN (SELECT rowid FROM texts WHERE texts MATCH ?)"
            return _not(test, Condition(found, [f"{{{columns}}} : ({words(str(test.value))})"]))
        case "any":
            # What people type into a search field: part of a name, or words of a text.
            value = str(test.value)
            if not re.search(r"\w", value):
                return Condition("instr(words, ?) > 0", [value.casefold()])
            found = "(instr(words, ?) > 0 OR place IN (SELECT rowid FROM texts WHERE texts MATCH ?))"
            return Condition(found, [value.casefold(), words(value)])
        case field:
            return _column(_COLUMNS[field], test)


def _status(status: str) -> Condition:
    """A status is the one that is wanted, or one of its kind: ``waiting:human`` is ``waiting``."""
    if status not in TOLD_BY_EVENTS:
        return Condition("status = ?", [status])
    # How a run at work stands was told beside.
    column = "coalesce(told, status)"
    return Condition(f"({column} = ? OR substr({column}, 1, ?) = ?)", [status, len(status) + 1, f"{status}:"])


def _not(test: Term, found: Condition) -> Condition:
    """The condition, or its opposite, as the operator has it."""
    return Condition(f"NOT {found.sql}", found.values) if test.op.startswith("!") else found


def _marked(name: str, test: Term) -> Condition:
    compared = _contains("value", test.value) if test.op.endswith("~") else Condition("value = ?", [test.value])
    return Condition(f"place IN (SELECT place FROM tags WHERE name = ? AND {compared.sql})", [name, *compared.values])


def _attribute(test: Term) -> Condition:
    """One of the values is; as a number where numbers are compared, and where one is asked for."""
    match test.op:
        case "~" | "!~":
            compared = _contains("value", test.value)
        case "=" | "!=":
            number = as_number(str(test.value))
            compared = Condition("(value = ? OR number = ?)", [test.value, number])
        case _:
            compared = Condition(f"number {test.op} ?", [test.value])
    found = f"place IN (SELECT place FROM attributes WHERE name = ? AND {compared.sql})"
    return Condition(found, [test.name, *compared.values])


def as_number(text: str) -> float | None:
    """The number that a text is, if it is written like one."""
    return float(text) if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", text) else None


def _contains(column: str, value: str | float) -> Condition:
    """A column contains a text, whatever the case: what is ASCII is compared without leaving SQLite."""
    fold = "lower" if str(value).isascii() else "casefold"
    return Condition(f"(instr({fold}({column}), ?) > 0)", [str(value).casefold()])


def _column(column: str, test: Term) -> Condition:
    match test.op:
        case "~" | "!~":
            return _not(test, _contains(f"coalesce({column}, '')", test.value))
        case "=" | "!=":
            return _not(test, Condition(f"({column} IS ?)", [test.value]))
        case _:
            # What is not known is neither more nor less.
            return Condition(f"coalesce({column} {test.op} ?, 0)", [test.value])


def words(text: str) -> str:
    """A question to the full text: all words of a text, in any order; one that ends in an asterisk begins like that."""
    found: list[str] = []
    for word in text.split():
        bare = word.rstrip("*").replace('"', '""')
        if re.search(r"\w", bare):
            found.append(f'"{bare}"*' if word.endswith("*") else f'"{bare}"')
    return " AND ".join(found)
