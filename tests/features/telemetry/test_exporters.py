"""The exporters on a real server: each span is sent once, also after crashes, and no run waits for a backend."""

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from callboard.bus.effects import Failure
from callboard.bus.events import Event, ForkedFrom, NodeExit, RunAccepted, Traced, encode_event, payload_of
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.payloads import split
from callboard.bus.log.port import Entry, EventLog, append
from callboard.bus.nats.jetstream_api import api
from callboard.bus.subjects import RunRef
from callboard.features.telemetry.event_consumer import BATCH_EVENTS_MAX, until_caught_up
from callboard.features.telemetry.exporters import open_exporters, spans_durable
from callboard.features.telemetry.span_exporter import DeliveredSpans, SpansExporter, export_run
from callboard.projections.run.span_ids import SpanIds
from callboard.projections.spans import semconv
from callboard.projections.spans.otlp import OtlpExporter, SpanExportFailed
from callboard.projections.spans.span import Span
from callboard.projections.spans.spans import SpanFold
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.cluster.leader import Leadership
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.event_logs import Log, cake, everything, killed
from tests.support.otlp_receiver import Receiver, otlp_receiver, plain
from tests.support.patience import until

TENANT = "acme"
DURABLE = "exporter-spans-test"
PATIENCE_S = 60.0
BACKEND_WAIT_S = "0.3"

WORKFLOW = '{"id":"w","name":"W","entry":"a","nodes":{"a":{"name":"A","instruction":"Count."}},"edges":[]}'


# -- helpers ----------------------------------------------------------------------------------------------------------


class MemoryBackend:
    """A backend in memory; its behavior can refuse, raise or block."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.behavior: Callable[[Sequence[Span]], None] = lambda spans: None

    def export(self, spans: Sequence[Span]) -> None:
        self.behavior(spans)
        self.spans += spans

    def close(self) -> None:
        """Nothing is open."""

    def ids(self) -> list[str]:
        return [span.span_id for span in self.spans]


@asynccontextmanager
async def deployment_at(home: Path, url: str | None = None, **settings: Any) -> AsyncGenerator[Connection]:
    flags: dict[str, Any] = {"data_dir": home, "sync": "100ms", "tenant": TENANT, "nats_url": url, **settings}
    async with open_connection(load({"allow_scripts": True, **flags}, env={}, cwd=home), "test") as connection:
        yield connection


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    async with deployment_at(tmp_path) as opened:
        yield opened


@asynccontextmanager
async def exporting(connection: Connection, shelf: MemoryBackend, name: str = "one") -> AsyncGenerator[Leadership]:
    """Run a candidate for leadership that exports spans to a backend in memory."""
    holder = SpansExporter(connection.log, shelf, DURABLE)
    leadership = Leadership(connection.nc, "cb.exporter.test", name, holder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leadership.run)
        try:
            yield leadership
        finally:
            holder.hurry()
            tasks.cancel_scope.cancel()


async def caught_up(connection: Connection, durable: str = DURABLE) -> None:
    with anyio.fail_after(PATIENCE_S):
        await until_caught_up(connection.log, durable)


async def perform(log: EventLog, events: Sequence[Event], after: int = 0) -> int:
    """Put events into the log as a worker would; return the last one's sequence."""
    for event in events:
        ref = RunRef(TENANT, event.run)
        slim, blobs = split(bytes(event.payload))
        for digest, value in blobs.items():
            await log.put_blob(ref, digest, value)
        stored = msgspec.structs.replace(event, payload=msgspec.Raw(slim), blobs=list(blobs))
        entry = Entry(event.n, event.epoch, event.type, event.definition, f"w.{event.n}", encode_event(stored))
        after = await append(log, ref, [entry], after)
    return after


def run_of(log: Log, run: str) -> list[Event]:
    """The same log as another run."""
    return [msgspec.structs.replace(event, run=run) for event in log.events]


