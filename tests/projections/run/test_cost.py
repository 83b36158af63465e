"""The cost of a run: per node, per model, with child runs, in results, traces, spans and metrics."""

import datetime as dt
import json
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from callboard.bus import events as ev
from callboard.bus.effects import Usage
from callboard.bus.model_names import model_name
from callboard.bus.prices import Cost, Prices, add_costs, dollars, list_prices, read_prices
from callboard.features.telemetry.prometheus import families_of
from callboard.projections.projection import fold
from callboard.projections.run.charges import Charges, model_in
from callboard.projections.run.effects import provider_model, provider_of
from callboard.projections.run.run_result import Results
from callboard.projections.spans.metrics import MetricsRecorder
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.trace import TraceFold
from callboard.runtime.interpreter.usage import UsageFold
from callboard.testing import Scenario
from callboard.testing.plugin import scenario as scenario  # the fixture
from tests.support.event_logs import Log
from tests.support.workflows import document

PRICES = Prices(read_prices({"scripted": {"input": 2, "output": 10}})[0], list_prices())
AT = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
STEPS = json.dumps(document({name: {} for name in "ab"}, [("a", "b")]))
SCRIPT: dict[str, Any] = {
    "turns": {
        "a": [{"text": "a", "usage": {"input_tokens": 40_000, "output_tokens": 500}}],
        "b": [{"text": "b", "usage": {"input_tokens": 1_000, "output_tokens": 200}}],
    }
}


def test_a_run_has_its_usage_by_model(scenario: Scenario) -> None:
    scenario.start(source=STEPS, script=SCRIPT)
    [end] = scenario.payloads("run.end")
    assert isinstance(end, ev.RunEnd)
    assert [(one.model, one.usage, one.over) for one in end.models] == [("scripted", end.usage, 0)]
    scenario.crash_everywhere()


def test_a_failed_turn_has_a_cost(scenario: Scenario) -> None:
    failing = {"error": "bad_reply", "usage": {"input_tokens": 40_000, "output_tokens": 500}}
    scenario.start(source=STEPS, script={"turns": {**SCRIPT["turns"], "a": [failing]}})
    [end] = scenario.payloads("run.end")
    assert isinstance(end, ev.RunEnd)
    assert end.usage == Usage(41_000, 700)
    result = fold(Results(PRICES), scenario.events)
    assert result.cost_by_path == {"a": Cost(0.085), "b": Cost(0.004)}
    scenario.crash_everywhere()


def test_results_trace_spans_and_metrics_have_the_cost(scenario: Scenario) -> None:
    scenario.start(source=STEPS, script=SCRIPT)
    result = fold(Results(PRICES), scenario.events)
    assert result.cost == Cost(0.089)
    assert result.cost_by_path == {"a": Cost(0.085), "b": Cost(0.004)}
    assert result.cost_by_model == {"scripted": Cost(0.089)}
    assert fold(Results(), scenario.events).cost == Cost(0, 41_700), "the model has no list price"

    trace = fold(TraceFold(PRICES), scenario.events)
    assert [effect.cost for node in trace.root.children for effect in node.effects] == [Cost(0.085), Cost(0.004)]
    spans = SpanFold(prices=PRICES)
    attributes = [dict(span.attributes) for event in scenario.events for span in spans.apply(event)]
    assert [one["callboard.cost.usd"] for one in attributes if "callboard.cost.usd" in one] == [0.085, 0.004]

    for prices, name, value in (
        (PRICES, "callboard_cost_usd_total", pytest.approx(0.089)),
        (None, "callboard_cost_unknown_tokens_total", 41_700),
    ):
        reader = InMemoryMetricReader()
        metrics = MetricsRecorder(MeterProvider([reader]).get_meter("test"), prices=prices)
        for event in scenario.events:
            metrics.apply(event)
        [family] = [one for one in families_of(reader.get_metrics_data()) if "_cost_" in one.name]
        [sample] = family.samples
        assert (family.name, sample.value, sample.labels) == (
            name,
            value,
            {"callboard.definition.name": "w", "gen_ai.request.model": "scripted"},
        )


