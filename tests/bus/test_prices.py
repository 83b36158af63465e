"""Prices: which row of a table applies, the cost of a usage, and unknown prices."""

import datetime as dt
import json
import random
from decimal import Decimal
from typing import Any

import pytest

from callboard.actors.models.catalog import PROVIDERS
from callboard.bus.effects import ModelUsage, Usage
from callboard.bus.errors import ConfigInvalid
from callboard.bus.prices import PICO, Bill, Cost, Price, Prices, dollars, list_prices, read_prices
from callboard.runtime.settings.config import load

NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)


def prices(**table: Any) -> Prices:
    rows, wrong = read_prices(table)
    assert not wrong
    return Prices(rows, list_prices())


def usd(model: str, usage: Usage, at: dt.datetime = NOW, table: Prices | None = None) -> float:
    bill = (table or list_prices()).turn(model, usage, at)
    assert not bill.unknown_tokens
    return bill.cost.usd


@pytest.mark.parametrize("provider", [name for name, one in PROVIDERS.items() if not one.stands_in])
def test_the_default_models_have_prices(provider: str) -> None:
    assert list_prices().price(f"{provider}:{PROVIDERS[provider].default}", NOW) is not None


def test_each_kind_of_token_has_its_own_price() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=500_000, cache_write_tokens=200_000)
    assert usd("anthropic:claude-opus-5", usage) == 0.3 * 5 + 0.5 * 0.5 + 0.2 * 6.25 + 0.1 * 25
    free = prices(x={"input": 1, "output": 2})
    assert usd("x", usage, table=free) == 1.2