def spans_of(events: Sequence[Event]) -> list[Span]:
    fold = SpanFold()
    return [span for event in events for span in fold.apply(event)]


def ids_of(*logs: Sequence[Event]) -> list[str]:
    return [span.span_id for log in logs for span in spans_of(log)]


# -- which spans an event closes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("readers", [1, 2, 3])
async def test_each_span_is_sent_once_by_any_number_of_readers(readers: int) -> None:
    log = MemoryLog()
    events = everything().events
    await perform(log, events)
    folds = [DeliveredSpans(log) for _ in range(readers)]
    sent = [
        span
        for i, recorded in enumerate(await log.read(RunRef(TENANT, events[0].run)))
        for span in await folds[i % readers].take(recorded)
    ]
    assert sent == spans_of(events)


async def test_an_event_delivered_late_sends_its_own_spans_and_no_others() -> None:
    log = MemoryLog()
    events = cake().events
    await perform(log, events)
    recorded = await log.read(RunRef(TENANT, events[0].run))
    late = [each for each in recorded if each.event.n % 3 == 0]
    fold = DeliveredSpans(log)
    sent = [span for each in recorded if each not in late for span in await fold.take(each)]
    assert 0 < len(sent) < len(spans_of(events))
    sent += [span for each in late for span in await fold.take(each)]
    assert sorted(span.span_id for span in sent) == sorted(ids_of(events))


async def test_an_event_delivered_again_sends_nothing() -> None:
    log = MemoryLog()
    await perform(log, cake().events)
    fold = DeliveredSpans(log)
    recorded = await log.read(RunRef(TENANT, cake().run))
    for each in recorded:
        await fold.take(each)
    assert [span for each in recorded for span in await fold.take(each)] == []


async def test_an_evicted_run_is_folded_again_from_the_log() -> None:
    log = MemoryLog()
    runs = [run_of(cake(), f"r{i}") for i in range(3)]
    fold = DeliveredSpans(log, runs_max=1)
    sent: list[Span] = []
    after = [0, 0, 0]
    for turn in range(len(runs[0])):
        for i, events in enumerate(runs):
            after[i] = await perform(log, [events[turn]], after[i])
            (recorded,) = [each for each in await log.read(RunRef(TENANT, f"r{i}")) if each.sequence == after[i]]
            sent += await fold.take(recorded)
    assert sorted(span.span_id for span in sent) == sorted(ids_of(*runs))


async def test_a_run_that_cannot_be_folded_does_not_stop_the_others() -> None:
    log = MemoryLog()
    broken, sound = run_of(cake(), "broken"), run_of(cake(), "sound")
    broken[6] = msgspec.structs.replace(broken[6], payload=msgspec.Raw(b'{"text":7}'))
    fold = DeliveredSpans(log)
    sent: list[Span] = []
    for events in (broken, sound):
        await perform(log, events)
        for recorded in await log.read(RunRef(TENANT, events[0].run)):
            sent += await fold.take(recorded)
    assert [span.span_id for span in sent if span.span_id in ids_of(sound)] == ids_of(sound)


# -- on the stream ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 7, 20])
async def test_an_exporter_resumes_after_a_restart(connection: Connection, cut: int) -> None:
    events = cake().events
    shelf = MemoryBackend()
    async with exporting(connection, shelf):
        await until(lambda: consumer_exists(connection))
        after = await perform(connection.log, events[:cut])
        await caught_up(connection)
    before = len(shelf.spans)
    assert shelf.ids() == ids_of(events[:cut])
    await perform(connection.log, events[cut:], after)
    async with exporting(connection, shelf):
        await caught_up(connection)
    assert len(shelf.spans) > before
    assert shelf.spans == spans_of(events)


async def consumer_exists(connection: Connection, durable: str = DURABLE) -> bool:
    return "error" not in await consumer(connection, durable)


async def consumer(connection: Connection, durable: str = DURABLE) -> dict[str, Any]:
    return await api(connection.log.requests, f"CONSUMER.INFO.{connection.log.stream}.{durable}", {})


