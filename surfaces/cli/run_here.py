"""Performing one run in this process: server, worker, start and follow, until the run ends or someone leaves."""

import os
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
from msgspec import Struct

from callboard.bus.events import Event, Problem
from callboard.bus.nats.server.data_directory import is_stood_by
from callboard.bus.tracecontext import read, within
from callboard.features.telemetry.exporters import open_exporters
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.bootstrap import open_worker
from callboard.runtime.worker.worker import Worker
from callboard.service.api.connection import Connection
from callboard.service.operations.errors import RequestRefused
from callboard.service.operations.reach import join
from callboard.service.operations.results import compact, result_of, summary_object
from callboard.service.operations.start_messages import PreparedStart
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.artifacts import append_summary, write_artifact
from callboard.surfaces.cli.event_output import Quietly, Shower, Streaming, follow
from callboard.surfaces.cli.hints import Guiding
from callboard.surfaces.cli.inline_answers import Answering
from callboard.surfaces.cli.interruption import Cancellation
from callboard.surfaces.cli.live_view import hearing, view_of_one
from callboard.surfaces.cli.options import Settings
from callboard.surfaces.cli.other_runs import OtherRuns
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.problems import problem_text
from callboard.surfaces.cli.stop_signals import stop_signals
from callboard.surfaces.cli.surroundings import surroundings
from callboard.surfaces.cli.terminal import Terminal
from callboard.surfaces.cli.views import further, summary_text, whole_told

TEMPORARY = "temp"
"""As a data directory: one that is removed afterwards."""

DRAIN_S = 5.0
"""How long our worker lets running effects finish when it leaves a server that others use too."""


OTHERS_DRAIN_S = 60.0
"""How long we wait for running effects of other runs when our server ends with us. They would be repeated otherwise."""


class LocalRun(Struct, frozen=True):
    """What is to be run, where its tools work, and how it is shown."""

    prepared: PreparedStart
    config: Config
    settings: Settings
    workdir: Path
    stream: bool = False
    plain: bool = False
    asks: bool = True
    """Whether whoever sits at the terminal is asked what the run asks."""
    artifact: Path | None = None
    summary: Path | None = None
    """Files to write once the run has ended."""

    @property
    def silent(self) -> bool:
        return self.settings.as_json or self.stream


async def run_here(local: LocalRun) -> int:
    """Perform the run; return the exit code.

    :raises RequestRefused: if the start is refused
    :raises CallboardError: whatever keeps server or worker from working
    """
    config, prepared = local.config, local.prepared
    temporary = str(config.data_dir) == TEMPORARY
    async with AsyncExitStack() as stack:
        if temporary:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="callboard-"))
            config = config.model_copy(update={"data_dir": Path(folder)})
        config = config.absolute()
        env = stack.enter_context(surroundings(local.workdir, prepared.folder))
        connection = await stack.enter_async_context(join(config, name="callboard run", say=partial(say, err=True)))
        await stack.enter_async_context(open_exporters(connection))
        # The tools are beside us, so the run is to come to this worker and not to another one that is there.
        others = OtherRuns(local.settings)
        worker = await stack.enter_async_context(open_worker(connection, env, guest=True))
        worker.listen(others.hear)
        run, warnings = await _start(connection, local, worker)
        others.leave_out(run)
        code = await _watch_run(connection, run, local)
        events = await connection.client.events(run)
        await _leave(worker, connection, others)
    _leave_files(local, events, warnings)
    if not local.silent and not temporary:
        say(f"\n{further(run, local.settings)}")
    return code


async def _leave(worker: Worker, connection: Connection, others: OtherRuns) -> None:
    """Let the runs go that this worker performs besides ours. If no other worker continues them at once, wait for their
    running effects: what a model has been asked would have to be asked and paid for again."""
    if connection.server is None or is_stood_by(connection.config.data_dir):
        await worker.drain(DRAIN_S)
        return
    if worker.active:
        others.say_waiting(OTHERS_DRAIN_S)
    await worker.drain(OTHERS_DRAIN_S)


