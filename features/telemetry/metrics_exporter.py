"""The metrics exporter: it folds new events of all runs into OpenTelemetry metrics, which a provider sends."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog

from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.prices import Prices
from callboard.lib.background_imports import import_beside
from callboard.projections.spans import semconv
from callboard.projections.spans.metrics import MetricsRecorder
from callboard.runtime.cluster.leader import GRACE_S

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

logger = structlog.get_logger(__name__)


class MetricsExporter:
    """Folds new events, of one tenant or of all, into metrics. A `Leader`.

    It starts at the end of the log, because metrics cannot be recorded for the past. The provider is closed when this
    process stops leading, so that it does not report its figures next to those of the next leader.
    """

    def __init__(
        self,
        log: JetStreamLog,
        provider: "Callable[[], MeterProvider]",
        tenant: str | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._prices = prices
        self._log = log
        self._tenant = tenant
        self._provider = provider

    async def run(self, orphaned: bool) -> None:
        """Export until cancelled."""
        await import_beside("opentelemetry.sdk.metrics")
        provider = await anyio.to_thread.run_sync(self._provider)
        metrics = MetricsRecorder(provider.get_meter(semconv.SCOPE), prices=self._prices)
        try:
            async with self._log.without_keys().follow(self._log.subjects.events(self._tenant)) as feed:
                async for recorded in feed:
                    await self._take(metrics, recorded)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE_S):
                await anyio.to_thread.run_sync(_shut_down, provider, abandon_on_cancel=True)

    def hurry(self) -> None:
        """Do nothing, because all counted figures are sent at the end anyway."""

    async def _take(self, metrics: MetricsRecorder, recorded: Recorded) -> None:
        try:
            metrics.apply(await whole(self._log, recorded), recorded.ref.tenant)
        except Exception:
            # The figures miss this event, but the next ones count again.
            logger.exception("event is not counted", run=recorded.ref.run, n=recorded.event.n)
        await anyio.lowlevel.checkpoint()


def _shut_down(provider: "MeterProvider") -> None:
    """Send the last figures, and close the provider."""
    try:
        provider.shutdown(timeout_millis=GRACE_S * 1000)
    except Exception:
        logger.exception("metrics could not be sent at the end")


def otlp_meter_provider() -> "MeterProvider":
    """Return a provider that sends metrics over OTLP, configured by the ``OTEL_*`` variables."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from callboard.features.telemetry.tolerant import TolerantMetricExporter
    from callboard.projections.spans.otlp import resource_of

    reader = PeriodicExportingMetricReader(TolerantMetricExporter())
    return MeterProvider([reader], resource_of(), shutdown_on_exit=False)
