"""``callboard replay``: run the interpreter over a run's log again, or over those of all runs."""

import datetime as dt
import os
from typing import TYPE_CHECKING, NamedTuple

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import SinceType, code_option, host_code
from callboard.surfaces.cli.output import progress, style
from callboard.surfaces.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from callboard.projections.lists.where import Where
    from callboard.service.operations.replay_all import Location, Replaying, Report
    from callboard.service.operations.replays import Replayed


@click.command()
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option("--at", "at", metavar="N", type=click.IntRange(1), help="Stop after event N and show the state there.")
@click.option("--all", "everything", is_flag=True, help="Replay all runs of the store, or of an archive.")
@click.option(
    "--since", type=SinceType(), help="With --all: runs accepted since then, a duration ago (2h) or an instant."
)
@click.option("--where", "-w", "question", metavar="QUESTION", help="With --all: runs of the store that match.")
@click.option("--definition", "-d", metavar="NAME", help="With --all: only runs of this definition.")
@click.option(
    "--jobs",
    "-j",
    metavar="N",
    type=click.IntRange(1),
    help="With --all: the number of processes; default: one per core.",
)
@code_option
@operation
def replay(
    call: OperationCall,
    run: str | None,
    at: int | None,
    everything: bool,
    since: "dt.datetime | None",
    question: str | None,
    definition: str | None,
    jobs: int | None,
    code: tuple[str, ...],
) -> "Awaitable[int | None]":
    """Run the interpreter over the log of RUN again, and verify that it requests what was recorded.

    Nothing is executed and nothing is written. If there is a difference, both sides are shown, and the exit code is 1.
    With --all every run is verified, and the exit code is 1 if one of them fails. Runs of Python workflows are verified
    against the given --code, which may differ from the code that recorded them.
    """
    host_code(code)
    if everything:
        if at is not None:
            raise click.UsageError("--at needs one RUN")
        return _replay_runs(call, ReplayRequest(run, since, question, definition, jobs, code))
    if run is None:
        raise click.UsageError("name a RUN, or pass --all")
    if any(given is not None for given in (since, question, definition, jobs)):
        raise click.UsageError("--since, --where, --definition and --jobs need --all")
    return _replay_run(call, run, at)


async def _replay_run(call: OperationCall, run: str, at: int | None) -> None:
    """Replay a run and print the state that it reaches.

    :raises UnknownRun: if the run does not exist
    :raises LogUnreadable: if the run's log holds something that is not an event
    :raises ReplayDiverged: if the interpreter requests something other than was recorded
    :raises CallboardError: ``replay.not_started``, ``replay.no_event``, or as `read_admission` does
    """
    import msgspec

    from callboard.languages.registry import language
    from callboard.runtime.interpreter.code import adopted_digest
    from callboard.runtime.interpreter.replay import read_admission
    from callboard.runtime.worker.secrets import secrets_of
    from callboard.service.files.run_files import source
    from callboard.service.operations.replays import replay_events
    from callboard.service.operations.results import result_object

    async with source(call.config, run, name=call.name) as runs:
        ref, events = await runs.run(run)
    admission = read_admission(events[0], language, adopted_digest(events))
    replayed = replay_events(ref, events, admission, secrets_of(call.config, os.environ, admission), at)
    told = {**msgspec.to_builtins(replayed), "standing": result_object(replayed.standing)}
    call.answer(told, _describe_replay(replayed, call.settings))


def _describe_replay(replayed: "Replayed", settings: Settings) -> str:
    from callboard.service.operations.narration import local
    from callboard.surfaces.cli.views import node_line, open_line

    standing = replayed.standing
    whole = replayed.at == replayed.events
    verified = "the interpreter asks for exactly what the log holds" if whole else "no difference so far"
    replayed_to = f"replayed {replayed.run} to event {replayed.at} of {replayed.events}"
    lines = [
        f"{style('✓', fg='green')} {replayed_to}: {verified}",
        f"  status {standing.status}",
    ]
    if standing.nodes:
        lines += ["", "Nodes:", *(node_line(node) for node in standing.nodes.values())]
    if replayed.open:
        lines += ["", "Open effects:", *(open_line(effect, replayed.run, settings) for effect in replayed.open)]
    if replayed.deadlines:
        lines += ["", "Deadlines:", *(f"  {local(one.due)}  {one.key}" for one in replayed.deadlines)]
    if replayed.unwritten:
        lines += [
            "",
            "Would be recorded next:",
            *(f"  {one.type}  {one.path}  {one.text}" for one in replayed.unwritten),
        ]
    return "\n".join(lines)


