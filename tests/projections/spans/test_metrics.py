"""The metrics projection, read back through the SDK's in-memory reader."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import (
    EffectCall,
    EffectCancelled,
    EffectKind,
    EffectResult,
    ForkedFrom,
    ModelResult,
    RunParked,
)
from callboard.projections.spans import semconv
from callboard.projections.spans.metrics import MetricsRecorder
from tests.support.event_logs import Log, cake

Points = dict[str, dict[frozenset[tuple[str, Any]], Any]]


class Board:
    """A metrics projection with its reader."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.metrics = MetricsRecorder(self.provider.get_meter(semconv.SCOPE), **options)

    def take(self, *logs: Log) -> Points:
        for log in logs:
            for event in log.events:
                self.metrics.apply(event)
        return self.read()

    def read(self) -> Points:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: {frozenset((point.attributes or {}).items()): point for point in metric.data.data_points}
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.provider.shutdown()


def _sums(points: dict[frozenset[tuple[str, Any]], Any], *keys: str) -> dict[tuple[Any, ...], float]:
    """Sum the points over all labels but the named ones."""
    sums: dict[tuple[Any, ...], float] = {}
    for labels, point in points.items():
        named = dict(labels)
        key = tuple(named.get(name) for name in keys)
        sums[key] = sums.get(key, 0) + (point.value if hasattr(point, "value") else point.sum)
    return sums


def test_runs_are_counted_by_status(board: Board) -> None:
    points = board.take(cake(), Log("r2").started().failed(), Log("r3").started().ended(), Log("r4").started())
    assert _sums(points[semconv.RUNS], semconv.RUN_STATUS) == {("completed",): 2, ("failed",): 1}
    assert _sums(points[semconv.RUNS_ACCEPTED], semconv.DEFINITION) == {("cake",): 4}
    assert _sums(points[semconv.RUNS_ACTIVE]) == {(): 1}


def test_equal_run_ids_of_two_tenants_are_two_runs(board: Board) -> None:
    for event in cake().events:
        for tenant in ("acme", "zeta"):
            board.metrics.apply(event, tenant)
    assert _sums(board.read()[semconv.RUNS], semconv.RUN_STATUS) == {("completed",): 2}


def test_a_parked_run_is_not_active_and_a_second_claim_does_not_count_twice(board: Board) -> None:
    log = Log().started()
    log.claimed("w2")
    assert _sums(board.take(log)[semconv.RUNS_ACTIVE]) == {(): 1}
    log.events.clear()
    log.add(RunParked([]))
    assert _sums(board.take(log)[semconv.RUNS_ACTIVE]) == {(): 0}
    log.events.clear()
    log.claimed("w3")
    assert _sums(board.take(log)[semconv.RUNS_ACTIVE]) == {(): 1}


def test_tokens_are_counted_by_model_and_type(board: Board) -> None:
    points = board.take(cake())[semconv.CLIENT_TOKEN_USAGE]
    keys = (semconv.REQUEST_MODEL, semconv.PROVIDER_NAME, semconv.TOKEN_TYPE)
    assert _sums(points, *keys) == {("opus", "anthropic", "input"): 600, ("opus", "anthropic", "output"): 120}
    point = next(iter(points.values()))
    assert point.explicit_bounds[:4] == (1, 4, 16, 64)


def test_tokens_of_embeddings_are_counted_separately(board: Board) -> None:
    log = Log().started()
    log.add(EffectCall("memory"), "notes", 1, 1, slot="memory")
    log.add(EffectResult(model="openai:text-embedding-3-small", usage=Usage(7)), "notes", 1, 1, slot="memory")
    keys = (semconv.OPERATION_NAME, semconv.REQUEST_MODEL, semconv.PROVIDER_NAME, semconv.TOKEN_TYPE)
    sums = _sums(board.take(log)[semconv.CLIENT_TOKEN_USAGE], *keys)
    assert sums == {("embeddings", "text-embedding-3-small", "openai", "input"): 7}


