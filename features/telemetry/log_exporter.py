"""The log exporter: it sends a process's log lines to an OpenTelemetry backend, in addition to their other outputs.

Each line keeps its time, severity, message and members, and the span in which it was logged. Lines that the backend
does not accept are dropped after the exporter's retries, because the log of a process is not the record of its runs.
"""

import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from callboard.bus import tracecontext
from callboard.bus.log.encryption import HIDDEN
from callboard.bus.log.private_logging import omits_content
from callboard.features.telemetry.switches import wants
from callboard.projections.spans import semconv

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LogRecord
    from opentelemetry.context import Context

_NS_PER_S = 1_000_000_000
_EXPORTERS = "opentelemetry"
"""The loggers of the exporters. Their lines, such as those about failed exports, are not exported."""

_OF_THE_LINE = frozenset({"event", "level", "logger", "timestamp", "trace_id", "span_id"})
"""The members that have other places in a log record."""

_PLAIN = (str, bool, int, float)


@contextmanager
def exporting_logs(otel: bool, env: Mapping[str, str] | None = None) -> Generator[None]:
    """Export the lines logged in the block, if the setting ``otel`` is on and the environment requests it."""
    if not otel or not wants(os.environ if env is None else env, "LOGS"):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    from callboard.projections.spans.otlp import resource_of

    provider = LoggerProvider(resource_of(), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    handler = _Handler(provider.get_logger(semconv.SCOPE))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        provider.shutdown()


class _Handler(logging.Handler):
    """Passes lines of the standard library's logging, which include Callboard's, to OpenTelemetry."""

    def __init__(self, logger: "Logger") -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_EXPORTERS):
            return
        try:
            self._logger.emit(_record(record))
        except Exception:
            self.handleError(record)


def _record(record: logging.LogRecord) -> "LogRecord":
    from opentelemetry._logs import LogRecord, SeverityNumber

    theirs = HIDDEN if omits_content() else record.getMessage()
    said: dict[str, Any] = record.msg if isinstance(record.msg, dict) else {"event": theirs}
    members = {name: value for name, value in said.items() if name not in _OF_THE_LINE and not name.startswith("_")}
    attributes = {name: value if isinstance(value, _PLAIN) else str(value) for name, value in members.items()}
    return LogRecord(
        timestamp=int(record.created * _NS_PER_S),
        context=_context(),
        severity_text=record.levelname,
        severity_number=_severity(record.levelno, SeverityNumber),
        body=str(said.get("event", "")),
        attributes={"logger": record.name, **attributes},
        exception=_exception(record, said),
    )


def _exception(record: logging.LogRecord, said: Mapping[str, Any]) -> BaseException | None:
    # While an encrypted run is processed, leave out a library's exception, because it may quote the run's contents.
    told = (None if omits_content() else record.exc_info) or said.get("exc_info")
    found = told[1] if isinstance(told, tuple) else told
    return found if isinstance(found, BaseException) else None


def _severity(level: int, numbers: Any) -> Any:
    if level >= logging.ERROR:
        return numbers.FATAL if level >= logging.CRITICAL else numbers.ERROR
    if level >= logging.WARNING:
        return numbers.WARN
    return numbers.INFO if level >= logging.INFO else numbers.DEBUG


def _context() -> "Context | None":
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    within = tracecontext.current()
    if within is None:
        return None
    ids = int(within.trace_id, 16), int(within.span_id, 16)
    return set_span_in_context(NonRecordingSpan(SpanContext(*ids, False, TraceFlags(TraceFlags.SAMPLED))))
