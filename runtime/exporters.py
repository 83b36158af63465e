"""The exporters: spans and metrics of all runs, folded from the log and sent to an OpenTelemetry backend.

Each is an office that one process holds at a time (`callboard.runtime.following`), so that any number of workers may
offer to export. That is for economy; what makes spans go out once is how they are made. The spans that an event closes
are sent by whoever has that event delivered, and the event is acknowledged when they have been taken; what came before
it in its run is known from deliveries, or read from the log and folded without sending. So it does not matter who read
the events before, nor whether two held the office for a moment: the acknowledged events of a durable consumer are the
checkpoint, and each is acknowledged by one reader. Only a reader that dies between sending and acknowledging has its
last batch sent again, the same spans with the same ids.

No run waits for an exporter: events that cannot be exported yet wait in the stream, at most one batch is in memory, and
sending happens in a thread.
"""

import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog

from callboard.bus import events as ev
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import EventLog, Recorded, Unknown
from callboard.bus.subjects import RunRef
from callboard.projections import semconv
from callboard.projections.metrics import Metrics
from callboard.projections.span import Span
from callboard.projections.spans import SpanFold
from callboard.runtime.following import (
    GRACE_S,
    RETRY_PAUSE_MAX_S,
    RETRY_PAUSE_S,
    Office,
    Taken,
    consumption,
    persistently,
    whole,
)
from callboard.runtime.runlog import read_run

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

    from callboard.runtime.bootstrap import House

log = structlog.get_logger(__name__)

RUNS_MAX = 10_000
"""Runs that are kept folded; one that was put away is folded again from the log when it goes on."""

READ_TRIES_MAX = 50
"""How often a run is read until it shows the events before one that was delivered; a replica may lag."""

READ_PAUSE_S = 0.1

ENDPOINT_DEFAULT = "http://localhost:4318"
"""Where OTLP over HTTP goes if nothing else is said (OpenTelemetry's own default)."""


