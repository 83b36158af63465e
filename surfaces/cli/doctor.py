"""``callboard doctor``: check a deployment."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@settings_options
@click.pass_context
def doctor(ctx: click.Context, settings: Settings) -> None:
    """Check the store and the security of this deployment, and say what to do about what is wrong.

    Run it with the configuration of the workers. The exit code is 1 if there is an error; warnings do not count.
    """
    import anyio

    from callboard.surfaces.cli.doctor_report import report
    from callboard.surfaces.cli.settings import configured

    ctx.exit(anyio.run(report, configured(settings), settings))
