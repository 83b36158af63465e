"""The exporters of a process: spans, metrics and logs to the OpenTelemetry backends that the environment names.

The variables of `switches` select the signals, the backends and the protocol. The exporters also use the headers,
timeouts and certificates of ``OTEL_EXPORTER_OTLP_*``, ``OTEL_METRIC_EXPORT_INTERVAL``, ``OTEL_SERVICE_NAME``,
``OTEL_RESOURCE_ATTRIBUTES``, and ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import structlog

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.telemetry.event_consumer import ensure_durable, until_caught_up
from callboard.features.telemetry.log_exporter import exporting_logs
from callboard.features.telemetry.switches import Signal, check_export, endpoint_of, wants
from callboard.lib.background_imports import import_beside
from callboard.projections.spans.semconv import captures_content
from callboard.runtime.cluster.leader import GRACE_S, Leader, holding

if TYPE_CHECKING:
    from callboard.features.telemetry.span_exporter import SpanExporter
    from callboard.runtime.client.connection import Connection

logger = structlog.get_logger(__name__)


def spans_durable(env: Mapping[str, str]) -> str:
    """Return the name of the durable consumer that is the checkpoint of the environment's backend for spans."""
    return f"exporter-spans-{_backend(env, 'TRACES')}"


def _backend(env: Mapping[str, str], signal: Signal) -> str:
    return sha256(endpoint_of(env, signal).encode()).hexdigest()[:12]


@asynccontextmanager
async def open_exporters(connection: "Connection") -> AsyncGenerator[None]:
    """Export during the block if the setting ``otel`` is on. Open this before the worker.

    A backend receives the spans of events after it was first configured; `span_exporter.export_run` exports older runs.
    At the end of the block, the exporters have `GRACE_S` to send the remaining spans. Spans that were not sent then are
    sent when exporters are opened again.

    :raises ConfigInvalid: if the environment requests an unsupported protocol, or the extra ``otlp`` is missing
    """
    if not connection.config.otel:
        yield
        return

    from callboard.features.telemetry.metrics_exporter import MetricsExporter, otlp_meter_provider
    from callboard.features.telemetry.span_exporter import SpansExporter

    env = os.environ
    holders: dict[str, Leader] = {}
    exporter: SpanExporter | None = None
    durable = spans_durable(env)
    check_export(env)
    if wants(env, "TRACES"):
        await import_beside("opentelemetry.sdk.trace")
        exporter = await anyio.to_thread.run_sync(_otlp_exporter)
        holders[durable] = SpansExporter(
            connection.log,
            exporter,
            durable,
            content=captures_content(env),
            prices=connection.config.price_table(),
        )
        await _begin(connection.log, durable)
    if wants(env, "METRICS"):
        name = f"exporter-metrics-{_backend(env, 'METRICS')}"
        holders[name] = MetricsExporter(connection.log, otlp_meter_provider, prices=connection.config.price_table())
    leaders = {f"{connection.log.subjects.prefix}.exporter.{name}": holder for name, holder in holders.items()}
    try:
        with exporting_logs(otel=True, env=env):
            async with holding(connection.nc, leaders, connection.log.store):
                yield
                if exporter is not None:
                    await _finish(connection.log, durable)
    finally:
        if exporter is not None:
            exporter.close()


def _otlp_exporter() -> "SpanExporter":
    from callboard.projections.spans.otlp import OtlpExporter

    return OtlpExporter()


async def _begin(log: JetStreamLog, durable: str) -> None:
    """Set the checkpoint of a new backend before any run can start."""
    try:
        await ensure_durable(log, durable, log.subjects.events())
    except NoAnswer as error:
        logger.warning("cannot set the checkpoint for spans yet; events until then are not exported", error=str(error))


async def _finish(log: JetStreamLog, durable: str) -> None:
    with anyio.move_on_after(GRACE_S):
        try:
            await until_caught_up(log, durable)
        except NoAnswer as error:
            logger.warning(
                "some spans were not sent; they stay in the stream until exporters run again", error=str(error)
            )