async def test_a_run_read_from_the_middle_exports_the_spans_that_close_later(connection: Connection) -> None:
    events = cake().events
    after = await perform(connection.log, events[:12])
    shelf = MemoryBackend()
    async with exporting(connection, shelf):
        await until(lambda: consumer_exists(connection))
        await perform(connection.log, events[12:], after)
        await caught_up(connection)
    assert shelf.spans == spans_of(events)[len(spans_of(events[:12])) :]
    assert shelf.spans[-1].span_id == SpanIds().span(events[0].run)


async def test_one_of_several_candidates_exports(connection: Connection, tmp_path: Path) -> None:
    assert connection.server is not None
    runs = [run_of(cake(), f"r{i}") for i in range(12)]
    shelf = MemoryBackend()
    async with (
        deployment_at(tmp_path / "second", connection.server.url) as second,
        exporting(connection, shelf, "one") as one,
    ):
        await until(lambda: one.held)
        async with exporting(second, shelf, "two") as two:
            for events in runs[:6]:
                await perform(connection.log, events)
            await caught_up(connection)
            await until(lambda: one.held != two.held)
        await until(lambda: one.held)
        for events in runs[6:]:
            await perform(connection.log, events)
        await caught_up(connection)
    assert sorted(shelf.ids()) == sorted(ids_of(*runs))


async def test_the_successor_of_a_dead_reader_sends_the_unsent_spans(connection: Connection, tmp_path: Path) -> None:
    assert connection.server is not None
    entered, shelf, stuck = threading.Event(), MemoryBackend(), MemoryBackend()
    released = threading.Event()

    def hang(spans: Sequence[Span]) -> None:
        entered.set()
        released.wait(PATIENCE_S)
        raise SpanExportFailed(0, len(spans))

    stuck.behavior = hang
    events = cake().events
    try:
        async with exporting(connection, stuck):
            await until(lambda: consumer_exists(connection))
            await perform(connection.log, events)
            await until(entered.is_set)
        assert (await consumer(connection))["ack_floor"]["consumer_seq"] == 0
        async with exporting(connection, shelf, "two"):
            await caught_up(connection)
    finally:
        released.set()
    assert stuck.spans == []
    assert shelf.spans == spans_of(events)


@pytest.mark.usefixtures("own_servers")
async def test_an_exporter_survives_the_death_of_the_server(connection: Connection) -> None:
    assert connection.server is not None
    events = cake().events
    shelf = MemoryBackend()
    async with exporting(connection, shelf):
        await until(lambda: consumer_exists(connection))
        after = await perform(connection.log, events[:9])
        await until(lambda: len(shelf.spans) == len(spans_of(events[:9])))
        connection.server.kill()
        await perform(connection.log, events[9:], after)
        await until(lambda: len(shelf.spans) >= len(spans_of(events)))
    assert shelf.spans == spans_of(events)


async def test_unsent_spans_are_sent_when_leadership_returns(connection: Connection) -> None:
    events = cake().events
    shelf = MemoryBackend()
    entered, released = threading.Event(), threading.Event()

    def hang(spans: Sequence[Span]) -> None:
        entered.set()
        released.wait(PATIENCE_S)
        raise SpanExportFailed(0, len(spans))

    shelf.behavior = hang
    holder = SpansExporter(connection.log, shelf, DURABLE)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(holder.run, True)
            await until(lambda: consumer_exists(connection))
            await perform(connection.log, events)
            await until(entered.is_set)
            holder.hurry()
            tasks.cancel_scope.cancel()
    finally:
        released.set()
    shelf.behavior = lambda spans: None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(holder.run, True)
        await until(lambda: len(shelf.spans) > 0)
        await caught_up(connection)
        tasks.cancel_scope.cancel()
    assert shelf.spans == spans_of(events)


