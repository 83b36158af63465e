"""Replays every run of a store or of an archive with this version, in several processes."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import anyio
from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.bus.log.port import LogReader
from callboard.bus.log.recorded import readable
from callboard.bus.nats.archive import Archive, ArchivedLog
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.runtime.client.connection import open_connection
from callboard.runtime.hosting.code_loader import load
from callboard.runtime.interpreter.code import adopted_digest
from callboard.runtime.interpreter.replay import read_admission
from callboard.runtime.run.log import events_of, read_run
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.secrets import secrets_of
from callboard.service.operations.replays import replay_events

TOGETHER = 20
"""Number of runs that a process replays per task."""

NOT_STARTED = "replay.not_started"


class Replaying(Struct, frozen=True):
    """The result of a run's replay; ``code`` and ``message`` say why it is not verified."""

    run: str
    definition: str
    events: int
    verdict: Literal["verified", "not started", "failed"]
    code: str = ""
    message: str = ""


class Report(Struct, frozen=True):
    """The sums over all replays, and the result of each failed one."""

    runs: int
    verified: int
    not_started: int
    events: int
    failures: list[Replaying]


class Location(Struct, frozen=True):
    """Where a process reads runs: from the archive ``path``, or else from the server of ``config``. ``code`` names
    hosted code to load, for the runs of its workflows."""

    config: Config
    tenant: str
    path: str = ""
    code: tuple[str, ...] = ()


def report_of(found: Iterable[Replaying]) -> Report:
    """Return the report of some replays."""
    every = list(found)
    return Report(
        runs=len(every),
        verified=sum(one.verdict == "verified" for one in every),
        not_started=sum(one.verdict == "not started" for one in every),
        events=sum(one.events for one in every),
        failures=[one for one in every if one.verdict == "failed"],
    )


async def replay_all(
    location: Location, runs: Sequence[str], processes: int, progress: Callable[[int], None]
) -> list[Replaying]:
    """Replay runs in up to ``processes`` processes. ``progress`` is called with the number of further runs done.

    :raises OperatorError: if the server or the archive cannot be used
    """
    parts = [runs[at : at + TOGETHER] for at in range(0, len(runs), TOGETHER)]
    found: list[Replaying] = []
    async for part in _in_parts(location, parts, min(processes, len(parts))):
        found += part
        progress(len(part))
    return found


async def _in_parts(
    location: Location, parts: Sequence[Sequence[str]], processes: int
) -> AsyncGenerator[list[Replaying]]:
    if processes <= 1:
        for part in parts:
            yield await _replay_runs(location, part)
        return
    # Spawned instead of forked, because this process has a connection and perhaps threads.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_ignore_interrupts)
    try:
        waiting: list[Future[list[Replaying]]] = [pool.submit(_replay_in_process, location, part) for part in parts]
        for future in waiting:
            yield await asyncio.wrap_future(future)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(pool.shutdown, cancel_futures=True))


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in this process: the parent process handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _replay_in_process(location: Location, runs: Sequence[str]) -> list[Replaying]:
    for one in location.code:
        load(one)
    return anyio.run(_replay_runs, location, runs)


async def _replay_runs(location: Location, runs: Sequence[str]) -> list[Replaying]:
    if location.path:
        archive = Archive(Path(location.path))
        log = ArchivedLog(archive)
        return [await _one(log, archive.run(run).ref, location.config) for run in runs]
    async with open_connection(location.config, "callboard replay") as connection:
        return [await _one(connection.log, RunRef(location.tenant, run), location.config) for run in runs]


async def _one(log: LogReader, ref: RunRef, config: Config) -> Replaying:
    """Replay one run. An error that prevents the replay becomes part of the result."""
    events: list[Event] = []
    try:
        events = events_of(readable(await read_run(log, ref)))
        if not events:
            return Replaying(ref.run, "", 0, "not started", NOT_STARTED, "the run no longer exists")
        admission = read_admission(events[0], language, adopted_digest(events))
        replay_events(ref, events, admission, secrets_of(config, os.environ, admission))
    except CallboardError as error:
        verdict = "not started" if error.code == NOT_STARTED else "failed"
        return Replaying(ref.run, _definition(events), len(events), verdict, error.code, error.message)
    return Replaying(ref.run, _definition(events), len(events), "verified")


def _definition(events: Sequence[Event]) -> str:
    return events[0].definition if events else ""
