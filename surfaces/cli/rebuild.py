"""``callboard rebuild``: fold every view again from the log, as it is read and as it is followed, and compare."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.output import say, style

if TYPE_CHECKING:
    from callboard.bus.events import Event
    from callboard.bus.log.recorded import Recorded
    from callboard.bus.nats.jetstream import JetStreamLog
    from callboard.bus.subjects import RunRef
    from callboard.projections.projection import Projection
    from callboard.projections.spans.span import Span
    from callboard.runtime.client.connection import Connection


@click.command()
@click.argument("run", required=False)
@click.option(
    "--spans", is_flag=True, help="Also send the spans again to the OpenTelemetry backend (OTEL_EXPORTER_OTLP_*)."
)
@operation
async def rebuild(call: OperationCall, run: str | None, spans: bool) -> int:
    """Fold every view of RUN, or of all runs, again from the log, and compare.

    Each view is folded twice: from the whole log, and event by event as a follower receives it. Both must be equal byte
    by byte, and the digest must be the same on every machine. Spans keep their ids, so sending them again replaces
    them.
    """
    from callboard.features.telemetry.switches import check_export, endpoint_of
    from callboard.projections.lists.where import Both
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.files.run_files import in_file, source
    from callboard.surfaces.cli.runs import find_runs

    found: list[Rebuilt] = []

    def note(rebuilt: Rebuilt) -> None:
        found.append(rebuilt)
        if not call.settings.as_json:
            say(_describe_rebuilt(rebuilt))

    if run is not None and in_file(run) is not None:
        if spans:
            raise UsageInvalid(
                "the spans of a run in a file cannot be sent, because its log is not in the store", "--spans"
            )
        async with source(call.config, run, name=call.name) as runs:
            ref, events = await runs.run(run)
        note(_compare_views(ref, events, events))
    else:
        if spans:
            check_export(os.environ)
            await check_backend(endpoint_of(os.environ, "TRACES"))
        async with call.connect() as connection:
            for name in [run] if run is not None else await find_runs(connection, Both(())):
                note(await _rebuild_run(connection, name, send=spans))
    call.answer(found, [] if found else "No runs.")
    return exits.FAILED if any(rebuilt.different for rebuilt in found) else exits.OK


_NOT_FOUND = 10037
"""JetStream's error code if no message matches."""

DIGEST_CHARS = 16

BACKEND_WAIT_S = 2.0
"""How long the OpenTelemetry backend may take to accept a connection."""


class _SpansView:
    """The finished spans of a run as a view."""

    def __init__(self) -> None:
        from callboard.projections.spans.span import Span
        from callboard.projections.spans.spans import SpanFold

        self._fold = SpanFold()
        self._spans: list[Span] = []

    def apply(self, event: "Event") -> None:
        self._spans += self._fold.apply(event)

    def view(self) -> "list[Span]":
        return list(self._spans)


