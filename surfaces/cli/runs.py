"""``callboard runs``: the list of runs."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import LISTED_MAX
from callboard.surfaces.cli.settings import Settings, settings_options

STATUSES = (
    *("accepted", "running", "waiting", "paused", "cancelling"),
    *(f"waiting:{what}" for what in ("human", "tool", "timer", "signal", "child", "code")),
    *("diverged", "quarantined", "completed", "failed", "cancelled", "expired"),
)


@click.command(epilog=exits.EXIT_CODES)
@click.option("--status", "-s", type=click.Choice(STATUSES), help="Only runs in this status.")
@click.option("--where", "-w", "question", metavar="QUESTION", help="Only runs for which this holds.")
@click.option(
    "--limit", "-n", type=click.IntRange(1, LISTED_MAX), default=20, show_default=True, help="At most so many."
)
@settings_options
def runs(settings: Settings, status: str | None, question: str | None, limit: int) -> None:
    """List runs, the newest first. --status waiting lists all that wait, for whatever it is.

    QUESTION joins tests with and, or, not and parentheses: 'status=failed and tag.customer=acme and started<2h',
    "text~'connection refused'", which is looked for in inputs, outputs and errors.
    """
    import anyio

    from callboard.surfaces.cli.run_selection import wanted
    from callboard.surfaces.cli.run_table import list_runs
    from callboard.surfaces.cli.settings import configured

    anyio.run(list_runs, configured(settings), settings, wanted(question, status=status), limit)
