"""``callboard diff``: what differs between two runs."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


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

    from callboard.surfaces.cli.diff_action import compare_runs
    from callboard.surfaces.cli.settings import configured

    code = anyio.run(compare_runs, left, right, configured(settings), settings)
    click.get_current_context().exit(code)
