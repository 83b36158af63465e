"""``callboard verify``: look for damage in the store."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.option("--no-values", is_flag=True, help="Do not read the large values, which takes most of the time.")
@settings_options
@click.pass_context
def verify(ctx: click.Context, settings: Settings, no_values: bool) -> None:
    """Read every event of all runs, and every large value, and report what is missing or damaged.

    Nothing is written. The exit code is 1 if something is damaged. `callboard replay --all` checks in addition that
    this version asks for what the log holds.
    """
    import anyio

    from callboard.surfaces.cli.settings import configured
    from callboard.surfaces.cli.store_check import check_store

    ctx.exit(anyio.run(check_store, configured(settings), settings, not no_values))
