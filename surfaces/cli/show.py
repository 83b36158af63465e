"""``callboard show``: how a run stands."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@click.option("--full", is_flag=True, help="Results and output whole, not cut to a line.")
@click.option("--state", is_flag=True, help="Print the state document from which a start can go on (playbooks).")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser too, where `callboard up` serves it.")
@settings_options
def show(settings: Settings, run: str, state: bool, full: bool, opens: bool) -> None:
    """Show the state of RUN: status, nodes, what it waits for, usage, error.

    The exit code is about this command, not about the run.
    """
    from functools import partial

    import anyio

    from callboard.surfaces.cli.settings import configured
    from callboard.surfaces.cli.show_action import show_run

    config = configured(settings)
    anyio.run(partial(show_run, run, config, settings, state=state, full=full))
    if opens:
        from callboard.surfaces.cli.browser import open_run

        open_run(config, run)
