"""The environment of the page's benchmarks: the application over its own server, and many generated runs."""

import datetime as dt
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Event, RunEnd, encode_event
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import NUMBER, JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.surfaces.http.address import listening, url_of
from callboard.surfaces.http.http_server import serve_app
from tests.support.event_logs import CAKE, Log
from tests.support.http_application import application
from tests.support.page_server import TENANT

PUBLISHED_AT_ONCE = 2_000
"""Messages that are sent to the server before waiting."""

LOOK_S = 0.05
AT_WORK_EVERY = 2_000
FAILED_EVERY = 9
DEFINITIONS = ("triage", "greet", "import", "settle")


@asynccontextmanager
async def stage(home: Path) -> AsyncGenerator[tuple[JetStreamLog, str]]:
    """Start a server with the application over it; yield its log and its address."""
    config = load({"data_dir": home, "sync": "1s", "tenant": TENANT}, env={}, cwd=home)
    with listening("127.0.0.1", 0, "http") as bound:
        async with open_connection(config, "bench") as connection, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_app, application(connection, tasks), bound)
            yield connection.log, f"{url_of(bound)}/t/{TENANT}"
            tasks.cancel_scope.cancel()


def many_runs(count: int, name: str = "run") -> Iterator[Event]:
    """Yield the events of ``count`` runs like those of a typical list: most have ended, some failed, few run."""
    for number in range(count):
        log = Log(f"{name}-{number:06}", DEFINITIONS[number % len(DEFINITIONS)])
        log.time += dt.timedelta(seconds=number)
        log.started(CAKE)
        if number % AT_WORK_EVERY:
            log.wait(40)
            failed = not number % FAILED_EVERY
            error = Failure("tool.failed", "rate limited") if failed else None
            log.add(RunEnd("failed" if failed else "completed", error=error, usage=Usage(1_000, 200)))
        yield from log.events


async def publish(log: JetStreamLog, events: Iterator[Event]) -> None:
    """Store events of runs without other writers: without guards, and without waiting for each."""
    stored, sent = await _last_sequence(log), 0
    for sent, event in enumerate(events, 1):
        ref = RunRef(TENANT, event.run)
        headers = {MARK: f"{event.run}.{event.n}", NUMBER: str(event.n)}
        subject = log.subjects.event(ref, event.definition, event.type)
        await log.nc.publish(subject, encode_event(event), headers=headers)
        if not sent % PUBLISHED_AT_ONCE:
            await _until(log, stored + sent)
    await _until(log, stored + sent)


async def _last_sequence(log: JetStreamLog) -> int:
    return (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["state"]["last_seq"]


async def _until(log: JetStreamLog, sequence: int) -> None:
    await log.nc.flush()
    while await _last_sequence(log) < sequence:  # noqa: ASYNC110 — the server does not report its progress
        await anyio.sleep(LOOK_S)
