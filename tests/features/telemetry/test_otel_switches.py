"""OpenTelemetry's standard switches, backends that take only a part, and log lines with their spans."""

import io
import json
import logging
import sys
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import structlog
from opentelemetry.metrics import Meter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from callboard.bus.errors import ConfigInvalid
from callboard.bus.tracecontext import headers, sent_as, within
from callboard.features.telemetry.log_exporter import exporting_logs
from callboard.features.telemetry.metrics_exporter import otlp_meter_provider
from callboard.features.telemetry.switches import ENDPOINT, EXPORTER, SIGNALS, check_export, endpoint_of, wants
from callboard.languages.language import End, Stage
from callboard.projections.run.span_ids import SpanIds
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import load
from tests.support.otlp_receiver import plain
from tests.support.sample_interpreters import effect
from tests.support.simulation import harness_for

TRACES, METRICS, LOGS = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" for signal in SIGNALS)


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, "TRACES"),
        ({ENDPOINT: "http://a"}, "TRACES METRICS"),
        ({ENDPOINT: "http://a", "OTEL_LOGS_EXPORTER": "otlp"}, "TRACES METRICS LOGS"),
        ({TRACES: "http://a"}, "TRACES"),
        ({METRICS: "http://a"}, "METRICS"),
        ({LOGS: "http://a"}, "LOGS"),
        ({TRACES: "http://a", METRICS: "http://b"}, "TRACES METRICS"),
        ({ENDPOINT: "http://a", "OTEL_TRACES_EXPORTER": "none"}, "METRICS"),
        ({ENDPOINT: "http://a", "OTEL_METRICS_EXPORTER": "console"}, "TRACES"),
        ({ENDPOINT: "http://a", "OTEL_METRICS_EXPORTER": "console, otlp"}, "TRACES METRICS"),
        ({ENDPOINT: "http://a", "OTEL_SDK_DISABLED": "True"}, ""),
        ({ENDPOINT: "http://a", "OTEL_SDK_DISABLED": "no"}, "TRACES METRICS"),
    ],
)
def test_the_environment_selects_the_exported_signals(env: dict[str, str], wanted: str) -> None:
    assert [signal for signal in SIGNALS if wants(env, signal)] == wanted.split()


def test_a_signal_is_sent_to_its_endpoint() -> None:
    env = {ENDPOINT: "http://all", METRICS: "http://mine"}
    assert [endpoint_of(env, signal) for signal in SIGNALS] == ["http://all", "http://mine", "http://all"]
    assert endpoint_of({}, "TRACES") == "http://localhost:4318"


@pytest.mark.parametrize("variable", [ENDPOINT, TRACES, METRICS, LOGS])
def test_a_backend_that_is_named_switches_the_export_on(
    variable: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = load(env={variable: "http://localhost:4318"}, cwd=tmp_path_factory.mktemp("here"))
    assert config.otel
    assert ("otel", "true", f"{variable} is set") in config.explain()


@pytest.mark.parametrize(
    ("env", "variable"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc"}, None),
        ({"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc", "OTEL_METRICS_EXPORTER": "none"}, None),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, None),
        ({}, None),
    ],
)
def test_an_unsupported_protocol_is_refused(env: dict[str, str], variable: str | None) -> None:
    env = {ENDPOINT: "http://a:4317", **env}
    if variable is None:
        check_export(env)
        return
    with pytest.raises(ConfigInvalid) as refused:
        check_export(env)
    (problem,) = refused.value.problems
    assert (problem.code, problem.where) == ("config.otlp", variable)
    assert "4318" in str(problem.expected)


def test_export_without_its_library_is_refused_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    for env in ({}, {"OTEL_TRACES_EXPORTER": "none", LOGS: "http://a:4318"}):
        with pytest.raises(ConfigInvalid) as refused:
            check_export(env)
        (problem,) = refused.value.problems
        assert (problem.code, problem.where) == ("config.otlp", LOGS if env else "otel")
        assert "pip install 'callboard[otlp]'" in str(problem.expected)
    check_export({"OTEL_SDK_DISABLED": "true"})


