"""An exporter of metrics that warns once if the backend does not accept metrics, and then stops sending them.

A backend is usually named for all signals at once, and many backends accept only spans. The SDK would report an error
for every request.
"""

import logging
from typing import Any

import requests
import structlog
from opentelemetry.exporter.otlp.proto.http import metric_exporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

logger = structlog.get_logger(__name__)

NOT_TAKEN = frozenset({404, 405, 501})
"""The HTTP statuses of servers that do not accept metrics at this address."""


class TolerantMetricExporter(OTLPMetricExporter):
    """Sends metrics to backends that accept them."""

    def __init__(self) -> None:
        session = requests.Session()
        session.hooks["response"].append(self._heard)
        self._status = 0
        self._complaints = logging.getLogger(metric_exporter.__name__)
        self._complaints.addFilter(self._worth_telling)
        super().__init__(session=session)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        if self._status in NOT_TAKEN:
            return MetricExportResult.SUCCESS
        result = super().export(metrics_data, timeout_millis, **kwargs)
        if self._status in NOT_TAKEN:
            remedy = "set OTEL_METRICS_EXPORTER=none, or a backend for metrics in OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
            logger.info("the backend does not accept metrics; none are sent", status=self._status, remedy=remedy)
        return result

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        super().shutdown(timeout_millis, **kwargs)
        self._complaints.removeFilter(self._worth_telling)

    def _heard(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._status = response.status_code

    def _worth_telling(self, _record: logging.LogRecord) -> bool:
        return self._status not in NOT_TAKEN
