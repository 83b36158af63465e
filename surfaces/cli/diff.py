"""``callboard diff``: the differences between two runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config


@click.command(epilog=exits.EXIT_CODES)
@click.argument("left", metavar="RUN")
@click.argument("right", metavar="RUN")
@settings_options
def diff(settings: Settings, left: str, right: str) -> None:
    """Show the differences between two runs: definition, start, sources, path, nodes and their results, status.

    Durations, tokens and costs are shown too, but never count as a difference. For a fork and its origin, only events
    after the fork are compared. The exit code is that of diff(1): 0 without a difference, 1 with one, 2 if a run does
    not exist.
    """
    import anyio

    code = anyio.run(compare_runs, left, right, load_config(settings), settings)
    click.get_current_context().exit(code)


async def compare_runs(left: str, right: str, config: "Config", settings: Settings) -> int:
    """Print the differences between two runs, or why one cannot be read; return the exit code.

    :raises OperatorError: if the server cannot be used
    """
    import msgspec

    from callboard.bus.errors import CallboardError
    from callboard.bus.events import Event
    from callboard.bus.subjects import NameTooLong
    from callboard.projections.comparison.diff import compare_logs
    from callboard.service.files.run_files import source
    from callboard.service.operations.results import compact
    from callboard.surfaces.cli.diff_text import diff_text
    from callboard.surfaces.cli.errors import report

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
        # Exit code 1 means here that the runs differ, so an unknown run is wrong usage.
        return exits.USAGE if code == exits.FAILED else code
    one, other = logs
    found = compare_logs(one, other, config.price_table())
    say(compact(msgspec.to_builtins(found)) if settings.as_json else diff_text(found))
    return exits.OK if found.equal else exits.FAILED
