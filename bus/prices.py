"""Prices: what models cost, as a dated table, and what a usage of them comes to.

The table that ships is `prices.toml` beside this, the providers' public list prices; a configuration may have other
ones. Sums are whole numbers of trillionths of a dollar, so that they are exact. What a model costs that is in no table
nobody knows: its tokens are counted, and a sum that has any is the least that it can be.
"""

import datetime as dt
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import fsum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from callboard.bus.effects import ModelUsage, Usage, used

PICO = 10**12
"""A dollar has so many of what is added up."""

_PER_TOKEN = PICO // 10**6
"""What a dollar per million tokens is per token."""

_SNAPSHOT = re.compile(r"-20\d\d-?[01]\d-?[0-3]\d$")
"""The date behind the name of a model."""

_ALWAYS = dt.date(1, 1, 1)

DOLLARS_MAX = 1_000_000
"""The highest price of a million tokens."""

Tokens = Annotated[int, Meta(ge=0)]


class Price(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """US dollars per million tokens, ``since`` a day (UTC), of turns with ``over`` so many tokens of input."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    since: dt.date | None = None
    over: Tokens = 0

    def of(self, usage: Usage) -> int:
        """What a usage comes to, in `PICO`."""
        read, written = usage.cache_read_tokens, usage.cache_write_tokens
        plain = max(usage.input_tokens - read - written, 0)
        return (
            plain * _pico(self.input)
            + usage.output_tokens * _pico(self.output)
            + read * _pico(self.input if self.cache_read is None else self.cache_read)
            + written * _pico(self.input if self.cache_write is None else self.cache_write)
        )


class Cost(Struct, frozen=True):
    """What something has cost: ``usd``, what ``unknown_tokens`` cost, whose price is not known, and what ``unmetered``
    answers cost, whose usage the provider did not report; absent if there are none."""

    usd: float = 0.0
    unknown_tokens: int = 0
    unmetered: int | UnsetType = UNSET

    @property
    def is_partial(self) -> bool:
        """Whether ``usd`` is not all of it."""
        return bool(self.unknown_tokens) or bool(self.unmetered)


class Bill(Struct, frozen=True):
    """A sum of costs, exact: ``pico`` of `PICO` in a dollar."""

    pico: int = 0
    unknown_tokens: int = 0
    unmetered: int = 0

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(
            self.pico + other.pico,
            self.unknown_tokens + other.unknown_tokens,
            self.unmetered + other.unmetered,
        )

    def __sub__(self, other: "Bill") -> "Bill":
        return Bill(
            self.pico - other.pico,
            self.unknown_tokens - other.unknown_tokens,
            self.unmetered - other.unmetered,
        )

    @property
    def cost(self) -> Cost:
        """The same as it is shown."""
        return Cost(self.pico / PICO, self.unknown_tokens, self.unmetered or UNSET)


class Prices:
    """A table of prices: rows by the name of a model, or by a pattern with ``*``; the longest one that fits counts."""

    def __init__(self, rows: Mapping[str, Sequence[Price]], behind: "Prices | None" = None) -> None:
        """Take a table; ``behind`` is asked for what it does not have."""
        self._named = {name: rows[name] for name in rows if "*" not in name}
        self._patterns = sorted((name for name in rows if "*" in name), key=len, reverse=True)
        self._rows = rows
        self._behind = behind

    def price(self, model: str, at: dt.datetime, over: int = 0) -> Price | None:
        """Return what a model costs at an instant in turns with more than so many tokens of input; None: unknown."""
        for rows in self._of(model):
            day = at.astimezone(dt.UTC).date()
            held = [row for row in rows if (row.since or _ALWAYS) <= day and row.over <= over]
            if held:
                return max(held, key=lambda row: (row.over, row.since or _ALWAYS))
        return self._behind.price(model, at, over) if self._behind is not None else None

    @property
    def digest(self) -> str:
        """What tells the table from every other one."""
        rows = msgspec.json.encode(self._rows, order="sorted")
        return sha256(rows + (self._behind.digest.encode() if self._behind is not None else b"")).hexdigest()[:12]

    def _of(self, model: str) -> Iterator[Sequence[Price]]:
        for name in dict.fromkeys((model, _SNAPSHOT.sub("", model))):
            if name in self._named:
                yield self._named[name]
        for pattern in self._patterns:
            if fnmatchcase(model, pattern):
                yield self._rows[pattern]

    def bill(self, models: Iterable[ModelUsage], at: dt.datetime) -> Bill:
        """Return what a usage of models comes to."""
        pico = unknown = unmetered = 0
        for one in models:
            unmetered += one.unmetered
            price = self.price(one.model, at, one.over)
            if price is None:
                unknown += one.usage.tokens
            else:
                pico += price.of(one.usage)
        return Bill(pico, unknown, unmetered)

    def turn(self, model: str, usage: Usage, at: dt.datetime) -> Bill:
        """Return what one request comes to."""
        return self.bill(used(model, usage), at)


def read_prices(table: Mapping[str, Any]) -> tuple[dict[str, list[Price]], dict[str, str]]:
    """Read a table as people write it: by model a row, several, or a number for input and output alike.

    Return it with what is wrong, by where that is.
    """
    found: dict[str, list[Price]] = {}
    wrong: dict[str, str] = {}
    for model, given in table.items():
        for index, row in enumerate(given if isinstance(given, list) else [given]):
            where = f"{model}[{index}]" if isinstance(given, list) else model
            flat = isinstance(row, int | float | str | Decimal) and not isinstance(row, bool)
            try:
                price = msgspec.convert({"input": row, "output": row} if flat else row, Price, strict=False)
            except msgspec.ValidationError as error:
                wrong[where] = str(error)
                continue
            amounts = [price.input, price.output, price.cache_read or Decimal(), price.cache_write or Decimal()]
            if any(_exact(amount) is None for amount in amounts):
                wrong[where] = f"expected a price from 0 to {DOLLARS_MAX} with at most 6 decimals"
            found.setdefault(model, []).append(price)
    return found, wrong


def _exact(usd: Decimal) -> int | None:
    """A price per million tokens as one per token, in `PICO`; None if that is no whole number, or no price."""
    if not usd.is_finite() or not 0 <= usd <= DOLLARS_MAX:
        return None
    per_token = usd * _PER_TOKEN
    return int(per_token) if per_token == per_token.to_integral_value() else None


@cache
def _pico(usd: Decimal) -> int:
    return _exact(usd) or 0


@cache
def list_prices() -> Prices:
    """Return the table that ships."""
    text = (files("callboard.bus") / "prices.toml").read_text(encoding="utf-8")
    rows, wrong = read_prices(tomllib.loads(text, parse_float=Decimal))
    assert not wrong, wrong
    return Prices(rows)


def added(costs: Sequence[Cost]) -> Cost:
    """Return the sum of costs as they are shown."""
    usd = fsum(cost.usd for cost in costs)
    unmetered = sum(cost.unmetered or 0 for cost in costs)
    return Cost(usd, sum(cost.unknown_tokens for cost in costs), unmetered or UNSET)


def dollars(cost: Cost) -> str:
    """Return a cost for people: ``$0.0123``; if some of it is unknown ``at least $0.0123``, if all is ``unknown``."""
    if cost.is_partial and not cost.usd:
        return "unknown"
    digits = 2 if cost.usd >= 1 or not cost.usd else 4
    shown = f"${cost.usd:,.{digits}f}" if not 0 < cost.usd < 0.0001 else "less than $0.0001"
    return f"at least {shown}" if cost.is_partial else shown
