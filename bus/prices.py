"""Prices: a dated table of the prices of models, and the cost of a usage.

The built-in table is `prices.toml` in this package, with the providers' public list prices. A configuration may add
others. Sums are integers in trillionths of a dollar, so that they are exact. If no table contains a model, its price is
unknown: its tokens are counted separately, and a sum that includes some is a lower bound.
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

from callboard.bus.effects import LONG_TOKENS, ModelUsage, Usage, model_usage
from callboard.bus.model_names import PREFIXES, exact_name

PICO = 10**12
"""The number of units in a dollar; costs are added in these units."""

_PER_TOKEN = PICO // 10**6
"""A price of one dollar per million tokens, in units per token."""

_SNAPSHOT = re.compile(r"(?:[-@]20\d\d-?[01]\d-?[0-3]\d|[-@]latest)$")
"""The date, or the word, at the end of the name of a model's snapshot."""

_MODEL = re.compile(r"[^\s:/]+(?::\S+)?")
"""The name of a model in a table, or a pattern of names."""

_ALWAYS = dt.date(1, 1, 1)

DOLLARS_MAX = 1_000_000
"""The highest price of a million tokens."""

Tokens = Annotated[int, Meta(ge=0)]


class Price(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Prices in US dollars per million tokens, valid ``since`` a day (UTC), for inputs of more than ``over`` tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    since: dt.date | None = None
    over: Tokens = 0

    def of(self, usage: Usage) -> int:
        """Return the cost of a usage, in units of `PICO`."""
        read, written = usage.cache_read_tokens, usage.cache_write_tokens
        plain = max(usage.input_tokens - read - written, 0)
        return (
            plain * _pico(self.input)
            + usage.output_tokens * _pico(self.output)
            + read * _pico(self.input if self.cache_read is None else self.cache_read)
            + written * _pico(self.input if self.cache_write is None else self.cache_write)
        )


class Cost(Struct, frozen=True):
    """A cost for display. ``usd`` does not include ``unknown_tokens``, whose price is not known, and ``unmetered``
    answers, whose usage the provider did not report. ``unmetered`` is left out if it is 0."""

    usd: float = 0.0
    unknown_tokens: int = 0
    unmetered: int | UnsetType = UNSET

    @property
    def is_partial(self) -> bool:
        """Whether ``usd`` is only a part of the cost."""
        return bool(self.unknown_tokens) or bool(self.unmetered)


class Bill(Struct, frozen=True):
    """An exact sum of costs; ``pico`` is in units of `PICO`."""

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
        """The sum for display."""
        return Cost(self.pico / PICO, self.unknown_tokens, self.unmetered or UNSET)


class Prices:
    """A table of prices: rows by the name of a model, or by a pattern with ``*``. The longest matching one applies."""

    def __init__(self, rows: Mapping[str, Sequence[Price]], fallback: "Prices | None" = None) -> None:
        """Create a table; ``fallback`` has the prices of models that it does not contain."""
        self._named = {name: rows[name] for name in rows if "*" not in name}
        self._patterns = sorted((name for name in rows if "*" in name), key=len, reverse=True)
        self._rows = rows
        self._fallback = fallback

    def price(self, model: str, at: dt.datetime, over: int = 0) -> Price | None:
        """Return the price of a model at an instant, for inputs of more than ``over`` tokens; None if it is unknown."""
        model = exact_name(model)
        for rows in self._of(model):
            day = at.astimezone(dt.UTC).date()
            held = [row for row in rows if (row.since or _ALWAYS) <= day and row.over <= over]
            if held:
                return max(held, key=lambda row: (row.over, row.since or _ALWAYS))
        return self._fallback.price(model, at, over) if self._fallback is not None else None

    @property
    def digest(self) -> str:
        """A digest of the table's content."""
        rows = b"exact names " + msgspec.json.encode(self._rows, order="sorted")
        return sha256(rows + (self._fallback.digest.encode() if self._fallback is not None else b"")).hexdigest()[:12]

    def _of(self, model: str) -> Iterator[Sequence[Price]]:
        for name in dict.fromkeys((model, _SNAPSHOT.sub("", model))):
            if name in self._named:
                yield self._named[name]
        for pattern in self._patterns:
            if fnmatchcase(model, pattern):
                yield self._rows[pattern]

    def bill(self, models: Iterable[ModelUsage], at: dt.datetime) -> Bill:
        """Return the cost of a usage of models."""
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
        """Return the cost of one request."""
        return self.bill(model_usage(model, usage), at)


def read_prices(table: Mapping[str, Any]) -> tuple[dict[str, list[Price]], dict[str, str]]:
    """Read a table from a configuration: for each model a row, several rows, or one number for input and output.

    Return the table by the exact names of models, and the problems by their place.
    """
    found: dict[str, list[Price]] = {}
    wrong: dict[str, str] = {}
    for name, given in table.items():
        model = exact_name(name)
        if not _MODEL.fullmatch(model):
            wrong[name] = (
                f"is not the name of a model, which is `provider:model` or begins with {' or '.join(PREFIXES)}"
            )
        if model in found:
            wrong[name] = f"is given twice: it is the same model as {model}"
        if given == []:
            wrong[name] = "has no price"
        for index, row in enumerate(given if isinstance(given, list) else [given]):
            where = f"{name}[{index}]" if isinstance(given, list) else name
            flat = isinstance(row, int | float | str | Decimal) and not isinstance(row, bool)
            try:
                price = msgspec.convert({"input": row, "output": row} if flat else row, Price, strict=False)
            except msgspec.ValidationError as error:
                wrong[where] = str(error)
                continue
            amounts = [price.input, price.output, price.cache_read or Decimal(), price.cache_write or Decimal()]
            if any(_exact(amount) is None for amount in amounts):
                wrong[where] = f"expected a price from 0 to {DOLLARS_MAX} with at most 6 decimals"
            if price.over not in (0, *LONG_TOKENS):
                sizes = ", ".join(map(str, sorted(LONG_TOKENS)))
                wrong[where] = f"`over` is one of {sizes}, the sizes by which usage is counted; it is {price.over}"
            if any((price.since, price.over) == (other.since, other.over) for other in found.get(model, [])):
                wrong[where] = "has the same `since` and `over` as another price of this model"
            found.setdefault(model, []).append(price)
    return found, wrong


def _exact(usd: Decimal) -> int | None:
    """Convert a price per million tokens to units of `PICO` per token; None if that is not an integer, or invalid."""
    if not usd.is_finite() or not 0 <= usd <= DOLLARS_MAX:
        return None
    per_token = usd * _PER_TOKEN
    return int(per_token) if per_token == per_token.to_integral_value() else None


@cache
def _pico(usd: Decimal) -> int:
    return _exact(usd) or 0


@cache
def list_prices() -> Prices:
    """Return the built-in table."""
    text = (files("callboard.bus") / "prices.toml").read_text(encoding="utf-8")
    rows, wrong = read_prices(tomllib.loads(text, parse_float=Decimal))
    assert not wrong, wrong
    return Prices(rows)


def add_costs(costs: Sequence[Cost]) -> Cost:
    """Return the sum of costs for display."""
    usd = fsum(cost.usd for cost in costs)
    unmetered = sum(cost.unmetered or 0 for cost in costs)
    return Cost(usd, sum(cost.unknown_tokens for cost in costs), unmetered or UNSET)


def dollars(cost: Cost) -> str:
    """Return a cost as text: ``$0.0123``; ``at least $0.0123`` if a part is unknown; ``unknown`` if all of it is."""
    if cost.is_partial and not cost.usd:
        return "unknown"
    digits = 2 if cost.usd >= 1 or not cost.usd else 4
    shown = f"${cost.usd:,.{digits}f}" if not 0 < cost.usd < 0.0001 else "less than $0.0001"
    return f"at least {shown}" if cost.is_partial else shown
