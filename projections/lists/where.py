"""Where: the query language that selects runs, parsed into a tree of tests.

    status=failed and definition=triage and tag.customer=acme and not (error~timeout or started>2h)

A test is a field, an operator and a value, which is a word or a quoted text. Times are compared with a date and time,
or with an age: ``started>2h`` selects runs that started more than two hours ago, ``started<2h`` the more recent ones.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.lib.durations import DURATION, seconds_of

WHERE_CHARS_MAX = 4_000
NESTING_MAX = 50
"""Limits of a query: its length, and the depth of its parentheses."""

Op = Literal["=", "!=", "~", "!~", "<", "<=", ">", ">="]
Kind = Literal["text", "status", "number", "amount", "duration", "time", "words", "value"]

_OPS: dict[Kind, tuple[Op, ...]] = {
    "text": ("=", "!=", "~", "!~"),
    "status": ("=", "!="),
    "number": ("=", "!=", "<", "<=", ">", ">="),
    "amount": ("<", "<=", ">", ">="),
    "duration": ("<", "<=", ">", ">="),
    "time": ("<", "<=", ">", ">="),
    "words": ("~", "!~"),
    "value": ("=", "!=", "~", "!~", "<", "<=", ">", ">="),
}

FIELDS: dict[str, Kind] = {
    "run": "text",
    "definition": "text",
    "hash": "text",
    "language": "text",
    "status": "status",
    "error": "text",
    "warning": "text",
    "worker": "text",
    "origin": "text",
    "parent": "text",
    "encryption_key": "text",
    "by": "text",
    "accepted": "time",
    "started": "time",
    "ended": "time",
    "duration": "duration",
    "tokens": "number",
    "cost": "amount",
    "claims": "number",
    "input": "words",
    "output": "words",
    "text": "words",
}
"""All fields except tags, ``tag.NAME``, and attributes, ``attr.NAME``. ``text`` searches inputs, outputs and errors."""

_NAMED: dict[str, Kind] = {"tag": "text", "attr": "value"}
"""Fields that are followed by a dot and a name."""

_TURNED: dict[Op, Op] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator for a time that corresponds to each operator for an age: a greater age is an earlier time."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<open>\()|(?P<close>\))|(?P<op>!=|!~|<=|>=|[=~<>])|(?P<quoted>'[^']*'|"[^"]*")|(?P<word>[^\s()=~<>!'"]+))"""
)


class WhereInvalid(CallboardError):
    """Raised for an invalid query, with the fault and its column (from 1) in the text."""

    def __init__(self, text: str, column: int, message: str, expected: str) -> None:
        super().__init__("find.where", f"{message}; expected {expected}", f"column {column}")
        self.text = text
        self.column = column


class Term(Struct, frozen=True):
    """A test of a field. ``name`` is that of a tag or an attribute.

    ``value`` is a text, a number, or for a time the seconds since 1970.
    """

    field: str
    op: Op
    value: str | float
    name: str = ""


class Not(Struct, frozen=True):
    inner: "Where"


class Both(Struct, frozen=True):
    """True if all parts are true, also without parts."""

    parts: tuple["Where", ...]


class Either(Struct, frozen=True):
    """True if one of the parts is true."""

    parts: tuple["Where", ...]


Where = Term | Not | Both | Either


def terms(where: Where) -> Iterator[Term]:
    """Yield all tests of a tree."""
    match where:
        case Term():
            yield where
        case Not(inner):
            yield from terms(inner)
        case Both(parts) | Either(parts):
            for part in parts:
                yield from terms(part)


def where(text: str, statuses: Sequence[str], now: dt.datetime) -> Where:
    """Parse a query. ``statuses`` are the valid statuses. An empty query selects all runs.

    :raises WhereInvalid: if the query is invalid, with the first fault
    """
    if len(text) > WHERE_CHARS_MAX:
        raise WhereInvalid(text, WHERE_CHARS_MAX, f"the query has {len(text)} characters", f"at most {WHERE_CHARS_MAX}")
    if (at := unsearchable(text)) is not None:
        raise WhereInvalid(text, at + 1, "the query has a NUL or half a surrogate pair", "printable characters")
    reading = _Reading(text, statuses, now)
    return reading.whole() if text.strip() else Both(())


_UNSEARCHABLE = re.compile("[\0\ud800-\udfff]")


def unsearchable(text: str) -> int | None:
    """Return the index of the first NUL or half of a surrogate pair in a text; None if it has none.

    SQLite ends a text at a NUL, and cannot encode half a surrogate pair.
    """
    found = _UNSEARCHABLE.search(text)
    return found.start() if found is not None else None


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


