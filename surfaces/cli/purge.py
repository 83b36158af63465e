"""``callboard purge``: take runs out of the log."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import NAME_ONE, all_option, where_option
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@where_option
@all_option
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@click.option("--by", metavar="NAME", help="Who says so; kept with the id.")
@click.option("--reason", metavar="TEXT", default="", help="Why; kept with the id.")
@settings_options
def purge(
    settings: Settings,
    run: str | None,
    question: str | None,
    everything: bool,
    yes: bool,
    by: str | None,
    reason: str,
) -> None:
    """Remove RUN from the log, with its child runs: events, large values, its start and its commands.

    A removed run cannot be restored, and its id is not used again. Runs in progress stay, and so do runs that share
    events with a fork. `--where 'ended>90d'` selects runs that ended more than 90 days ago.
    """
    if sum((run is not None, question is not None, everything)) != 1:
        raise click.UsageError(NAME_ONE)
    import anyio

    from callboard.bus.nats.purge import Gone
    from callboard.surfaces.cli.bulk import Many
    from callboard.surfaces.cli.purge_action import purge_many
    from callboard.surfaces.cli.settings import configured

    whom = run if run is not None else Many(question, yes, None)
    code = anyio.run(purge_many, whom, yes, Gone(by=by, reason=reason), configured(settings), settings)
    click.get_current_context().exit(code)
