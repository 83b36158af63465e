"""``callboard cost``: what runs have cost."""

from typing import Literal

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.option(
    "--by",
    type=click.Choice(("definition", "day", "model")),
    default="definition",
    show_default=True,
    help="What sums are told apart by; the day (UTC) is that of a run's end.",
)
@click.option("--where", "-w", "question", metavar="QUESTION", help="Only runs for which this holds.")
@settings_options
def cost(settings: Settings, by: Literal["definition", "day", "model"], question: str | None) -> None:
    """Sum up what runs that have ended have cost, each with its child runs.

    QUESTION is as of `callboard runs`: 'ended<7d and tag.customer=acme'.
    """
    import anyio

    from callboard.surfaces.cli.run_selection import wanted
    from callboard.surfaces.cli.run_table import list_costs
    from callboard.surfaces.cli.settings import configured

    anyio.run(list_costs, configured(settings), settings, wanted(question), by)
