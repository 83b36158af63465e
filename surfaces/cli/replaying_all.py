"""Replaying all runs at the command line: which ones, in how many processes, and the report."""

import datetime as dt
import os

import msgspec
from msgspec import Struct

from callboard.bus.nats.archive import Archive
from callboard.projections.lists.where import Both, Term, Where
from callboard.projections.trace.text_renderings import duration_text
from callboard.runtime.settings.config import Config
from callboard.service.api.connection import Connection
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.reach import reach
from callboard.service.operations.replay_all import Location, Replaying, Report, replay_all, report_of
from callboard.service.operations.results import compact
from callboard.service.operations.run_files import in_file
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import progress, say, style
from callboard.surfaces.cli.run_selection import found_runs, wanted
from callboard.surfaces.cli.settings import Settings

FAILURES_SHOWN_MAX = 20
"""How many runs that are not verified are told; with --json all are."""


class Chosen(Struct, frozen=True):
    """Which runs: of an archive or else of the store, accepted since, found there, of a definition; in how many
    processes."""

    file: str | None
    since: dt.datetime | None
    where: str | None
    definition: str | None
    jobs: int | None
    code: tuple[str, ...] = ()

    @property
    def question(self) -> Where:
        """The runs of the store that are meant."""
        since = [Term("accepted", ">=", self.since.timestamp())] if self.since is not None else []
        return Both((*since, wanted(self.where, definition=self.definition)))

    def takes(self, definition: str, accepted_at: dt.datetime) -> bool:
        return self.definition in (None, definition) and (self.since is None or accepted_at >= self.since)


async def replay_runs(chosen: Chosen, config: Config, settings: Settings) -> int:
    """Replay runs and print the report; return the exit code.

    :raises UsageInvalid: if something else than an archive is named, or an archive is asked a question
    :raises WhereInvalid: if the question cannot be understood
    :raises OperatorError: if the server, or the archive, cannot be used
    """
    began = dt.datetime.now(dt.UTC)
    if chosen.file is None:
        question = chosen.question
        async with reach(config, reads=True, name="callboard replay") as connection:
            runs = await found_runs(connection, question)
            found = await _replay_chosen(Location(_there(connection), config.tenant, code=chosen.code), runs, chosen)
    else:
        file = in_file(chosen.file)
        if file is None or not file.is_archive or file.run is not None:
            raise UsageInvalid(f"{chosen.file!r} is no archive: with --all, one can be named, and no run", "FILE")
        if chosen.where is not None:
            raise UsageInvalid("runs are found in the store; of an archive, --since and --definition choose", "--where")
        kept = Archive(file.path).runs
        runs = [run.run for run in kept if chosen.takes(run.definition, run.accepted_at)]
        found = await _replay_chosen(Location(config, config.tenant, str(file.path), chosen.code), runs, chosen)
    report = report_of(found)
    took_s = (dt.datetime.now(dt.UTC) - began).total_seconds()
    say(compact(msgspec.to_builtins(report)) if settings.as_json else _text(report, took_s))
    return exits.FAILED if report.failures else exits.OK


async def _replay_chosen(location: Location, runs: list[str], chosen: Chosen) -> list[Replaying]:
    with progress(len(runs)) as done:
        return await replay_all(location, runs, chosen.jobs or os.cpu_count() or 1, done)


def _there(connection: Connection) -> Config:
    """The configuration by which another process reaches the same server."""
    return connection.config.at(connection.server.url) if connection.server is not None else connection.config


def _text(report: Report, took_s: float) -> str:
    mark = style("✗", fg="red") if report.failures else style("✓", fg="green")
    of = f"of {report.runs} runs" if report.runs != 1 else "of 1 run"
    lines = [f"{mark} verified {report.verified} {of}, {report.events} events, in {duration_text(took_s)}"]
    if report.not_started:
        lines.append(f"  {report.not_started} had not begun: there is nothing to replay")
    for one in report.failures[:FAILURES_SHOWN_MAX]:
        lines += [f"  {one.run}  {one.definition}  {one.code}", f"    {one.message}"]
    if (left := len(report.failures) - FAILURES_SHOWN_MAX) > 0:
        lines.append(f"  … and {left} more, which --json has")
    return "\n".join(lines)
