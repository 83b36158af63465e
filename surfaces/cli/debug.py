"""``callboard debug``: the Python debugger in the frames of a past run."""

from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli.options import code_option, host_code
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.bus.events import Event
    from callboard.bus.subjects import RunRef


@click.command()
@click.argument("run")
@click.option("--at", "at", metavar="N", type=click.IntRange(1), help="The event to stop after; default: the last.")
@click.option(
    "--task", metavar="TASK", default="", help="The task to begin with: its path, or its number; default: the first."
)
@code_option
@settings_options
def debug(settings: Settings, run: str, at: int | None, task: str, code: tuple[str, ...]) -> None:
    """Open pdb, the Python debugger, in the frames of RUN at event N, for a Python workflow whose --code is given.

    The run is replayed to that event. Of pdb's commands, those that inspect work: w, u, d, p, pp, l, ll, a. `task`
    lists the tasks, and `task TASK` goes to another. What is typed cannot perform effects or I/O, and nothing is
    written. Commands may also come from stdin.
    """
    import anyio

    from callboard.service.files.run_files import source
    from callboard.surfaces.cli.debugger import open_debugger
    from callboard.surfaces.cli.stacks import secrets_for

    if settings.as_json:
        raise click.UsageError("debug is a dialogue; `callboard show RUN --at N --json` writes the stacks as JSON")
    config = load_config(settings)
    host_code(code)

    async def read_run() -> "tuple[RunRef, list[Event]]":
        async with source(config, run, name="callboard debug") as runs:
            return await runs.run(run)

    ref, events = anyio.run(read_run)
    open_debugger(ref, events, secrets_for(config), events[-1].n if at is None else at, task)
