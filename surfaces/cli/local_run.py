"""Performing one run in this process: server, worker, start and follow, until the run ends or the user leaves.

After the run its output can be written as an artifact, with a summary in markdown. The summary has the form of the
summary that PLAYBOOK.md's native runner appends to a job: the artifact, a table of steps, the warnings.
"""

import os
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.commands import Cancel
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, NodeWarning, Problem
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.successors import successor_of
from callboard.bus.nats.purge import find_newest_run
from callboard.bus.nats.server.data_directory import is_stood_by
from callboard.bus.subjects import RunRef
from callboard.bus.tracecontext import read, within
from callboard.features.telemetry.exporters import open_exporters
from callboard.lib.temporary_folders import temporary_folder
from callboard.projections.projection import known_payload
from callboard.projections.results import StepRow, View, view_of
from callboard.projections.run.run_result import Results, RunResult
from callboard.runtime.client.client import Client, NoVerdict
from callboard.runtime.client.connection import Connection
from callboard.runtime.client.errors import RequestRefused
from callboard.runtime.settings.config import Config
from callboard.service.files.start_messages import PreparedStart
from callboard.service.operations.reach import join
from callboard.service.operations.results import compact, pretty, result_of, summary_object
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.asking import Terminal
from callboard.surfaces.cli.event_output import Guiding, Quietly, Shower, Streaming, follow, hear_models
from callboard.surfaces.cli.inline_answers import InlineAnswers
from callboard.surfaces.cli.live_tree import open_view
from callboard.surfaces.cli.output import problem_text, say, write_file
from callboard.surfaces.cli.process import importing, stop_signals, worker_environment
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import further_commands, program, summary_text, where_options, whole_hint

LEAVING_WAIT_S = 1.0
"""How long a second interruption waits for the cancellation to be sent."""

if TYPE_CHECKING:
    from callboard.runtime.worker.worker import Worker


class Cancellation:
    """The cancellation of a run by an interruption of the command that performs it."""

    def __init__(self, client: Client, run: str) -> None:
        self._client = client
        self._run = run
        self._said = anyio.Event()
        self._fault: str | None = "it was not sent in time"

    async def ask(self) -> str | None:
        """Send the cancellation; return why that failed, or None."""
        try:
            verdict = await self._client.tell(self._run, "cancel", Cancel(reason="callboard run was interrupted"))
            self._fault = "; ".join(str(problem) for problem in verdict.problems) or None
        except NoVerdict:
            # It is in the stream: the next worker admits it.
            self._fault = None
        except (CallboardError, NoAnswer) as error:
            self._fault = str(error)
        self._said.set()
        return self._fault

    async def on_its_way(self) -> None:
        """Wait until the cancellation was sent, for at most `LEAVING_WAIT_S`."""
        with anyio.move_on_after(LEAVING_WAIT_S):
            await self._said.wait()

    async def left_behind(self) -> str | None:
        """Describe what happens to the run after this command exits; None if the run has ended."""
        try:
            ref, last = await find_newest_run(self._client.log, self._client.ref(self._run))
            requested = await self._client.log.last_of_type(ref, ev.CancelRequested.type)
        except NoAnswer as error:
            return f"Left run {self._run}. It is not known whether its cancellation is recorded: {error}"
        if last is not None and last.event.type == ev.RunEnd.type:
            return None
        if requested is not None:
            return f"Left run {self._run}. Its cancellation is recorded; the next worker cancels it."
        if self._fault is None:
            return f"Left run {self._run}. Its cancellation was sent; the next worker records it and cancels the run."
        return f"Left run {self._run}, which is not cancelled ({self._fault}): the next worker continues it."


class OtherRuns:
    """Unfinished runs of the same store that this command's worker performs too; each is named once, on stderr."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: set[str] = set()
        self._others: dict[str, None] = {}

    def leave_out(self, run: str) -> None:
        """Do not name a run, because it is the command's own."""
        self._known.add(run)
        if run in self._others:
            del self._others[run]

    def hear(self, ref: RunRef, *, fresh: bool) -> None:
        """Note that a run is performed here; name it unless it is ``fresh``, that is, only just started."""
        if fresh or ref.run in self._known:
            self._known.add(ref.run)
            return
        self._known.add(ref.run)
        self._others[ref.run] = None
        command = f"{program()} cancel{where_options(self._settings)} {ref.run}"
        say(f"Run {ref.run}, which was unfinished, continues here. End it with `{command}`.", err=True)

    def say_waiting(self, at_most_s: float) -> None:
        """Print that the command waits for other runs."""
        names = ", ".join(self._others) or "child runs"
        say(f"Waiting at most {at_most_s:g} s for running effects of {names}.", err=True)


WORKER = "callboard.service.worker.bootstrap"