# -- requests ----------------------------------------------------------------------------------------------------------


@dataclass
class Backend:
    """A server that answers each request with a status and records it."""

    url: str = ""
    status: int = 200
    came: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Generator[Backend]:
    made = Backend()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.came.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(made.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Requests are kept, not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv(ENDPOINT, made.url)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    text = io.StringIO()
    logs.configure("info", "json", text)
    yield text
    logs.unconfigure()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_backend_without_metrics_causes_no_error(backend: Backend, stream: io.StringIO, status: int) -> None:
    backend.status = status
    provider = otlp_meter_provider()
    counter = provider.get_meter("test").create_counter("c")
    for _ in range(3):
        counter.add(1)
        provider.force_flush()
    provider.shutdown()
    assert [path for path, _ in backend.came] == ["/v1/metrics"]
    (line,) = lines(stream)
    assert (line["level"], line["status"]) == ("info", status)
    assert "OTEL_METRICS_EXPORTER=none" in str(line["remedy"])


def test_a_backend_that_refuses_metrics_is_an_error(backend: Backend, stream: io.StringIO) -> None:
    backend.status = 400
    provider = otlp_meter_provider()
    meter: Meter = provider.get_meter("test")
    meter.create_counter("c").add(1)
    provider.shutdown()
    assert "error" in {line["level"] for line in lines(stream)}


def sent(backend: Backend) -> list[LogRecord]:
    requests = [ExportLogsServiceRequest.FromString(body) for path, body in backend.came if path == "/v1/logs"]
    scopes = [scope for request in requests for resource in request.resource_logs for scope in resource.scope_logs]
    return [record for scope in scopes for record in scope.log_records]


def test_log_lines_have_their_span_and_are_sent_where_they_are_asked_for(backend: Backend, stream: io.StringIO) -> None:
    log = structlog.get_logger("callboard.somewhere")
    with exporting_logs(True, {ENDPOINT: backend.url, "OTEL_LOGS_EXPORTER": "otlp"}):
        with within(sent_as("ab" * 16, "cd" * 8, told=False)):
            assert headers() == {}
            log.warning("waits", tries=3, what={"a": 1})
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("library").exception("it broke: %s", "x")
        logging.getLogger("opentelemetry.exporter").error("not sent")
    log.info("afterwards")
    waits, broke, _, afterwards = lines(stream)
    assert (waits["trace_id"], waits["span_id"]) == ("ab" * 16, "cd" * 8)
    assert "trace_id" not in {**broke, **afterwards}
    first, second = sent(backend)
    assert (first.body.string_value, first.severity_text, first.trace_id.hex()) == ("waits", "WARNING", "ab" * 16)
    assert first.span_id.hex() == "cd" * 8
    assert plain(list(first.attributes)) == {"logger": "callboard.somewhere", "tries": 3, "what": "{'a': 1}"}
    assert (second.body.string_value, second.severity_text, second.trace_id) == ("it broke: x", "ERROR", b"")
    assert plain(list(second.attributes))["exception.type"] == "ValueError"


async def test_a_log_line_of_a_run_has_its_trace(stream: io.StringIO) -> None:
    async def broken(stage: Stage) -> End:
        await effect(stage.enter("a"), "do", 1)
        raise ValueError("an error of the interpreter")

    harness = harness_for(broken)
    ref = await harness.accept("p")
    structlog.get_logger("before").info("before")
    await harness.actor(ref).run()
    structlog.get_logger("after").info("after")
    told = {str(line["event"]): line for line in lines(stream)}
    of_run = told["interpreter failed"]
    assert (of_run["trace_id"], of_run["span_id"]) == (SpanIds().trace(ref.run), SpanIds().span(ref.run))
    assert "trace_id" not in {**told["before"], **told["after"]}


def test_logs_are_not_sent_unless_asked_for(backend: Backend, stream: io.StringIO) -> None:
    for otel, env in ((True, {ENDPOINT: backend.url}), (False, {LOGS: backend.url})):
        with exporting_logs(otel, env):
            structlog.get_logger("callboard").warning("here only")
    assert backend.came == []
    assert len(lines(stream)) == 2
