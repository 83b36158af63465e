"""``callboard forget``: destroy the key that runs are encrypted with."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@settings_options
def forget(settings: Settings, name: str, yes: bool) -> None:
    """Destroy the key NAME: what runs that were started with `--encryption-key NAME` have said is lost permanently.

    That they ran, when, and what became of them stays readable, in the log and in every copy of it.
    """
    import anyio

    from callboard.surfaces.cli.forget_action import forget_key
    from callboard.surfaces.cli.settings import configured

    code = anyio.run(forget_key, name, yes, configured(settings), settings)
    click.get_current_context().exit(code)
