"""The metrics projection: folds the events of many runs into OpenTelemetry metrics.

Instruments: runs accepted, runs ended by status, active runs, durations of runs, of their wait in the queue, of nodes
and of model and tool operations, calls of systems outside by outcome, tokens, and what they cost. It speaks to the
metrics API only; who gives the meter decides where the figures go. Metrics have no past: they show when an event was
folded, so a follower starts them at the log's tail.
"""

from typing import TYPE_CHECKING

from msgspec import Struct, field

from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage, used_by
from callboard.bus.events import Event, Payload
from callboard.bus.model_names import exact_name, model_name
from callboard.bus.prices import Prices, list_prices
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import (
    Opened,
    OpenIntents,
    external_outcome,
    kind_and_name,
    outcome_of,
    provider_model,
    provider_of,
)
from callboard.projections.spans import semconv
from callboard.projections.trace.node_tree import NodeExecution

if TYPE_CHECKING:
    import datetime as dt

    from opentelemetry.metrics import Histogram, Meter

    Labels = dict[str, str | int | float | bool]

EXTERNAL: frozenset[ev.EffectKind] = frozenset({"channel", "http", "provider", "service", "source"})
"""The kinds of effects that ask an external system, beside the turns of models."""

RUNS_MAX = 100_000
"""The maximum number of runs in memory. The oldest is forgotten first and then counts as not active."""


class _Run(Struct):
    labels: "Labels"
    accepted_at: "dt.datetime | None" = None
    claimed: bool = False
    active: bool = False
    intents: OpenIntents = field(default_factory=OpenIntents)
    nodes: "dict[NodeExecution, tuple[dt.datetime, str]]" = field(
        default_factory=dict[NodeExecution, "tuple[dt.datetime, str]"]
    )