class _Reading:
    def __init__(self, text: str, statuses: Sequence[str], now: dt.datetime) -> None:
        self._text = text
        self._statuses = statuses
        self._now = now
        self._tokens = self._split()
        self._at = 0
        self._depth = 0

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(self._text.rstrip()):
            found = _TOKEN.match(self._text, at)
            if found is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                quote = self._text[at] in "'\""
                message = "a quoted text does not end" if quote else f"unexpected character {self._text[at]!r}"
                raise WhereInvalid(self._text, at + 1, message, "a field, an operator or a value")
            kind = str(found.lastgroup)
            tokens.append(_Token(kind, found[kind], found.start(kind) + 1))
            at = found.end()
        return [*tokens, _Token("end", "", len(self._text.rstrip()) + 1)]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _is(self, word: str) -> bool:
        return self._next.kind == "word" and self._next.text.lower() == word

    def _error(self, token: _Token, message: str, expected: str) -> WhereInvalid:
        return WhereInvalid(self._text, token.column, message, expected)

    def whole(self) -> Where:
        found = self._parse_alternatives()
        if self._next.kind != "end":
            raise self._error(self._next, f"unexpected {self._next.text!r} after a test", "`and`, `or` or the end")
        return found

    def _parse_alternatives(self) -> Where:
        return self._parse_list("or", lambda: self._parse_list("and", self._parse_operand, Both), Either)

    def _parse_list(self, word: str, part: Callable[[], Where], whole: type[Both] | type[Either]) -> Where:
        parts = [part()]
        while self._is(word):
            self._take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else whole(tuple(parts))

    def _parse_operand(self) -> Where:
        if not (self._is("not") or self._next.kind == "open"):
            return self._parse_test()
        token = self._take()
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(token, "the query is nested too deeply", f"at most {NESTING_MAX} levels")
        if token.kind == "word":
            found: Where = Not(self._parse_operand())
        else:
            found = self._parse_alternatives()
            if self._next.kind != "close":
                raise self._error(self._next, "a parenthesis is not closed", "`)`, `and` or `or`")
            self._take()
        self._depth -= 1
        return found

    def _parse_test(self) -> Term:
        field = self._take()
        kind = self._kind(field)
        op = self._take()
        wanted = " ".join(_OPS[kind])
        if op.kind != "op":
            raise self._error(op, f"no operator after {field.text}", wanted)
        if op.text not in _OPS[kind]:
            raise self._error(op, f"{field.text} cannot be compared with {op.text}", wanted)
        value = self._take()
        if value.kind not in ("word", "quoted"):
            raise self._error(value, f"no value after {field.text}{op.text}", "a word, or a text in quotes")
        text = value.text[1:-1] if value.kind == "quoted" else value.text
        return self._make_term(field.text, kind, op.text, text, value)

    def _kind(self, field: _Token) -> Kind:
        fields = f"{', '.join(FIELDS)}, tag.NAME or attr.NAME"
        if field.kind != "word":
            message = f"unexpected {field.text!r} instead of a test" if field.text else "the query ends before a test"
            raise self._error(field, message, f"a field: {fields}")
        what, _, name = field.text.partition(".")
        if what in _NAMED and name:
            return _NAMED[what]
        if field.text not in FIELDS:
            raise self._error(field, f"unknown field {field.text!r}", fields)
        return FIELDS[field.text]

    def _make_term(self, field: str, kind: Kind, op: Op, text: str, at: _Token) -> Term:
        match kind:
            case "status":
                if text not in self._statuses:
                    raise self._error(at, f"unknown status {text!r}", ", ".join(self._statuses))
                return Term(field, op, text)
            case "number":
                if not re.fullmatch(r"[0-9]{1,15}", text):
                    raise self._error(at, f"{text!r} is not a number", "a whole number")
                return Term(field, op, int(text))
            case "amount":
                if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text):
                    raise self._error(at, f"{text!r} is not an amount", "US dollars, such as 0.5")
                return Term(field, op, float(text))
            case "duration":
                return Term(field, op, self._seconds(text, at))
            case "time":
                if re.fullmatch(DURATION, text):
                    return Term(field, _TURNED[op], self._now.timestamp() - self._seconds(text, at))
                return Term(field, op, self._instant(text, at))
            case "words":
                if not re.search(r"\w", text):
                    raise self._error(at, f"{text!r} contains no word", "words to search for")
                return Term(field, op, text)
            case "text":
                what, _, name = field.partition(".")
                return Term(what, op, text, name)
            case "value":
                what, _, name = field.partition(".")
                return Term(what, op, self._number(text, at) if op[0] in "<>" else text, name)

    def _number(self, text: str, at: _Token) -> float:
        if not re.fullmatch(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?", text):
            raise self._error(at, f"{text!r} is not a number", "a number such as 100 or -0.5")
        return float(text)

    def _seconds(self, text: str, at: _Token) -> float:
        if not re.fullmatch(DURATION, text):
            raise self._error(at, f"{text!r} is not a duration", "a duration such as 90s, 10m, 2h or 7d")
        return seconds_of(text)

    def _instant(self, text: str, at: _Token) -> float:
        try:
            found = dt.datetime.fromisoformat(text)
            return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).timestamp()
        except (ValueError, OverflowError):
            expected = "an age, such as 2h or 7d, or a date and time, such as 2026-11-20T09:00"
            raise self._error(at, f"{text!r} is not a time", expected) from None