async def test_a_refusing_backend_gets_each_span_once_in_the_end(connection: Connection) -> None:
    shelf = MemoryBackend()
    refusals = 0

    def refuse(spans: Sequence[Span]) -> None:
        nonlocal refusals
        refusals += 1
        if refusals == 1:
            raise RuntimeError("a bug in the exporter")
        if refusals == 2:
            shelf.spans += spans[:2]
            raise SpanExportFailed(2, len(spans))

    shelf.behavior = refuse
    async with exporting(connection, shelf):
        await until(lambda: consumer_exists(connection))
        await perform(connection.log, cake().events)
        await caught_up(connection)
    assert refusals >= 3
    assert shelf.spans == spans_of(cake().events)


async def test_events_for_a_hanging_backend_wait_in_the_stream(connection: Connection) -> None:
    shelf, entered, released = MemoryBackend(), threading.Event(), threading.Event()

    def hang(_spans: Sequence[Span]) -> None:
        entered.set()
        released.wait(PATIENCE_S)

    shelf.behavior = hang
    runs = [run_of(cake(), f"r{i}") for i in range(2 * BATCH_EVENTS_MAX // len(cake().events))]
    try:
        async with exporting(connection, shelf):
            await until(lambda: consumer_exists(connection))
            await perform(connection.log, runs[0])
            await until(entered.is_set)
            for events in runs[1:]:
                await perform(connection.log, events)
            standing = await consumer(connection)
            assert standing["num_ack_pending"] <= BATCH_EVENTS_MAX
            assert standing["num_ack_pending"] + standing["num_pending"] == sum(map(len, runs))
            released.set()
            await caught_up(connection)
    finally:
        released.set()
    assert sorted(shelf.ids()) == sorted(ids_of(*runs))


async def test_large_values_are_put_back_before_an_event_is_folded(connection: Connection) -> None:
    log = Log().started()
    log.enter("bake")
    log.model("bake", text="x" * 400_000)
    log.add(NodeExit("failed", {"big": "y" * 400_000}, Failure("big", "z" * 300_000)), "bake", 1, 1)
    log.ended("w" * 300_000)
    shelf = MemoryBackend()
    async with exporting(connection, shelf):
        await until(lambda: consumer_exists(connection))
        await perform(connection.log, log.events)
        await caught_up(connection)
    assert shelf.spans == spans_of(log.events)


async def test_one_run_is_exported_again_on_demand(connection: Connection) -> None:
    shelf = MemoryBackend()
    for log in (cake(), killed()):
        events = run_of(log, f"old-{len(log.events)}")
        ref = RunRef(TENANT, events[0].run)
        await perform(connection.log, events)
        for _ in range(2):
            shelf.spans.clear()
            assert await export_run(connection.log, ref, shelf) == len(spans_of(events))
            assert shelf.spans == spans_of(events)
        shelf.spans.clear()
        await export_run(connection.log, ref, shelf, content=True)
        assert [span.span_id for span in shelf.spans] == [span.span_id for span in spans_of(events)]
        assert semconv.INPUT_MESSAGES in shelf.spans[0].attributes


# -- beside a worker, over HTTP ---------------------------------------------------------------------------------------


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Generator[Receiver]:
    with otlp_receiver() as served:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{served.url}/v1/traces")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", BACKEND_WAIT_S)
        yield served


async def play(connection: Connection, **more: Any) -> str:
    """Start a run at a worker and wait for its end; return its id."""
    start = {
        "definition": {"language": "workflow", "source": WORKFLOW},
        "model": "scripted",
        "script": {"turns": {"a": [{"data": {"found": 3}}]}},
        **more,
    }
    verdict = await connection.client.start(start)
    assert verdict.run_id is not None, verdict.problems
    async with connection.client.follow(verdict.run_id, event_type="run.end") as feed:
        with anyio.fail_after(PATIENCE_S):
            await anext(feed)
    return verdict.run_id


def arrived(receiver: Receiver) -> list[str]:
    return [span.span_id.hex() for span in receiver.spans()]


async def test_a_run_of_a_worker_arrives_whole_at_the_backend(receiver: Receiver, tmp_path: Path) -> None:
    async with deployment_at(tmp_path, otel=True) as connection:
        async with open_exporters(connection), open_worker(connection, env={}):
            run = await play(connection)
        events = await connection.client.events(run)
    assert arrived(receiver) == ids_of(events)
    names = [span.name for span in receiver.spans()]
    assert names == ["chat scripted", "invoke_agent a", "invoke_workflow w"]
    assert receiver.spans()[-1].kind == WireSpan.SpanKind.SPAN_KIND_INTERNAL
    accepted = payload_of(events[0])
    assert isinstance(accepted, RunAccepted)
    assert accepted.trace == Traced(connection.log.store, TENANT)
    ids = SpanIds(connection.log.store, TENANT)
    assert {(span.trace_id.hex(), span.span_id.hex()) for span in receiver.spans()[-1:]} == {
        (ids.trace(run), ids.span(run))
    }


async def test_a_fork_is_exported_with_the_events_of_its_origin(receiver: Receiver, tmp_path: Path) -> None:
    async with deployment_at(tmp_path, otel=True) as connection:
        async with open_exporters(connection), open_worker(connection, env={}):
            origin = await play(connection)
            parting = next(event.n for event in await connection.client.events(origin) if event.type == "node.exit")
            fork = await play(connection, fork={"run": origin, "at": parting})
        told = [await connection.client.events(run) for run in (origin, fork)]
    assert arrived(receiver) == ids_of(*told)
    assert len(ids_of(told[1])) == len(ids_of(told[0])), "the node before the parting is in its trace, too"
    sent, roots = receiver.spans(), {span.name: span for span in spans_of(told[1])}
    assert [span.start_time_unix_nano for span in sent[-1:]] == [roots["invoke_workflow w"].start_ns]
    assert plain(list(sent[-1].links[0].attributes)) == {"link.kind": "fork"}


async def test_a_fork_without_its_origin_does_not_stop_other_runs() -> None:
    log = MemoryLog()
    (first, *_), sound = run_of(cake(), "fork"), run_of(cake(), "sound")
    accepted = payload_of(first)
    assert isinstance(accepted, RunAccepted)
    born = msgspec.structs.replace(accepted, forked_from=ForkedFrom("gone", 7))
    orphan = msgspec.structs.replace(first, payload=msgspec.Raw(msgspec.json.encode(born)))
    fold, sent = DeliveredSpans(log), list[Span]()
    for events in ([orphan], sound):
        await perform(log, events)
        for item in await log.read(RunRef(TENANT, events[0].run), limit=1 if events is not sound else None):
            sent += await fold.take(item)
    assert [span.span_id for span in sent] == ids_of(sound)


async def test_runs_do_not_wait_for_a_backend_that_is_down(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answer = 400
    async with deployment_at(tmp_path, otel=True) as connection:
        async with open_exporters(connection), open_worker(connection, env={}):
            runs = [await play(connection) for _ in range(3)]
            await until(lambda: len(receiver.paths) > 1)
            receiver.answer = 200
            await until(lambda: len(arrived(receiver)) > 0)
            await caught_up(connection, durable_here())
        expected = ids_of(*[await connection.client.events(run) for run in runs])
    assert sorted(arrived(receiver)) == sorted(expected)


async def test_unsent_spans_are_sent_by_the_next_process(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answer = 400
    async with deployment_at(tmp_path, otel=True) as connection:
        async with open_exporters(connection), open_worker(connection, env={}):
            run = await play(connection)
        events = await connection.client.events(run)
        store = connection.log.store
    assert arrived(receiver) == []
    receiver.answer = 200
    monkeypatch.setenv(semconv.CAPTURE_CONTENT, "true")
    async with deployment_at(tmp_path, otel=True) as connection, open_exporters(connection):
        await caught_up(connection, durable_here())
    assert connection.log.store == store
    assert semconv.INPUT_MESSAGES in plain(list(receiver.spans()[0].attributes))
    assert arrived(receiver) == ids_of(events)


async def test_an_old_run_goes_to_the_backend_on_demand(receiver: Receiver, connection: Connection) -> None:
    async with open_worker(connection, env={}):
        run = await play(connection)
    exporter = OtlpExporter()
    try:
        await export_run(connection.log, connection.client.ref(run), exporter)
    finally:
        exporter.close()
    assert arrived(receiver) == ids_of(await connection.client.events(run))


async def test_without_otel_nothing_is_exported(receiver: Receiver, connection: Connection) -> None:
    async with open_exporters(connection), open_worker(connection, env={}):
        await play(connection)
    assert not await consumer_exists(connection, durable_here())
    assert receiver.paths == []


async def test_traces_can_be_switched_off(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    async with (
        deployment_at(tmp_path, otel=True) as connection,
        open_exporters(connection),
        open_worker(connection, env={}),
    ):
        await play(connection)
        assert not await consumer_exists(connection, durable_here())
    assert receiver.paths == []


def test_each_backend_has_its_own_checkpoint() -> None:
    names = [
        spans_durable({}),
        spans_durable({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://one"}),
        spans_durable(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://one", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://two"}
        ),
    ]
    assert len(set(names)) == 3
    assert names[0] == spans_durable({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})


def durable_here() -> str:
    """The checkpoint of the backend that this process's environment names."""
    import os

    return spans_durable(os.environ)


# -- metrics ----------------------------------------------------------------------------------------------------------


@dataclass
class MetricsBackend:
    """The requests to ``/v1/metrics``: the newest value of each counter, by name and labels."""

    url: str = ""
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list[ExportMetricsServiceRequest])

    def sums(self, name: str) -> dict[str, float]:
        """The newest points of a sum, by status or definition."""
        found: dict[str, float] = {}
        for request in self.requests:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            for point in metric.sum.data_points:
                                labels = {pair.key: pair.value.string_value for pair in point.attributes}
                                found[labels.get(semconv.RUN_STATUS, "")] = point.as_int or point.as_double
        return found


@contextmanager
def metrics_backend() -> Generator[MetricsBackend]:
    backend = MetricsBackend()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/metrics":
                backend.requests.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Requests are kept, not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        backend.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield backend
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def counting(connection: Connection) -> AsyncGenerator[None]:
    """Open exporters and wait until one of them leads and follows: from then on every event is counted."""
    before = await consumers(connection)

    async def follows() -> bool:
        return not await consumers(connection) <= before

    async with open_exporters(connection):
        await until(follows)
        yield


async def consumers(connection: Connection) -> set[str]:
    found = await api(connection.log.requests, f"CONSUMER.NAMES.{connection.log.stream}", {})
    return set(found["consumers"] or ())


async def test_metrics_of_live_runs_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with metrics_backend() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        async with deployment_at(tmp_path, otel=True) as connection, open_worker(connection, env={}):
            await play(connection)
            async with counting(connection):
                for _ in range(3):
                    await play(connection)
                await until(lambda: backend.sums(semconv.RUNS) == {"completed": 3})
                await until(lambda: backend.sums(semconv.RUNS_ACTIVE) == {"": 0})
    assert backend.sums(semconv.RUNS_ACCEPTED) == {"": 3}
    resource = backend.requests[0].resource_metrics[0].resource
    assert {pair.key: pair.value.string_value for pair in resource.attributes}[semconv.SERVICE_NAME] == "callboard"


async def test_an_event_that_cannot_be_counted_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with metrics_backend() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        async with deployment_at(tmp_path, otel=True) as connection, counting(connection):
            events = cake().events
            events[6] = msgspec.structs.replace(events[6], payload=msgspec.Raw(b'{"text":7}'))
            await perform(connection.log, events)
            await until(lambda: backend.sums(semconv.RUNS) == {"completed": 1})
