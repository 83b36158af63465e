"""``callboard diff``: the differences between two runs."""

from collections.abc import Sequence

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation


@click.command()
@click.argument("left", metavar="RUN")
@click.argument("right", metavar="RUN")
@operation
async def diff(call: OperationCall, left: str, right: str) -> int:
    """Show the differences between two runs: definition, start, sources, path, nodes and their results, status.

    Durations, tokens and costs are shown too, but never count as a difference. For a fork and its origin, only events
    after the fork are compared. The exit code is that of diff(1): 0 without a difference, 1 with one, 2 if a run does
    not exist.
    """
    from callboard.bus.errors import CallboardError
    from callboard.bus.events import Event
    from callboard.bus.subjects import NameTooLong
    from callboard.projections.comparison.diff import compare_logs
    from callboard.service.files.run_files import source
    from callboard.surfaces.cli.diff_text import diff_text
    from callboard.surfaces.cli.errors import report

    logs: list[Sequence[Event]] = []
    missing: CallboardError | NameTooLong | None = None
    async with source(call.config, left, right, name=call.name) as runs:
        try:
            for run in (left, right):
                logs.append(await runs.events(run))
        except (CallboardError, NameTooLong) as error:
            missing = error
    if missing is not None:
        code = report(missing, as_json=call.settings.as_json, settings=call.settings)
        # Exit code 1 means here that the runs differ, so an unknown run is wrong usage.
        return exits.USAGE if code == exits.FAILED else code
    one, other = logs
    found = compare_logs(one, other, call.config.price_table())
    call.answer(found, diff_text(found))
    return exits.OK if found.equal else exits.FAILED