FAILURES_SHOWN_MAX = 20
"""How many failures are listed; --json lists all."""


class ReplayRequest(NamedTuple):
    """Which runs to replay: of the archive ``file`` or else of the store, with filters; ``jobs`` counts processes."""

    file: str | None
    since: dt.datetime | None
    where: str | None
    definition: str | None
    jobs: int | None
    code: tuple[str, ...] = ()

    @property
    def question(self) -> "Where":
        """The question that selects the runs of the store."""
        from callboard.projections.lists.where import Both, Term
        from callboard.surfaces.cli.runs import parse_question

        since = [Term("accepted", ">=", self.since.timestamp())] if self.since is not None else []
        return Both((*since, parse_question(self.where, definition=self.definition)))

    def takes(self, definition: str, accepted_at: dt.datetime) -> bool:
        return self.definition in (None, definition) and (self.since is None or accepted_at >= self.since)


async def _replay_runs(call: OperationCall, chosen: ReplayRequest) -> int:
    """Replay runs and print the report; return the exit code.

    :raises UsageInvalid: if the file is not an archive, or --where is given with an archive
    :raises WhereInvalid: if the question cannot be understood
    :raises OperatorError: if the server, or the archive, cannot be used
    """
    from callboard.bus.nats.archive import Archive
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.files.run_files import in_file
    from callboard.service.operations.replay_all import Location, report_of
    from callboard.surfaces.cli.runs import find_runs

    config = call.config
    began = dt.datetime.now(dt.UTC)
    if chosen.file is None:
        question = chosen.question
        async with call.connect() as connection:
            runs = await find_runs(connection, question)
            # With this configuration another process reaches the same server.
            there = config.at(connection.server.url) if connection.server is not None else connection.config
            found = await _replay_chosen(Location(there, config.tenant, code=chosen.code), runs, chosen)
    else:
        file = in_file(chosen.file)
        if file is None or not file.is_archive or file.run is not None:
            raise UsageInvalid(f"{chosen.file!r} is not an archive; --all accepts an archive, but no run", "FILE")
        if chosen.where is not None:
            raise UsageInvalid(
                "only runs of the store can be selected so; for an archive, use --since and --definition", "--where"
            )
        kept = Archive(file.path).runs
        runs = [run.run for run in kept if chosen.takes(run.definition, run.accepted_at)]
        found = await _replay_chosen(Location(config, config.tenant, str(file.path), chosen.code), runs, chosen)
    report = report_of(found)
    took_s = (dt.datetime.now(dt.UTC) - began).total_seconds()
    call.answer(report, _report_text(report, took_s))
    return exits.FAILED if report.failures else exits.OK


async def _replay_chosen(location: "Location", runs: list[str], chosen: ReplayRequest) -> "list[Replaying]":
    from callboard.service.operations.replay_all import replay_all

    with progress(len(runs)) as done:
        return await replay_all(location, runs, chosen.jobs or os.cpu_count() or 1, done)


def _report_text(report: "Report", took_s: float) -> str:
    from callboard.projections.trace.text_renderings import duration_text

    mark = style("✗", fg="red") if report.failures else style("✓", fg="green")
    of = f"of {report.runs} runs" if report.runs != 1 else "of 1 run"
    lines = [f"{mark} verified {report.verified} {of}, {report.events} events, in {duration_text(took_s)}"]
    if report.not_started:
        lines.append(f"  {report.not_started} had not started: nothing to replay")
    for one in report.failures[:FAILURES_SHOWN_MAX]:
        lines += [f"  {one.run}  {one.definition}  {one.code}", f"    {one.message}"]
    if (left := len(report.failures) - FAILURES_SHOWN_MAX) > 0:
        lines.append(f"  … and {left} more; --json lists all")
    return "\n".join(lines)
