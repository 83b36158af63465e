"""The query language for runs: valid queries, and errors with their places."""

import datetime as dt

import pytest

from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import (
    NESTING_MAX,
    WHERE_CHARS_MAX,
    Both,
    Either,
    Not,
    Term,
    Where,
    WhereInvalid,
    where,
)

NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)


def read(text: str) -> Where:
    return where(text, STATUSES, NOW)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", Both(())),
        ("  status = failed ", Term("status", "=", "failed")),
        ("status=waiting:human", Term("status", "=", "waiting:human")),
        ("tag.customer=acme", Term("tag", "=", "acme", "customer")),
        ("tag.a.b-c!='x y'", Term("tag", "!=", "x y", "a.b-c")),
        ('error~"it\'s"', Term("error", "~", "it's")),
        ("tokens>=1000", Term("tokens", ">=", 1000)),
        ("attr.total>=-0.5", Term("attr", ">=", -0.5, "total")),
        ("attr.total=100", Term("attr", "=", "100", "total")),
        ("duration>1h30m", Term("duration", ">", 5400)),
        ("started>2h", Term("started", "<", NOW.timestamp() - 7200)),
        ("started<=2h", Term("started", ">=", NOW.timestamp() - 7200)),
        ("started>2026-11-23", Term("started", ">", NOW.timestamp() - 12 * 3600)),
        ("ended<2026-11-23T14:00:00+02:00", Term("ended", "<", NOW.timestamp())),
        ("not status=failed", Not(Term("status", "=", "failed"))),
        ("NOT (run=a OR run=b)", Not(Either((Term("run", "=", "a"), Term("run", "=", "b"))))),
        (
            "run=a or run=b and run=c or not run=d",
            Either(
                (
                    Term("run", "=", "a"),
                    Both((Term("run", "=", "b"), Term("run", "=", "c"))),
                    Not(Term("run", "=", "d")),
                )
            ),
        ),
        ("text~'connection refused'", Term("text", "~", "connection refused")),
    ],
)
def test_a_query_is_read(text: str, tree: Where) -> None:
    assert read(text) == tree


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("stats=failed", 1, "unknown field 'stats'; expected run, definition"),
        ("tag.=x", 1, "unknown field 'tag.'"),
        ("attr.=x", 1, "unknown field 'attr.'"),
        ("tag.n>5", 6, "tag.n cannot be compared with >"),
        ("attr.n>many", 8, "'many' is not a number"),
        ("status=failed and", 18, "the query ends before a test"),
        ("status=failed definition=a", 15, "unexpected 'definition' after a test; expected `and`, `or` or the end"),
        ("status=done", 8, "unknown status 'done'; expected accepted, running"),
        ("status>failed", 7, "status cannot be compared with >; expected = !="),
        ("status failed", 8, "no operator after status; expected = !="),
        ("run=", 5, "no value after run="),
        ("run=a and (run=b", 17, "a parenthesis is not closed"),
        ("run=a)", 6, "unexpected ')' after a test"),
        ("run='a", 5, "a quoted text does not end"),
        ("run=a and !", 11, "unexpected character '!'"),
        ("started>soon", 9, "'soon' is not a time; expected an age"),
        ("started=2h", 8, "started cannot be compared with ="),
        ("duration<5", 10, "'5' is not a duration"),
        ("tokens=many", 8, "'many' is not a number"),
        ("text~'-'", 6, "'-' contains no word"),
        ("(" * (NESTING_MAX + 1), NESTING_MAX + 1, "the query is nested too deeply"),
        ("not " * (NESTING_MAX + 1) + "run=a", 4 * NESTING_MAX + 1, "the query is nested too deeply"),
        ("run=" + "a" * WHERE_CHARS_MAX, WHERE_CHARS_MAX, f"the query has {WHERE_CHARS_MAX + 4} characters"),
    ],
)
def test_an_invalid_query_is_refused_with_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(WhereInvalid) as caught:
        read(text)
    assert (caught.value.code, caught.value.column, caught.value.where) == ("find.where", column, f"column {column}")
    assert caught.value.message.startswith(message)
