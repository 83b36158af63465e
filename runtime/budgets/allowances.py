"""Allowances: what the runs of a tenant, or of a definition, may use within a window of time, as a fold of outcomes.

Each worker folds for itself what the log has, its own runs' turns among it, so that all of them come to the same sums.
A window begins with the hour, the day or the month (UTC), and with it everything is granted anew.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from callboard.bus.effects import Usage, used_by
from callboard.bus.events import EffectResult, Event, ModelResult
from callboard.bus.prices import PICO, Bill, Cost, Prices, dollars

Per = Literal["hour", "day", "month"]

COUNTED = (ModelResult.type, EffectResult.type)
"""Outcomes that say what was used of a model; a child run has its own."""


class Allowance(Struct, frozen=True, forbid_unknown_fields=True):
    """What may be used ``per`` window: of ``tokens``, ``usd`` and ``turns``, those that are given; ``then`` starts are
    refused, or runs are paused as well."""

    per: Per = "day"
    tokens: Annotated[int, Meta(ge=1)] | None = None
    usd: Annotated[float, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None
    then: Literal["refuse", "pause"] = "refuse"


class Exhausted(NamedTuple):
    """An allowance that is used up: its name, the sums, until when, and a mark of it that no other window has."""

    name: str
    sums: str
    until: dt.datetime
    mark: str
    pauses: bool


class _Outcome(Struct):
    usage: Usage = Usage()
    model: str = ""
    requests: list[Usage] = []
    unmetered: bool = False


_read = msgspec.json.Decoder(_Outcome).decode


class _Sum:
    def __init__(self) -> None:
        self.began = dt.datetime.min.replace(tzinfo=dt.UTC)
        self.tokens = self.turns = 0
        self.bill = Bill()


class Allowances:
    """Every allowance, by ``tenant`` or ``tenant/definition``, with what has been used of it."""

    def __init__(self, given: Mapping[str, Allowance], prices: Prices) -> None:
        self._given = given
        self._prices = prices
        self._sums = {name: _Sum() for name in given}

    @property
    def names(self) -> Sequence[str]:
        return list(self._given)

    def began(self, now: dt.datetime) -> dt.datetime:
        """When the longest window began that is open now."""
        return min((window(one.per, now) for one in self._given.values()), default=now)

    def take(self, tenant: str, event: Event) -> None:
        """Take the next outcome, of any run."""
        names = [name for name in (tenant, f"{tenant}/{event.definition}") if name in self._given]
        if not names:
            return
        outcome = _read(event.payload)
        bill = self._prices.bill(used_by(outcome.model, outcome), event.time)
        for name in names:
            began, found = window(self._given[name].per, event.time), self._sums[name]
            if began > found.began:
                found = self._sums[name] = _Sum()
                found.began = began
            if began == found.began:
                found.tokens += outcome.usage.tokens
                found.turns += event.type == ModelResult.type
                found.bill += bill

    def exhausted(self, tenant: str, definition: str, now: dt.datetime) -> list[Exhausted]:
        """Return the allowances of a run that are used up."""
        found: list[Exhausted] = []
        for name in (tenant, f"{tenant}/{definition}"):
            allowance, sums = self._given.get(name), self._sums.get(name)
            if allowance is None or sums is None or window(allowance.per, now) != sums.began:
                continue
            if told := _told(allowance, sums):
                mark = f"budget {name} {sums.began:%Y-%m-%dT%H}"
                words = f"{told} per {allowance.per}"
                found.append(Exhausted(name, words, _end(allowance.per, now), mark, allowance.then == "pause"))
        return found


def _told(allowance: Allowance, sums: _Sum) -> str:
    """What is used up, with the sums; the empty text if nothing is."""
    counted = ((allowance.tokens, sums.tokens, "tokens"), (allowance.turns, sums.turns, "turns of models"))
    told = [f"{used} of {most} {what}" for most, used, what in counted if most is not None and used >= most]
    if allowance.usd is not None:
        most = Decimal(str(allowance.usd))
        if sums.bill.pico >= most * PICO:
            told.append(f"{dollars(Cost(sums.bill.cost.usd))} of ${most:f}")
    return told[0] if told else ""


def window(per: Per, at: dt.datetime) -> dt.datetime:
    """Return when the window began that an instant lies in."""
    hour = at.astimezone(dt.UTC).replace(minute=0, second=0, microsecond=0)
    match per:
        case "hour":
            return hour
        case "day":
            return hour.replace(hour=0)
        case "month":
            return hour.replace(hour=0, day=1)


def _end(per: Per, at: dt.datetime) -> dt.datetime:
    began = window(per, at)
    return window(per, began + {"hour": dt.timedelta(hours=1), "day": dt.timedelta(days=1)}.get(per, dt.timedelta(32)))
