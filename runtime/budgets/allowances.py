"""Allowances: limits of the usage of a tenant's or a definition's runs per window of time, as a fold of outcomes.

Every worker folds the outcomes of all runs from the log, so that all workers have the same sums. A window is an hour, a
day or a month (UTC). The sums start from zero with each window. `following` takes the outcomes from the log.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from callboard.bus.effects import Usage, used_by
from callboard.bus.events import EffectResult, Event, ModelResult
from callboard.bus.prices import PICO, Bill, Cost, Prices, dollars
from callboard.bus.subjects import is_name

LIMITS = ("tokens", "usd", "turns")
"""The members of an allowance that limit something."""

Per = Literal["hour", "day", "month"]

COUNTED = (ModelResult.type, EffectResult.type)
"""The outcomes with model usage. Those of child runs are counted from the child runs' own events."""


class Allowance(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of usage ``per`` window: ``tokens``, ``usd`` and ``turns``, as far as they are set.

    If a limit is reached, ``then`` rejects new starts, or also pauses runs.
    """

    per: Per = "day"
    tokens: Annotated[int, Meta(ge=1)] | None = None
    usd: Annotated[float, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None
    then: Literal["refuse", "pause"] = "refuse"


def read_allowance(name: str, given: object) -> Allowance:
    """Return the allowance that a configuration gives for a tenant, or ``tenant/definition``.

    :raises ValueError: if the name or the allowance is invalid
    """
    parts = name.split("/")
    if len(parts) > 2 or not all(part and is_name(part) and part == part.strip() for part in parts):
        raise ValueError("the name is neither that of a tenant nor `tenant/definition`, without further slashes")
    if "*" in name:
        raise ValueError(
            "the name is a pattern, for which no runs are counted: give each tenant or `tenant/definition`"
        )
    found = msgspec.convert(_whole(given), Allowance)
    if all(getattr(found, limit) is None for limit in LIMITS):
        raise ValueError(f"limits nothing: give at least one of {', '.join(LIMITS)}")
    if found.usd is not None and not isfinite(found.usd):
        raise ValueError("`usd` is not a finite number")
    return found


def _whole(given: object) -> object:
    """Return an allowance with whole numbers that are written as in ``1e6``."""
    if not isinstance(given, Mapping):
        return given
    members: Mapping[str, object] = given  # pyright: ignore[reportUnknownVariableType]
    return {
        name: int(one) if name != "usd" and isinstance(one, float) and one.is_integer() else one
        for name, one in members.items()
    }


class Exhausted(NamedTuple):
    """An exhausted allowance: its name, the sums, the end of the window, and a mark that identifies the window."""

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
    """All allowances, by ``tenant`` or ``tenant/definition``, with their usage."""

    def __init__(self, given: Mapping[str, Allowance], prices: Prices) -> None:
        self._given = given
        self._prices = prices
        self._sums = {name: _Sum() for name in given}

    @property
    def names(self) -> Sequence[str]:
        return list(self._given)

    def began(self, now: dt.datetime) -> dt.datetime:
        """Return the start of the longest current window."""
        return min((window(one.per, now) for one in self._given.values()), default=now)

    def take(self, tenant: str, event: Event) -> None:
        """Count the next outcome of any run."""
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

    def exhausted_allowances(self, tenant: str, definition: str, now: dt.datetime) -> list[Exhausted]:
        """Return the exhausted allowances for a run."""
        if not self._given:
            return []
        found: list[Exhausted] = []
        for name in (tenant, f"{tenant}/{definition}"):
            allowance, sums = self._given.get(name), self._sums.get(name)
            if allowance is None or sums is None or window(allowance.per, now) != sums.began:
                continue
            if reached := _describe_exhausted(allowance, sums):
                mark = f"budget {name} {sums.began:%Y-%m-%dT%H}"
                words = f"{reached} per {allowance.per}"
                found.append(Exhausted(name, words, _end(allowance.per, now), mark, allowance.then == "pause"))
        return found


def _describe_exhausted(allowance: Allowance, sums: _Sum) -> str:
    """Return the exhausted limits with the sums; empty if no limit is reached."""
    counted = ((allowance.tokens, sums.tokens, "tokens"), (allowance.turns, sums.turns, "turns of models"))
    reached = [f"{used} of {most} {what}" for most, used, what in counted if most is not None and used >= most]
    if allowance.usd is not None:
        most = Decimal(str(allowance.usd))
        if sums.bill.pico >= most * PICO:
            reached.append(f"{dollars(Cost(sums.bill.cost.usd))} of ${most:f}")
    return reached[0] if reached else ""


def window(per: Per, at: dt.datetime) -> dt.datetime:
    """Return the start of the window that contains an instant."""
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
