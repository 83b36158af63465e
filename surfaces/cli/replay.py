"""``callboard replay``: run the interpreter over a run's log again, or over those of all runs."""

from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Since, code_option
from callboard.surfaces.cli.settings import Settings, settings_options

if TYPE_CHECKING:
    import datetime as dt


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option("--at", "at", metavar="N", type=click.IntRange(1), help="Stop behind event N and show the state there.")
@click.option("--all", "everything", is_flag=True, help="Replay all runs of the store, or of an archive.")
@click.option("--since", type=Since(), help="With --all: those accepted since then: so long ago (2h), or an instant.")
@click.option(
    "--where", "-w", "question", metavar="QUESTION", help="With --all: runs of the store for which this holds."
)
@click.option("--definition", "-d", metavar="NAME", help="With --all: only runs of this definition.")
@click.option(
    "--jobs", "-j", metavar="N", type=click.IntRange(1), help="With --all: so many processes; default: cores."
)
@code_option
@settings_options
@click.pass_context
def replay(
    ctx: click.Context,
    settings: Settings,
    run: str | None,
    at: int | None,
    everything: bool,
    since: "dt.datetime | None",
    question: str | None,
    definition: str | None,
    jobs: int | None,
    code: tuple[str, ...],
) -> None:
    """Run the interpreter over the log of RUN again, and verify that it asks for what was recorded.

    Nothing is executed and nothing is written. A difference is shown with both sides, and the exit code is 1. With
    --all every run is verified, and the code is 1 if one of them is not. Runs of workflows in Python are verified
    against the --code that is given, be it that which recorded them or another.
    """
    import anyio

    from callboard.surfaces.cli.settings import configured

    if code:
        from callboard.runtime.hosting.code_loader import load

        for one in code:
            load(one)
    if everything:
        from callboard.surfaces.cli.replaying_all import Chosen, replay_runs

        if at is not None:
            raise click.UsageError("--at is of one run")
        chosen = Chosen(run, since, question, definition, jobs, code)
        ctx.exit(anyio.run(replay_runs, chosen, configured(settings), settings))
    if run is None:
        raise click.UsageError("name a RUN, or say --all")
    if any(given is not None for given in (since, question, definition, jobs)):
        raise click.UsageError("--since, --where, --definition and --jobs go with --all")
    from callboard.surfaces.cli.replay_action import replay_run

    anyio.run(replay_run, run, at, configured(settings), settings)