TEMPORARY = "temp"
"""The value of --data-dir for a directory that is removed afterwards."""

DRAIN_S = 5.0
"""How long running effects may finish when our worker leaves a server that others use too."""


OTHERS_DRAIN_S = 60.0
"""How long running effects of other runs may finish when our server stops with us; unfinished ones are repeated."""


class LocalRun(Struct, frozen=True):
    """The run to perform, the directory of its tools, and how it is shown."""

    prepared: PreparedStart
    config: Config
    settings: Settings
    workdir: Path
    stream: bool = False
    plain: bool = False
    asks: bool = True
    """Whether the run's questions are prompted for at the terminal."""
    artifact: Path | None = None
    summary: Path | None = None
    """Files to write after the run has ended."""
    code: str = ""
    """The file or the module of the workflow, if it is one in Python."""

    @property
    def silent(self) -> bool:
        return self.settings.as_json or self.stream


async def run_here(local: LocalRun) -> int:
    """Perform the run; return the exit code.

    The server starts, or is found, while a thread imports what performs runs.

    :raises RequestRefused: if the start is refused
    :raises CallboardError: if the server or the worker cannot work
    """
    config, prepared = local.config, local.prepared
    temporary = str(config.data_dir) == TEMPORARY
    async with AsyncExitStack() as stack:
        if temporary:
            folder = stack.enter_context(temporary_folder())
            config = config.model_copy(update={"data_dir": folder})
        config = config.absolute()
        env = stack.enter_context(worker_environment(local.workdir, prepared.folder))
        with importing(WORKER):
            connection = await stack.enter_async_context(join(config, name="callboard run", say=partial(say, err=True)))
        from callboard.service.worker.bootstrap import open_worker

        await stack.enter_async_context(open_exporters(connection))
        # The tools are on this machine, so this worker has to perform the run, not another one of the server.
        others = OtherRuns(local.settings)
        worker = await stack.enter_async_context(open_worker(connection, env, guest=True))
        worker.listen(others.hear)
        run, warnings = await _start(connection, local, worker)
        others.leave_out(run)
        code, run = await _watch_run(connection, run, local)
        events = await connection.client.events(run)
        await _leave_others(worker, connection, others)
    _write_files(local, events, warnings)
    if not local.silent and not temporary:
        say(f"\n{further_commands(run, local.settings, local.code)}")
    return code


async def _leave_others(worker: "Worker", connection: Connection, others: OtherRuns) -> None:
    """Stop performing other runs. If no other worker continues them at once, wait for their running effects first:
    otherwise requests to models would be sent, and paid for, again."""
    if connection.server is None or is_stood_by(connection.config.data_dir):
        await worker.drain(DRAIN_S)
        return
    if worker.active:
        others.say_waiting(OTHERS_DRAIN_S)
    await worker.drain(OTHERS_DRAIN_S)


def _write_files(local: LocalRun, events: list[Event], warnings: list[Problem]) -> None:
    """Write the artifact and the summary of a run that has ended.

    :raises CallboardError: ``file.unwritable``
    """
    result, artifact = result_of(events, local.config.price_table()), local.artifact
    if artifact is not None and result.status == "completed":
        write_artifact(result, artifact)
    if local.summary is not None and result.ended_at is not None:
        append_summary(local.summary, result, events, warnings, str(artifact or ""))


async def _start(connection: Connection, local: LocalRun, worker: "Worker") -> tuple[str, list[Problem]]:
    """Start the run; return its id and the warnings about the start."""
    message, definition = local.prepared.message, local.prepared.definition
    with within(read(os.environ)):
        verdict = await connection.client.start(message, worker=worker.name)
    if verdict.status == "rejected" or verdict.run_id is None:
        raise RequestRefused("start", verdict.problems)
    if verdict.duplicate:
        say(f"run {verdict.run_id} was started before; showing that run", err=True)
    warnings = [*local.prepared.warnings, *verdict.warnings]
    for warning in warnings:
        say(problem_text(warning, "", definition.source), err=True)
    return verdict.run_id, warnings


async def _watch_run(connection: Connection, run: str, local: LocalRun) -> tuple[int, str]:
    """Follow the run to its end and show the result; the second interruption leaves it while it is being cancelled.

    Return the exit code, and the run; if other runs continue it, the last one.
    """
    silent = Streaming() if local.stream else Quietly()
    shower = silent if local.silent else open_view(plain=local.plain)
    cancellation = Cancellation(connection.client, run)
    left = False
    try:
        async with anyio.create_task_group() as tasks:

            async def interruptions() -> None:
                nonlocal left
                with anyio.open_signal_receiver(*stop_signals()) as signals:
                    async for _first in signals:
                        break
                    shower.notice("Cancelling the run; interrupt again to exit without waiting for its end.")
                    tasks.start_soon(_cancel, cancellation, shower)
                    async for _second in signals:
                        break
                    await cancellation.on_its_way()
                left = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(interruptions)
            while (successor := await _follow(connection, run, shower, local, tasks)) is not None:
                await connection.client.await_admission(successor)
                run = successor
            tasks.cancel_scope.cancel()
    finally:
        shower.close()
    if left and (told := await cancellation.left_behind()):
        forgotten = connection.server is not None and str(local.config.data_dir) == TEMPORARY
        say(f"Left run {run}; it was not kept." if forgotten else told, err=True)
        return exits.INTERRUPTED, run
    return await _conclude(connection, run, local), run


