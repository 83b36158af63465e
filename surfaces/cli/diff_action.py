"""Comparing two runs: reads both logs, folds and compares them, and prints what differs."""

from collections.abc import Sequence

import msgspec

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.bus.subjects import NameTooLong
from callboard.projections.comparison.diff import compare_logs
from callboard.runtime.settings.config import Config
from callboard.service.operations.results import compact
from callboard.service.operations.run_files import source
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.diff_text import diff_text
from callboard.surfaces.cli.errors import report
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings


async def compare_runs(left: str, right: str, config: Config, settings: Settings) -> int:
    """Print what differs between two runs, or why one of them cannot be read; return the exit code.

    :raises OperatorError: whatever keeps the server from being usable
    """
    logs: list[Sequence[Event]] = []
    missing: CallboardError | NameTooLong | None = None
    async with source(config, left, right, name="callboard diff") as runs:
        try:
            for run in (left, right):
                logs.append(await runs.events(run))
        except (CallboardError, NameTooLong) as error:
            missing = error
    if missing is not None:
        code = report(missing, as_json=settings.as_json, settings=settings)
        # What says elsewhere that there is no such run says here that the runs differ.
        return exits.USAGE if code == exits.FAILED else code
    one, other = logs
    found = compare_logs(one, other, config.price_table())
    say(compact(msgspec.to_builtins(found)) if settings.as_json else diff_text(found))
    return exits.OK if found.equal else exits.FAILED