def test_a_fork_does_not_pay_for_events_of_its_origin() -> None:
    log = Log("fork")
    log.accepted(forked_from=ev.ForkedFrom(run="origin", n=2))
    for n in (1, 2):
        log.add(ev.ModelResult(usage=Usage(1_000, 0), model="scripted"), "a", n, 1, "turn.1")
    result = fold(Results(PRICES), log.events)
    assert result.usage == Usage(1_000, 0)
    assert result.cost == Cost(0.002)
    charges = Charges(PRICES)
    assert [charges.of(event) for event in log.events] == [None, None, Cost(0.002)]


TIERS = Prices(read_prices({"m": [{"input": 1, "output": 0}, {"input": 5, "output": 0, "over": 100_000}]})[0])


def test_each_request_of_a_turn_is_priced_by_its_own_length() -> None:
    log = Log()
    log.accepted()
    requests = [Usage(60_000, 0), Usage(60_000, 0)]
    log.add(ev.ModelCall("turn", "m", "d"), "a", 1, 1, "turn.1")
    log.add(ev.ModelResult(usage=Usage(120_000, 0), requests=requests, model="m"), "a", 1, 1, "turn.1")
    log.add(ev.ModelCall("turn", "m", "d"), "a", 1, 1, "turn.2")
    log.add(ev.ModelResult(usage=Usage(120_000, 0), model="m"), "a", 1, 1, "turn.2")
    assert fold(Results(TIERS), log.events).cost == Cost(0.12 + 0.6)
    assert [cost.usd for event in log.events if (cost := Charges(TIERS).of(event))] == [0.12, 0.6]
    counted = UsageFold()
    for event in log.events:
        counted.count(event)
    assert TIERS.bill(counted.models.view(), AT).cost == Cost(0.72)


def test_unmetered_usage_has_an_unknown_cost() -> None:
    log = Log()
    log.accepted()
    log.add(ev.ModelCall("turn", "m", "d"), "a", 1, 1, "turn.1")
    log.add(ev.ModelResult(text="x", unmetered=True, model="m"), "a", 1, 1, "turn.1")
    result = fold(Results(TIERS), log.events)
    assert result.cost == Cost(0.0, 0, 1)
    assert dollars(Cost(0.0, 0, 1)) == "unknown"
    assert dollars(add_costs([Cost(0.5), Cost(0.0, 0, 1)])) == "at least $0.5000"
    [effect] = fold(TraceFold(TIERS), log.events).root.effects
    assert effect.cost == Cost(0.0, 0, 1)
    assert msgspec.to_builtins(Cost(1.0)) == {"usd": 1.0, "unknown_tokens": 0}


def test_usage_of_a_child_run_is_priced_by_its_models_and_the_rest_is_unknown() -> None:
    log = Log("parent")
    log.accepted()
    models = [ev.ModelUsage("scripted", Usage(1_000, 0)), ev.ModelUsage("openai:gpt-6-sol", Usage(300_000, 0), 272_000)]
    log.add(ev.ChildStart({}, "child"), "a", 1, 1, "call")
    log.add(ev.ChildEnd("completed", usage=Usage(301_500, 0), models=models), "a", 1, 1, "call")
    assert fold(Results(PRICES), log.events).cost == Cost(0.002 + 1.2, 500)
    charges = Charges(PRICES)
    assert [charges.of(event) for event in log.events] == [None, None, Cost(0.002 + 1.2, 500)]
    [effect] = [effect for effect in fold(TraceFold(PRICES), log.events).root.effects if effect.kind == "child"]
    assert effect.cost == Cost(1.202, 500)


def test_a_name_without_its_provider_is_the_same_model() -> None:
    exact = "anthropic:claude-haiku-4-5"
    call = ev.ModelCall(purpose="turn", model="claude-haiku-4-5", digest="d")
    assert [model_name(call), provider_of(call), provider_model(call)] == [exact, "anthropic", "claude-haiku-4-5"]
    assert model_in(ev.ModelResult(model="claude-haiku-4-5"), None) == exact