class SpanExporter(Protocol):
    """Where spans go; `callboard.projections.otlp.OtlpExporter` is one."""

    def export(self, spans: Sequence[Span]) -> None:
        """Send spans, in order; blocking.

        :raises SpanExportFailed: if only the first ``sent`` of them were taken
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


# -- spans ------------------------------------------------------------------------------------------------------------


class _Gap(Exception):
    """The log does not hold the events before one that was delivered: the run has been purged meanwhile."""


@dataclass(slots=True)
class _Run:
    """A run as far as it is folded. Without a fold it is over, or cannot be folded.

    From event ``since`` on every event was delivered here, so that its spans have been sent.
    """

    fold: SpanFold | None = field(default_factory=SpanFold)
    n: int = 0
    sequence: int = 0
    since: int = 1

    def apply(self, event: ev.Event, sequence: int) -> list[Span]:
        assert self.fold is not None
        spans = self.fold.apply(event)
        self.n, self.sequence = event.n, sequence
        if event.type == ev.RunEnd.type:
            self.fold = None
        return spans


class Spans:
    """Folds delivered events of all runs into the spans that they close, each returned once."""

    def __init__(self, journal: EventLog, runs_max: int = RUNS_MAX) -> None:
        self._log = journal
        self._runs: OrderedDict[RunRef, _Run] = OrderedDict()
        self._runs_max = runs_max

    async def take(self, recorded: Recorded) -> list[Span]:
        """Take a delivered event; return the spans that it closes, none if it has been taken before.

        :raises Unknown: if the log does not answer; take it again
        """
        run = self._run(recorded.ref)
        n = recorded.event.n
        if run.n >= n >= run.since:
            return []
        try:
            if n <= run.n:
                # Folded because a later event had come first; its own spans have not been sent by us.
                return await self._apply(_Run(), recorded)
            return await self._apply(run, recorded) if run.fold is not None else []
        except Unknown:
            raise
        except Exception:
            # One run that cannot be folded must not keep the others from being exported.
            log.exception("run is not exported any further", run=recorded.ref.run, n=n)
            run.fold = None
            return []

    async def _apply(self, run: _Run, recorded: Recorded) -> list[Span]:
        if recorded.event.n > run.n + 1:
            await self._catch_up(run, recorded)
        return run.apply(await whole(self._log, recorded), recorded.sequence)

    async def _catch_up(self, run: _Run, recorded: Recorded) -> None:
        """Fold what comes before an event without returning its spans: they were delivered to another reader."""
        n = recorded.event.n
        for _ in range(READ_TRIES_MAX):
            for earlier in await read_run(self._log, recorded.ref, run.sequence):
                if earlier.event.n < n:
                    run.apply(earlier.event, earlier.sequence)
                    await anyio.lowlevel.checkpoint()
            if run.n == n - 1:
                run.since = n
                return
            await anyio.sleep(READ_PAUSE_S)
        raise _Gap(f"event {run.n + 1} is not in the log")

    def _run(self, ref: RunRef) -> _Run:
        run = self._runs.get(ref)
        if run is None:
            run = self._runs[ref] = _Run()
            if len(self._runs) > self._runs_max:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(ref)
        return run


class SpansExporter:
    """Sends every span that closes, from the durable's checkpoint on. Holds an `Office`."""

    def __init__(self, journal: JetStreamLog, exporter: SpanExporter, durable: str) -> None:
        self._log = journal
        self._exporter = exporter
        self._durable = durable
        self._in_hand: anyio.CancelScope | None = None
        self._thread = anyio.CapacityLimiter(1)

    async def run(self, orphaned: bool) -> None:
        """Export until cancelled."""
        spans = Spans(self._log)
        async with consumption(self._log, self._durable, self._log.subjects.events(), orphaned=orphaned) as reader:
            while True:
                taken = await reader.batch()
                with anyio.CancelScope(shield=True) as self._in_hand:
                    await self._send(await self._fold(spans, taken))
                    await reader.acknowledge(taken)
                self._in_hand = None
                await anyio.lowlevel.checkpoint()

    def hurry(self) -> None:
        if self._in_hand is not None:
            self._in_hand.deadline = anyio.current_time() + GRACE_S

    async def _fold(self, spans: Spans, taken: Sequence[Taken]) -> list[Span]:
        closed: list[Span] = []
        for each in taken:
            closed += await self._take(spans, each.recorded)
            # Runs share this loop: they get their turn after every event.
            await anyio.lowlevel.checkpoint()
        return closed

    async def _take(self, spans: Spans, recorded: Recorded) -> list[Span]:
        pause = RETRY_PAUSE_S
        while True:
            try:
                return await spans.take(recorded)
            except Unknown as error:
                log.warning("spans are waiting for the log", error=str(error))
            await anyio.sleep(pause)
            pause = min(2 * pause, RETRY_PAUSE_MAX_S)

    async def _send(self, spans: Sequence[Span]) -> None:
        """Send spans until the backend has taken them all."""
        pause = RETRY_PAUSE_S
        while spans:
            spans = spans[await _send_once(self._exporter, spans, self._thread) :]
            if spans:
                log.warning("spans are waiting for the OpenTelemetry backend", spans=len(spans), again_in_s=pause)
                await anyio.sleep(pause)
                pause = min(2 * pause, RETRY_PAUSE_MAX_S)


async def _send_once(exporter: SpanExporter, spans: Sequence[Span], thread: anyio.CapacityLimiter) -> int:
    """Send spans in a thread; return how many of them were taken."""
    from callboard.projections.otlp import SpanExportFailed

    try:
        await anyio.to_thread.run_sync(exporter.export, spans, abandon_on_cancel=True, limiter=thread)
    except SpanExportFailed as failed:
        return failed.sent
    except Exception:
        log.exception("span exporter failed unexpectedly")
        return 0
    return len(spans)


async def export_run(journal: EventLog, ref: RunRef, exporter: SpanExporter) -> int:
    """Send the closed spans of one run, whether they have been sent before or not; return how many.

    Their ids are the same every time, so that a backend recognises them. Spans of a run that goes on follow when they
    close, through `open_exporters` if it runs, or by calling this again.

    :raises SpanExportFailed: if the backend did not take them all
    :raises Unknown: if the log does not answer
    """
    fold = SpanFold()
    spans = [span for recorded in await read_run(journal, ref) for span in fold.apply(recorded.event)]
    await anyio.to_thread.run_sync(exporter.export, spans)
    return len(spans)


# -- metrics ----------------------------------------------------------------------------------------------------------


