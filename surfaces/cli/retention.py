"""``callboard retention``: take out of the log what the rules of the configuration say."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Only show what would go, and what cannot.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@settings_options
def retention(settings: Settings, dry_run: bool, yes: bool) -> None:
    """Carry out the rules of the table `retention` in the configuration once, now.

    `callboard up` and `callboard worker` do so by themselves. Runs that go are purged, and archived before if the rule
    says so; those that continue stay, and those that forks share.
    """
    import anyio

    from callboard.surfaces.cli.retention_action import carry_out
    from callboard.surfaces.cli.settings import configured

    code = anyio.run(carry_out, dry_run, yes, configured(settings), settings)
    click.get_current_context().exit(code)
