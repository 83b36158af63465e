"""``callboard diff``: what differs between two runs."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("left", metavar="RUN")
@click.argument("right", metavar="RUN")
@settings_options
def diff(settings: Settings, left: str, right: str) -> None:
    """Tell what differs between two runs: definition, start, sources, way, nodes and their results, status.

    Durations, tokens and costs are told too, and never make a difference. Of a fork and its origin what lies after
    their parting is told. Ends as diff(1) does: with 0 if nothing differs, with 1 if something does, with 2 if there is
    no such run.
    """
    import anyio

    from callboard.surfaces.cli.diff_action import compare_runs
    from callboard.surfaces.cli.settings import configured

    code = anyio.run(compare_runs, left, right, configured(settings), settings)
    click.get_current_context().exit(code)