def _leave_files(local: LocalRun, events: list[Event], warnings: list[Problem]) -> None:
    """Write what is wanted of a run that has ended.

    :raises CallboardError: ``file.unwritable``
    """
    result, artifact = result_of(events, local.config.price_table()), local.artifact
    if artifact is not None and result.status == "completed":
        write_artifact(result, artifact)
    if local.summary is not None and result.ended_at is not None:
        append_summary(local.summary, result, events, warnings, str(artifact or ""))


async def _start(connection: Connection, local: LocalRun, worker: Worker) -> tuple[str, list[Problem]]:
    """Start the run; return its id, and what is odd about the start."""
    message, definition = local.prepared.message, local.prepared.definition
    with within(read(os.environ)):
        verdict = await connection.client.start(message, worker=worker.name)
    if verdict.status == "rejected" or verdict.run_id is None:
        raise RequestRefused("start", verdict.problems)
    if verdict.duplicate:
        say(f"run {verdict.run_id} had been started before; this is what becomes of it", err=True)
    warnings = [*local.prepared.warnings, *verdict.warnings]
    for warning in warnings:
        say(problem_text(warning, "", definition.source), err=True)
    return verdict.run_id, warnings


async def _watch_run(connection: Connection, run: str, local: LocalRun) -> int:
    """Follow the run to its end and show how it came out; a second interruption leaves it while it is cancelled."""
    shower = _shower(local)
    cancellation = Cancellation(connection.client, run)
    left = False
    try:
        async with anyio.create_task_group() as tasks:

            async def interruptions() -> None:
                nonlocal left
                with anyio.open_signal_receiver(*stop_signals()) as signals:
                    async for _first in signals:
                        break
                    shower.notice("Cancelling the run; interrupt again to leave without waiting for its end.")
                    tasks.start_soon(_cancel, cancellation, shower)
                    async for _second in signals:
                        break
                    await cancellation.on_its_way()
                left = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(interruptions)
            await _follow(connection, run, shower, local, tasks)
            tasks.cancel_scope.cancel()
    finally:
        shower.close()
    if left and (told := await cancellation.left_behind()):
        forgotten = connection.server is not None and str(local.config.data_dir) == TEMPORARY
        say(f"Left run {run}, of which nothing is kept." if forgotten else told, err=True)
        return exits.INTERRUPTED
    return await _conclude(connection, run, local)


async def _follow(
    connection: Connection, run: str, shower: Shower, local: LocalRun, tasks: anyio.abc.TaskGroup
) -> None:
    """Show the run's events, and what its models are saying in the meantime, until it ends; ask what it asks."""
    shown = shower
    if not local.silent:
        guiding = Guiding(shower, run, _settings_there(connection, local))
        asks = local.asks
        shown = Answering(shower, connection.client, run, guiding, tasks, Terminal()) if asks else guiding
    try:
        async with hearing(connection, run, shower), connection.client.follow(run) as feed:
            await follow(connection.log, feed, shown)
    finally:
        if shown is not shower:
            shown.close()


def _settings_there(connection: Connection, local: LocalRun) -> Settings:
    """The settings with which another command finds the run: no one else knows where a temporary store is."""
    settings = local.settings
    if connection.server is None or str(local.config.data_dir) != TEMPORARY:
        return settings
    return replace(settings, flags={**settings.flags, "data_dir": str(connection.config.data_dir)})


async def _conclude(connection: Connection, run: str, local: LocalRun) -> int:
    events = await connection.client.events(run)
    result = result_of(events, connection.config.price_table())
    if local.settings.as_json and not local.stream:
        say(compact(summary_object(result, events)))
    elif not local.stream:
        say(f"\n{summary_text(result, events, _whole(run, connection, local))}")
    return exits.of_status(result.status)


def _whole(run: str, connection: Connection, local: LocalRun) -> str:
    if connection.server is not None and str(local.config.data_dir) == TEMPORARY:
        return "whole: the same command with --json"
    return whole_told(run, local.settings)


async def _cancel(cancellation: Cancellation, shower: Shower) -> None:
    if fault := await cancellation.ask():
        shower.notice(f"The cancellation did not get through: {fault}")


def _shower(local: LocalRun) -> Shower:
    if local.stream:
        return Streaming()
    return Quietly() if local.settings.as_json else view_of_one(plain=local.plain)
