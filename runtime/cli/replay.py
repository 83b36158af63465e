"""``callboard replay``: run the interpreter over a run's log again."""

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@click.option("--at", "at", metavar="N", type=click.IntRange(1), help="Stop behind event N and show the state there.")
@settings_options
def replay(settings: Settings, run: str, at: int | None) -> None:
    """Run the interpreter over the log of RUN again, and verify that it asks for what was recorded.

    Nothing is executed and nothing is written. A difference is shown with both sides, and the exit code is 1.
    """
    import anyio

    from callboard.runtime.cli.replaying import replay_run
    from callboard.runtime.cli.settings import configured

    anyio.run(replay_run, run, at, configured(settings), settings)
