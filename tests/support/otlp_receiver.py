"""A small OTLP/HTTP receiver in the test's own process: takes ``POST /v1/traces`` and keeps the spans."""

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Receiver:
    """The requests so far. ``answer`` is the HTTP status that the next requests get."""

    url: str = ""
    answer: int = 200
    requests: list[ExportTraceServiceRequest] = field(default_factory=list[ExportTraceServiceRequest])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    paths: list[str] = field(default_factory=list[str])

    def spans(self) -> list[Span]:
        """All spans in the order in which they came."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextmanager
def otlp_receiver() -> Generator[Receiver]:
    """Serve on a free port of the loopback interface for the length of the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.paths.append(self.path)
            receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            if receiver.answer == 200:
                receiver.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(receiver.answer)
            self.send_header("Content-Type", "application/x-protobuf")
            reply = ExportTraceServiceResponse().SerializeToString()
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are kept, not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def plain(attributes: "list[KeyValue] | tuple[KeyValue, ...]") -> dict[str, object]:
    """Attributes as a dictionary of Python values."""
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