async def _follow(
    connection: Connection, run: str, shower: Shower, local: LocalRun, tasks: anyio.abc.TaskGroup
) -> str | None:
    """Show the run's events and its models' answers until it ends; prompt for its questions.

    Return the run that continues it, if any.
    """
    shown = shower
    if not local.silent:
        guiding = Guiding(shower, run, _settings_there(connection, local))
        asks = local.asks
        shown = InlineAnswers(shower, connection.client, run, guiding, tasks, Terminal()) if asks else guiding
    try:
        async with hear_models(connection, run, shower) as through, connection.client.follow(run) as feed:
            end = await follow(connection.log, through(feed), shown)
    finally:
        if shown is not shower:
            shown.close()
    return successor_of(end) if end is not None else None


def _settings_there(connection: Connection, local: LocalRun) -> Settings:
    """Return the settings with which another command finds the run; a temporary store is named by its path."""
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
        say(f"\n{summary_text(result, events, _whole_hint(run, connection, local))}")
    return exits.of_status(result.status)


def _whole_hint(run: str, connection: Connection, local: LocalRun) -> str:
    if connection.server is not None and str(local.config.data_dir) == TEMPORARY:
        return "whole: the same command with --json"
    return whole_hint(run, local.settings)


async def _cancel(cancellation: Cancellation, shower: Shower) -> None:
    if fault := await cancellation.ask():
        shower.notice(f"The cancellation failed: {fault}")


_INNER = re.compile(r"[/\[:]")
"""Characters that occur only in paths of inner nodes."""

_STATUS = {"completed": "executed", "ok": "executed"}


def write_artifact(result: RunResult, path: Path) -> None:
    """Write a run's output: a text as it is, anything else as JSON.

    :raises CallboardError: ``file.unwritable``
    """
    text = result.output if isinstance(result.output, str) else pretty(result.output) + "\n"
    write_file(path, text, makes_folder=True)


def append_summary(
    path: Path, result: RunResult, events: Sequence[Event], warnings: Sequence[Problem], artifact: str
) -> None:
    """Append the summary of a run to a file.

    :raises CallboardError: ``file.unwritable``
    """
    reasons = [warning.message for warning in warnings]
    reasons += [payload.reason for event in events if isinstance(payload := known_payload(event), NodeWarning)]
    write_file(path, markdown_summary(result, events, reasons, artifact), append=True, makes_folder=True)


def markdown_summary(result: RunResult, events: Sequence[Event], warnings: Sequence[str], artifact: str) -> str:
    """Return the summary of a run in markdown."""
    view = view_of(result.language) or View(Results)
    lines = [f"## {view.summary_title}", ""]
    if artifact and result.status == "completed":
        lines += [f"**Artifact:** `{artifact}`", ""]
    if result.status != "completed":
        because = f": {_cell_text(result.error.message or result.error.code)}" if result.error else ""
        lines += [f"**Status:** {result.status}{because}", ""]
    lines += ["| # | Title | Status | Input tokens | Output tokens |"]
    lines += ["|---|-------|--------|--------------|---------------|"]
    for row in view.steps(events) if view.steps else _step_rows(result):
        tokens = [str(count) if count else "-" for count in (row.input_tokens, row.output_tokens)]
        status = _STATUS.get(row.status, row.status)
        lines.append(f"| {row.number} | {_cell_text(row.title)} | {status} | {tokens[0]} | {tokens[1]} |")
    if warnings:
        lines += ["", "### Warnings", *(f"- {_cell_text(warning)}" for warning in warnings)]
    return "\n".join([*lines, ""]) + "\n"


def _step_rows(result: RunResult) -> list[StepRow]:
    rows: list[StepRow] = []
    for number, node in enumerate((one for one in result.nodes.values() if not _INNER.search(one.path)), 1):
        usage = result.usage_by_path.get(node.path)
        tokens = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
        rows.append(StepRow(str(number), node.path, node.outcome or "running", *tokens))
    return rows


def _cell_text(text: str) -> str:
    """Return a text in a form that a table cell or a list item can hold."""
    return re.sub(r"\s+", " ", text.replace("|", "\\|")).strip()