def views_of(language: str) -> "dict[str, Callable[[], Projection[Any]]]":
    """Return the views of a run in a language, by name: those of every run, and that of the language."""
    from callboard.projections.drawing.diagram import DiagramFold
    from callboard.projections.lists.runs import Runs
    from callboard.projections.results import view_of
    from callboard.projections.run.run_result import Results
    from callboard.projections.trace.trace import TraceFold

    view = view_of(language)
    common = {"results": Results, "trace": TraceFold, "diagram": DiagramFold, "runs": Runs, "spans": _SpansView}
    return {**common, **({f"{language} result": view.result} if view else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The digests of a run's views; ``different`` names those that differ when folded event by event."""

    run: str
    events: int
    digests: dict[str, str]
    different: list[str]
    spans_sent: int | None = None


async def _rebuild_run(connection: "Connection", run: str, *, send: bool) -> Rebuilt:

    from callboard.bus.log.forks import with_origin
    from callboard.bus.log.port import whole
    from callboard.bus.log.recorded import Recorded
    from callboard.runtime.client.client import UnknownRun

    ref = connection.client.ref(run)
    read = await connection.client.events(run)
    last = read[-1].n
    own: list[Recorded] = []
    async with standing_events(connection.log, connection.log.subjects.run(ref)) as events:
        async for recorded in events:
            # Leave out events that were appended after the log was read.
            if recorded.event.n <= last:
                own.append(recorded)
    if not own:
        raise UnknownRun(ref)
    # A follower of a fork does not receive the events of its origin, so these are read.
    followed = [await whole(connection.log, item) for item in await with_origin(connection.log, ref, own, 0, None)]
    rebuilt = _compare_views(ref, read, followed)
    return replace(rebuilt, spans_sent=await _send_spans(connection, ref)) if send else rebuilt


@asynccontextmanager
async def standing_events(log: "JetStreamLog", filter: str) -> "AsyncGenerator[AsyncGenerator[Recorded]]":
    """Follow the events that match a filter, up to the last one that the log has now."""
    from callboard.bus.log.port import NoAnswer
    from callboard.bus.log.recorded import Recorded
    from callboard.bus.nats.jetstream_api import api

    answer = await api(log.requests, f"STREAM.MSG.GET.{log.stream}", {"last_by_subj": filter})
    error = answer.get("error")
    if error and error.get("err_code") != _NOT_FOUND:
        raise NoAnswer(str(error.get("description")))
    last: int = 0 if error else answer["message"]["seq"]

    async def until_last() -> AsyncGenerator[Recorded]:
        if last:
            async for recorded in feed:
                yield recorded
                if recorded.sequence >= last:
                    return

    async with log.follow(filter, 0) as feed:
        events = until_last()
        try:
            yield events
        finally:
            await events.aclose()


def _compare_views(ref: "RunRef", read: "Sequence[Event]", followed: "Sequence[Event]") -> Rebuilt:
    """Fold every view from the whole log, and event by event from the followed events; compare the digests."""
    from callboard.service.operations.results import result_of

    views = views_of(result_of(read[:1]).language)
    at_once = {name: digest_of(made(), read) for name, made in views.items()}
    singly = {name: digest_of(made(), followed, look=True) for name, made in views.items()}
    different = [name for name in views if at_once[name] != singly[name]]
    return Rebuilt(run=ref.run, events=read[-1].n, digests=at_once, different=different)


def digest_of(projection: "Projection[Any]", events: "Sequence[Event]", *, look: bool = False) -> str:
    """Fold events and return the digest of the view; ``look`` computes the view after every event."""
    from hashlib import sha256

    import msgspec

    from callboard.lib.canonical_json import canonical

    for event in events:
        projection.apply(event)
        if look:
            projection.view()
    plain = msgspec.to_builtins(projection.view(), str_keys=True)
    return sha256(canonical(plain)).hexdigest()[:DIGEST_CHARS]


async def check_backend(endpoint: str) -> None:
    """Check that the backend accepts connections, before spans are folded and sending is retried.

    :raises CallboardError: ``spans.unreachable``
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    import anyio

    from callboard.bus.errors import CallboardError
    from callboard.bus.nats.connection import without_secrets

    parts = urlsplit(endpoint)
    proxies = getproxies()
    if parts.hostname is None or (parts.scheme in proxies and not proxy_bypass(parts.hostname)):
        # Only the proxy can reach the backend.
        return
    reason = f"no answer within {BACKEND_WAIT_S:g} s"
    with anyio.move_on_after(BACKEND_WAIT_S):
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            stream = await anyio.connect_tcp(parts.hostname, port)
        except OSError as error:
            reason = str(error.__cause__ or error)
        else:
            await stream.aclose()
            return
    raise CallboardError(
        "spans.unreachable",
        f"no OpenTelemetry backend can be reached: {reason}",
        without_secrets(endpoint),
        "Start a backend there, or set OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318",
    )


async def _send_spans(connection: "Connection", ref: "RunRef") -> int:
    from anyio import to_thread

    from callboard.bus.errors import CallboardError
    from callboard.features.telemetry.span_exporter import export_run
    from callboard.projections.spans.otlp import OtlpExporter, SpanExportFailed
    from callboard.projections.spans.semconv import captures_content

    exporter = await to_thread.run_sync(OtlpExporter)
    try:
        return await export_run(connection.log, ref, exporter, content=captures_content(os.environ))
    except SpanExportFailed as error:
        raise CallboardError("spans.refused", str(error)) from error
    finally:
        exporter.close()


def _describe_rebuilt(rebuilt: Rebuilt) -> str:
    mark = style("✗", fg="red") if rebuilt.different else style("✓", fg="green")
    sent = f", {rebuilt.spans_sent} spans sent" if rebuilt.spans_sent is not None else ""
    lines = [f"{mark} {rebuilt.run}  {rebuilt.events} events{sent}"]
    for name, digest in rebuilt.digests.items():
        lines.append(f"    {name:<16} {digest}" + ("  differs when followed" if name in rebuilt.different else ""))
    return "\n".join(lines)