class MetricsExporter:
    """Folds events into metrics as they come, beginning at the log's tail: metrics have no past. Holds an `Office`.

    The provider lives as long as the office is held, so that figures of a former holder do not stand beside ours.
    """

    def __init__(self, journal: JetStreamLog, provider: "Callable[[], MeterProvider]") -> None:
        self._log = journal
        self._provider = provider

    async def run(self, orphaned: bool) -> None:
        """Export until cancelled."""
        provider = await anyio.to_thread.run_sync(self._provider)
        metrics = Metrics(provider.get_meter(semconv.SCOPE))
        try:
            async with self._log.follow(self._log.subjects.events()) as feed:
                async for recorded in feed:
                    await self._take(metrics, recorded)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE_S):
                await anyio.to_thread.run_sync(_shut_down, provider, abandon_on_cancel=True)

    def hurry(self) -> None:
        """Nothing is in hand: what was counted is sent at the end anyway."""

    async def _take(self, metrics: Metrics, recorded: Recorded) -> None:
        try:
            metrics.apply(await whole(self._log, recorded))
        except Exception:
            # One event less in the figures; the next one counts again.
            log.exception("event is not counted", run=recorded.ref.run, n=recorded.event.n)
        await anyio.lowlevel.checkpoint()


def _shut_down(provider: "MeterProvider") -> None:
    """Send what was counted last, and close."""
    try:
        provider.shutdown(timeout_millis=GRACE_S * 1000)
    except Exception:
        log.exception("metrics could not be sent at the end")


def otlp_meter_provider() -> "MeterProvider":
    """Make a provider that sends metrics over OTLP as the ``OTEL_*`` variables say."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create()
    if str(resource.attributes.get(semconv.SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({semconv.SERVICE_NAME: semconv.SCOPE}))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    return MeterProvider([reader], resource, shutdown_on_exit=False)


# -- both -------------------------------------------------------------------------------------------------------------


def spans_durable(env: Mapping[str, str]) -> str:
    """Name the durable consumer that is the checkpoint of the backend that the environment names."""
    named = (env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env.get("OTEL_EXPORTER_OTLP_ENDPOINT"), ENDPOINT_DEFAULT)
    endpoint = next(each for each in named if each)
    return f"exporter-spans-{sha256(endpoint.encode()).hexdigest()[:12]}"


def wants_metrics(env: Mapping[str, str]) -> bool:
    """Whether the environment names a backend for metrics."""
    named = env.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return bool(named) and env.get("OTEL_METRICS_EXPORTER") != "none"


@asynccontextmanager
async def open_exporters(house: "House") -> AsyncGenerator[None]:
    """Export spans and metrics for the length of the block, if the configuration says so (``otel``).

    Spans of a backend begin with the events after it was first named; older runs are for `export_run`. Variables:
    ``OTEL_EXPORTER_OTLP_*``, ``OTEL_TRACES_EXPORTER`` and ``OTEL_METRICS_EXPORTER`` (``none`` switches one off),
    ``OTEL_METRIC_EXPORT_INTERVAL`` and what names the resource.
    """
    env = os.environ
    me = uuid4().hex
    offices: dict[str, Office] = {}
    exporter: SpanExporter | None = None
    if house.config.otel and env.get("OTEL_TRACES_EXPORTER") != "none":
        exporter = await anyio.to_thread.run_sync(_otlp_exporter)
        durable = spans_durable(env)
        offices["spans"] = _office(house, me, durable, SpansExporter(house.log, exporter, durable))
    if house.config.otel and wants_metrics(env):
        offices["metrics"] = _office(house, me, "metrics", MetricsExporter(house.log, otlp_meter_provider))
    try:
        async with _beside(offices):
            yield
    finally:
        if exporter is not None:
            exporter.close()


def _otlp_exporter() -> SpanExporter:
    from callboard.projections.otlp import OtlpExporter

    return OtlpExporter()


def _office(house: "House", me: str, name: str, holder: SpansExporter | MetricsExporter) -> Office:
    return Office(house.nc, f"{house.log.subjects.prefix}.exporter.{name}", me, holder)


@asynccontextmanager
async def _beside(offices: Mapping[str, Office]) -> AsyncGenerator[None]:
    """Stand for offices for the length of the block."""
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for name, office in offices.items():
            tasks.start_soon(persistently, f"exporter of {name}", office.run)
        try:
            yield
        except Exception as caught:
            # Raised below: the task group would wrap it.
            error = caught
        finally:
            for office in offices.values():
                office.hurry()
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error