def test_operations_and_nodes_are_timed(board: Board) -> None:
    points = board.take(cake())
    durations = points[semconv.CLIENT_OPERATION_DURATION]
    assert _sums(durations, semconv.OPERATION_NAME) == {
        ("chat",): pytest.approx(0.6),
        ("execute_tool",): pytest.approx(0.1),
    }
    nodes = points[semconv.NODE_DURATION]
    labels = (semconv.DEFINITION, semconv.NODE_KIND, semconv.OUTCOME)
    assert _sums(nodes, *labels) == {("cake", "node", "ok"): pytest.approx(1.5)}
    assert sum(point.count for point in nodes.values()) == 5


def test_calls_of_external_systems_are_counted_by_outcome(board: Board) -> None:
    log = Log().started()
    refused = {"success": False, "error_code": "missing_oauth_token"}
    failure = {"result": {"type": "error", "code": "http.dns"}}
    broken = {"result": {"type": "success", "value": {"status": 503}}}
    fine = {"result": {"type": "success", "value": {"status": 404}}}
    calls: list[tuple[EffectKind, EffectResult | EffectCancelled]] = [
        ("service", EffectResult(value={"success": True})),
        ("service", EffectResult(value=refused)),
        ("provider", EffectResult(value=failure)),
        ("provider", EffectResult(value=broken)),
        ("provider", EffectResult(value=fine)),
        ("channel", EffectResult(error=Failure("channel.failed"))),
        ("channel", EffectCancelled("effect.call", Failure("stopped"))),
        ("code", EffectResult(error=Failure("code.failed"))),
    ]
    for at, (kind, outcome) in enumerate(calls):
        log.add(EffectCall(kind), f"n{at}", 1, 1, slot="call")
        log.add(outcome, f"n{at}", 1, 1, slot="call")
    sums = _sums(board.take(log, cake())[semconv.EXTERNAL_CALLS], semconv.EFFECT_KIND, semconv.OUTCOME)
    models = sums.pop(("model", "ok"))
    assert models > 0
    assert sums == {
        ("service", "ok"): 1,
        ("service", "failed"): 1,
        ("provider", "failed"): 2,
        ("provider", "ok"): 1,
        ("channel", "failed"): 1,
        ("channel", "cancelled"): 1,
    }


def test_the_wait_in_the_queue_is_from_admission_to_the_first_claim(board: Board) -> None:
    log = Log()
    log.accepted()
    log.wait(49)
    log.claimed()
    log.claimed()
    points = board.take(log)[semconv.QUEUE_DURATION]
    assert [(point.count, point.sum) for point in points.values()] == [(1, pytest.approx(5.0))]


def test_failed_and_cancelled_operations_have_their_error(board: Board) -> None:
    log = Log().started()
    log.tool("a", error=Failure("tool.failed"))
    log.ask_model("a")
    log.add(EffectCancelled("model.call", Failure("flow.timeout")), "a", 1, 1, "turn.0")
    points = board.take(log)[semconv.CLIENT_OPERATION_DURATION]
    assert {dict(labels)[semconv.ERROR_TYPE] for labels in points} == {"tool.failed", "flow.timeout"}


def test_the_oldest_active_runs_are_forgotten() -> None:
    board = Board(runs_max=2)
    points = board.take(*(Log(f"r{number}").started() for number in range(5)))
    assert _sums(points[semconv.RUNS_ACTIVE]) == {(): 2}
    board.provider.shutdown()


def test_a_call_of_the_origin_that_a_fork_completes_is_counted(board: Board) -> None:
    log = Log("fork")
    log.accepted(forked_from=ForkedFrom("origin", 3))
    log.claimed()
    # The call is an event of the origin, which the metrics of the fork do not contain.
    usage = Usage(1_000_000, 50)
    log.add(ModelResult(usage=usage, model="openai:gpt-6-sol", provider="openai"), "a", 1, 1, "turn.1")
    points = board.take(log)
    tokens = _sums(points[semconv.CLIENT_TOKEN_USAGE], semconv.REQUEST_MODEL, semconv.TOKEN_TYPE)
    assert tokens == {("gpt-6-sol", "input"): 1_000_000, ("gpt-6-sol", "output"): 50}
    assert list(_sums(points[semconv.COST], semconv.REQUEST_MODEL)) == [("openai:gpt-6-sol",)]