class MetricsRecorder:
    """Records events on the instruments of a meter. Each run's events must be in order; runs may interleave."""

    def __init__(self, meter: "Meter", runs_max: int = RUNS_MAX, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._runs: dict[tuple[str, str], _Run] = {}
        self._runs_max = runs_max
        self._accepted = meter.create_counter(semconv.RUNS_ACCEPTED, "{run}", "Runs that were admitted.")
        self._ended = meter.create_counter(semconv.RUNS, "{run}", "Runs that ended, by status.")
        self._active = meter.create_up_down_counter(semconv.RUNS_ACTIVE, "{run}", "Runs that a worker holds.")
        self._queue = _seconds(meter, semconv.QUEUE_DURATION, "From admission to the first claim.", _LONG)
        self._run_time = _seconds(meter, semconv.WORKFLOW_DURATION, "From admission to the end.", _LONG)
        self._node_time = _seconds(meter, semconv.NODE_DURATION, "From a node's enter to its exit.", _LONG)
        self._operation = _seconds(meter, semconv.CLIENT_OPERATION_DURATION, "GenAI operation duration.", _SHORT)
        self._tokens = meter.create_histogram(
            semconv.CLIENT_TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=semconv.TOKEN_BUCKETS,
        )
        self._external = meter.create_counter(
            semconv.EXTERNAL_CALLS, "{call}", "Calls of models and services, by outcome."
        )
        self._cost = meter.create_counter(semconv.COST, "", "What models have cost, in US dollars, by the price table.")
        self._unknown = meter.create_counter(semconv.COST_UNKNOWN, "", "Tokens whose price the table does not have.")

    def apply(self, event: Event, tenant: str = "") -> None:
        """Record the next event of any run. Pass the tenant, because two tenants may have runs with the same id."""
        payload = known_payload(event)
        if payload is None:
            return
        run = self._run(tenant, event)
        match payload:
            case ev.RunAccepted():
                run.accepted_at = event.time
                run.labels[semconv.RUN_LANGUAGE] = payload.definition.language
                self._accepted.add(1, run.labels)
            case ev.RunClaimed():
                self._claim(run, event)
            case ev.RunParked():
                self._leave(run)
            case ev.RunEnd():
                del self._runs[tenant, event.run]
                self._end(run, event, payload)
            case ev.NodeEnter():
                run.nodes[NodeExecution(event.path, event.iteration)] = event.time, payload.kind_
            case ev.NodeExit():
                self._exit(run, event, payload)
            case _:
                if closed := run.intents.apply(event, payload):
                    self._close(run, closed, event, payload)
                else:
                    self._count_unannounced(run, event, payload)

    def _run(self, tenant: str, event: Event) -> _Run:
        run = self._runs.get((tenant, event.run))
        if run is None:
            if len(self._runs) >= self._runs_max:
                self._leave(self._runs.pop(next(iter(self._runs))))
            run = self._runs[tenant, event.run] = _Run({semconv.DEFINITION: event.definition})
        return run

    def _claim(self, run: _Run, event: Event) -> None:
        if not run.active:
            run.active = True
            self._active.add(1, {semconv.DEFINITION: run.labels[semconv.DEFINITION]})
        if not run.claimed and run.accepted_at:
            self._queue.record((event.time - run.accepted_at).total_seconds(), run.labels)
        run.claimed = True

    def _leave(self, run: _Run) -> None:
        if run.active:
            run.active = False
            self._active.add(-1, {semconv.DEFINITION: run.labels[semconv.DEFINITION]})

    def _end(self, run: _Run, event: Event, payload: ev.RunEnd) -> None:
        self._leave(run)
        labels: Labels = {**run.labels, semconv.RUN_STATUS: payload.status}
        self._ended.add(1, labels)
        if run.accepted_at:
            workflow: Labels = {semconv.WORKFLOW_NAME: run.labels[semconv.DEFINITION], **_error(payload.error)}
            self._run_time.record((event.time - run.accepted_at).total_seconds(), workflow)

    def _exit(self, run: _Run, event: Event, payload: ev.NodeExit) -> None:
        entered = run.nodes.pop(NodeExecution(event.path, event.iteration), None)
        if entered:
            at, kind = entered
            labels: Labels = {**run.labels, semconv.NODE_KIND: kind, semconv.OUTCOME: payload.outcome}
            self._node_time.record((event.time - at).total_seconds(), labels)

    def _close(self, run: _Run, closed: Opened, event: Event, payload: Payload) -> None:
        self._count_external(run, closed.payload, payload)
        duration_s = (event.time - closed.event.time).total_seconds()
        labels: Labels
        match closed.payload:
            case ev.ModelCall() as call:
                replied = payload if isinstance(payload, ev.ModelResult) else None
                labels = {semconv.OPERATION_NAME: semconv.CHAT, semconv.REQUEST_MODEL: provider_model(call)}
                if name := (replied.provider if replied else "") or provider_of(call):
                    labels[semconv.PROVIDER_NAME] = semconv.provider_name(name)
                if replied:
                    self._count_tokens(replied.usage, labels)
                    self._charge(run, event, model_name(call), replied)
            case ev.ToolCall(tool=tool, via="worker"):
                labels = {semconv.OPERATION_NAME: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: tool}
            case ev.EffectCall() if isinstance(payload, ev.EffectResult) and payload.model:
                name, _, model = payload.model.partition(":")
                labels = {semconv.OPERATION_NAME: semconv.EMBEDDINGS, semconv.REQUEST_MODEL: model}
                self._count_tokens(payload.usage, {**labels, semconv.PROVIDER_NAME: semconv.provider_name(name)})
                self._charge(run, event, payload.model, payload)
                return
            case _:
                return
        _outcome, error = outcome_of(payload)
        self._operation.record(duration_s, {**labels, **_error(error)})

    def _count_external(self, run: _Run, intent: Payload, payload: Payload) -> None:
        if isinstance(intent, ev.ModelCall) or (isinstance(intent, ev.EffectCall) and intent.kind_ in EXTERNAL):
            labels: Labels = {
                semconv.DEFINITION: run.labels[semconv.DEFINITION],
                semconv.EFFECT_KIND: kind_and_name(intent)[0],
                semconv.OUTCOME: external_outcome(payload),
            }
            self._external.add(1, labels)

    def _count_unannounced(self, run: _Run, event: Event, payload: Payload) -> None:
        """Count the usage of an outcome whose intent this fold has not seen: it is older, or of a fork's origin."""
        if isinstance(payload, ev.ModelResult | ev.EffectResult) and payload.model:
            name, _, model = exact_name(payload.model).partition(":")
            operation = semconv.CHAT if isinstance(payload, ev.ModelResult) else semconv.EMBEDDINGS
            labels: Labels = {semconv.OPERATION_NAME: operation, semconv.REQUEST_MODEL: model or name}
            self._count_tokens(payload.usage, {**labels, semconv.PROVIDER_NAME: semconv.provider_name(name)})
            self._charge(run, event, payload.model, payload)

    def _count_tokens(self, usage: Usage, labels: "Labels") -> None:
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if count:
                self._tokens.record(count, {**labels, semconv.TOKEN_TYPE: kind})

    def _charge(self, run: _Run, event: Event, model: str, outcome: ev.ModelResult | ev.EffectResult) -> None:
        bill = self._prices.bill(used_by(model, outcome), event.time)
        labels: Labels = {semconv.DEFINITION: run.labels[semconv.DEFINITION], semconv.REQUEST_MODEL: model}
        if bill.pico:
            self._cost.add(bill.cost.usd, labels)
        if bill.unknown_tokens:
            self._unknown.add(bill.unknown_tokens, labels)


_SHORT = semconv.DURATION_BUCKETS_S
_LONG = semconv.LONG_DURATION_BUCKETS_S


def _seconds(meter: "Meter", name: str, description: str, buckets: tuple[float, ...]) -> "Histogram":
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=buckets)


def _error(error: Failure | None) -> "Labels":
    return {semconv.ERROR_TYPE: error.code} if error else {}
