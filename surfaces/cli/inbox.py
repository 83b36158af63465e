"""``callboard inbox``: who is waited for."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import LISTED_MAX
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.option("--kind", "-k", type=click.Choice(["question", "pause", "tool", "signal"]), help="Only these.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, LISTED_MAX),
    default=200,
    show_default=True,
    help="Look into so many runs for what is no question.",
)
@click.option("--links", is_flag=True, help="Give each question an address at which anybody who has it can answer.")
@click.option("--for", "by", metavar="NAME", default="", help="Who is to answer by these links: it stands in the log.")
@settings_options
def inbox(settings: Settings, kind: str | None, limit: int, links: bool, by: str) -> None:
    """List what waits for someone, in runs of every language: for what, since when, until when, and what answers it.

    Questions to people, pauses, tools that a caller answers, signals. The oldest come first.
    """
    import anyio

    from callboard.surfaces.cli.inbox_action import list_inbox
    from callboard.surfaces.cli.settings import configured

    anyio.run(list_inbox, configured(settings), settings, kind, limit, (by or "link") if links else None)