def test_a_price_applies_from_its_day_until_the_next_one() -> None:
    read = Usage(input_tokens=1_000_000, cache_read_tokens=1_000_000)
    before, behind = NOW.replace(month=10, day=6), NOW.replace(month=10, day=7)
    assert [usd("anthropic:claude-sonnet-5-5", read, at) for at in (before, behind)] == [0.2, 0.1]
    late = dt.datetime(2026, 10, 7, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert usd("anthropic:claude-sonnet-5-5", read, late) == 0.2, "the day is that of UTC"
    assert usd("gemini:gemini-3.8-flash", Usage(1_000_000), NOW.replace(year=2027)) == 1.5


def test_long_turns_have_their_own_prices() -> None:
    short, long = Usage(272_000, 1_000), Usage(272_001, 1_000)
    assert usd("openai:gpt-6-sol", short) == pytest.approx(0.272 * 2 + 0.01)
    assert usd("openai:gpt-6-sol", long) == pytest.approx(0.272001 * 4 + 0.015)
    together = [ModelUsage("openai:gpt-6-sol", short + short), ModelUsage("openai:gpt-6-sol", long, 272_000)]
    apart = sum((list_prices().turn("openai:gpt-6-sol", one, NOW) for one in (short, short, long)), Bill())
    assert list_prices().bill(together, NOW) == apart


def test_names_precede_patterns_and_configured_prices_precede_the_list() -> None:
    table = prices(**{"openai:*": 9, "openai:gpt-5*": 5, "openai:gpt-5-nano": 1, "local": {"input": 0, "output": 0}})
    found = {
        name: usd(name, Usage(1_000_000), table=table)
        for name in ("openai:o", "openai:gpt-5", "openai:gpt-5-nano", "openai:gpt-5-nano-2025-08-07", "local")
    }
    assert list(found.values()) == [9, 5, 1, 1, 0]
    later = prices(**{"openai:gpt-5": {"input": 1, "output": 1, "since": dt.date(2026, 12, 1)}})
    assert usd("openai:gpt-5", Usage(1_000_000), table=later) == 1.25, "as long as ours is not in force, the list is"


def test_an_unknown_price_is_not_zero() -> None:
    bill = list_prices().bill([ModelUsage("scripted", Usage(10, 5)), ModelUsage("", Usage(1))], NOW)
    assert bill == Bill(0, 16)
    told = [dollars(cost) for cost in (Cost(0, 16), Cost(0.5, 16), Cost(0.5), Cost(1234.5), Cost(0.00001), Cost())]
    assert told == ["unknown", "at least $0.5000", "$0.5000", "$1,234.50", "less than $0.0001", "$0.00"]


def test_sums_are_exact_in_any_order() -> None:
    table = prices(x={"input": 0.1, "output": 0.3, "cache_read": "0.000001"})
    usages = [Usage(n, n % 7, n % 3) for n in range(1, 2_000)]
    random.Random(1).shuffle(usages)
    total = sum((table.turn("x", usage, NOW) for usage in usages), Bill())
    price = Price(Decimal("0.1"), Decimal("0.3"), Decimal("0.000001"))
    whole = sum(usages, Usage())
    exact = (
        (whole.input_tokens - whole.cache_read_tokens) * Decimal("0.1")
        + whole.output_tokens * Decimal("0.3")
        + whole.cache_read_tokens * Decimal("0.000001")
    ) / 10**6
    assert total.pico == price.of(whole) == exact * PICO
    assert total.cost.usd == float(exact)


@pytest.mark.parametrize(
    "row",
    [
        -1,
        True,
        "free",
        "0.0000001",
        "NaN",
        2_000_000,
        {"input": 1},
        {"input": 1, "output": 1, "per": 2},
        [{}],
        None,
    ],
)
def test_an_invalid_price_is_refused(row: Any) -> None:
    assert list(read_prices({"x": row})[1]) == ["x[0]" if isinstance(row, list) else "x"]


@pytest.mark.parametrize("suffix", ["", "-20251001", "@20251001", "-2025-10-01", "-latest"])
def test_a_model_has_one_price_under_all_its_names(suffix: str) -> None:
    name = f"claude-haiku-4-5{suffix}"
    assert usd(name, Usage(1_000_000)) == usd(f"anthropic:{name}", Usage(1_000_000)) == 1
    for key in ("claude-haiku-4-5", "anthropic:claude-haiku-4-5", "claude-haiku-*"):
        assert usd(name, Usage(1_000_000), table=prices(**{key: 7})) == 7


@pytest.mark.parametrize(
    ("table", "places"),
    [
        ({"openai:x": {"input": 1, "output": 1, "over": 12345}}, ["openai:x"]),
        ({"openai:x": [{"input": 1, "output": 1}, {"input": 2, "output": 2}]}, ["openai:x[1]"]),
        ({"openai:x": []}, ["openai:x"]),
        ({"claude-x": 1, "anthropic:claude-x": 2}, ["anthropic:claude-x"]),
        ({"anthropic/claude-x": 1, "": 1, "a b": 1, ":x": 1}, ["anthropic/claude-x", "", "a b", ":x"]),
        ({"openrouter:anthropic/claude-x": 1, "*": 1, "openai:x*": {"input": 1, "output": 1, "over": 100_000}}, []),
    ],
)
def test_a_row_that_never_applies_is_refused(table: dict[str, Any], places: list[str]) -> None:
    assert list(read_prices(table)[1]) == places


def test_the_setting_for_prices_is_a_table_or_its_json(tmp_path: Any) -> None:
    file = tmp_path / "callboard.toml"
    file.write_text('[prices]\nscripted = 1.00\n"openai:gpt-5" = [{since = 2026-12-01, input = 1, output = 2}]\n')
    config = load(file=file, env={})
    assert usd("scripted", Usage(10, 90), table=config.price_table()) == 0.0001
    assert json.loads(json.dumps(config.values()["prices"]))["scripted"] == 1.0
    given = load(env={"CALLBOARD_PRICES": '{"scripted": 2}'}, cwd=tmp_path / "elsewhere")
    assert usd("scripted", Usage(10, 90), table=given.price_table()) == 0.0002
    for wrong in ("[1]", "{", '{"scripted": -1}', '{"local": 1}'):
        with pytest.raises(ConfigInvalid, match="problem") as caught:
            load(env={"CALLBOARD_PRICES": wrong}, cwd=tmp_path / "elsewhere")
        assert "prices" in str(caught.value.problems[0])
