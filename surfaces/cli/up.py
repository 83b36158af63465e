"""``callboard up`` and ``callboard worker``: keep a worker running, with its own server or at another one."""

import math
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli.options import import_from_option
from callboard.surfaces.cli.settings import Settings, load_config, settings_options
from callboard.surfaces.cli.streams import ignore_lost_output

if TYPE_CHECKING:
    from pathlib import Path

    from callboard.runtime.settings.config import Config
    from callboard.surfaces.cli.child_processes import ProcessOptions
    from callboard.surfaces.cli.launching import ForkServer


DRAIN_WAIT_S = 20.0

WORKERS_MAX = 1_000
"""Upper bound of --workers: more processes are probably a typing error."""


class _Seconds(click.FloatRange):
    """A range of seconds that excludes NaN, which no comparison excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number of seconds", param, ctx) if math.isnan(found) else found


_drain_wait = click.option(
    "--drain-wait",
    metavar="SECONDS",
    type=_Seconds(0, 3600),
    default=DRAIN_WAIT_S,
    show_default=True,
    help="How long running effects may finish when the command stops.",
)
_code = click.option(
    "--code",
    metavar="MODULE|FILE|FOLDER|NAME@DIGEST",
    multiple=True,
    help="Host its Python workflows; may be repeated. NAME@DIGEST is earlier code of a workflow, kept in the log.",
)
_offline = click.option("--offline", is_flag=True, help="Do not fetch sources from the web, whatever a start requests.")
_workers = click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, WORKERS_MAX),
    help="The number of worker processes; default: one per core, at most 4.",
)
_allow_scripts = click.option(
    "--allow-scripts", is_flag=True, help="Accept runs with a scripted model; an embedded server always accepts them."
)


@click.command()
@import_from_option
@_code
@_workers
@_drain_wait
@_allow_scripts
@_offline
@click.option(
    "--dev",
    is_flag=True,
    help="For development: replay each run whenever it rests, and load the code again when its files change.",
)
@settings_options
@click.pass_context
def up(
    ctx: click.Context,
    settings: Settings,
    import_from: tuple[str, ...],
    code: tuple[str, ...],
    workers: int | None,
    drain_wait: float,
    allow_scripts: bool,
    offline: bool,
    dev: bool,
) -> None:
    """Run a server and workers until Ctrl-C or SIGTERM.

    The server is the embedded one over the data directory, unless --nats names another. Other commands find it if they
    use the same data directory. If another command runs the server already, this one joins it, and takes the server
    over when that command exits. Before the command stops, running effects may finish; the next worker continues the
    runs from the log.

    With --dev, code that is not deterministic fails in its first run, and the workers start again when a file of --code
    changes. Open runs continue with the new code if their log allows it, and otherwise wait with status waiting:code.
    """
    flags: dict[str, Any] = {"workers": workers, "allow_scripts": allow_scripts or None, "offline": offline or None}
    if dev:
        flags["always_replay"] = True
    _run_workers(ctx, settings, (import_from, code), drain_wait, flags, reloads=dev)


@click.command()
@import_from_option
@_code
@_workers
@_drain_wait
@_allow_scripts
@_offline
@settings_options
@click.pass_context
def worker(
    ctx: click.Context,
    settings: Settings,
    import_from: tuple[str, ...],
    code: tuple[str, ...],
    workers: int | None,
    drain_wait: float,
    allow_scripts: bool,
    offline: bool,
) -> None:
    """Run workers at a server that runs elsewhere.

    The server is the one that --nats or the configuration names, or else the one that `callboard up` runs over the data
    directory. Any number of workers share the runs. If one dies, the others continue its runs.
    """
    flags = {"workers": workers, "allow_scripts": allow_scripts or None, "offline": offline or None}
    _run_workers(ctx, settings, (import_from, code), drain_wait, flags, joins=True)


def _run_workers(
    ctx: click.Context,
    settings: Settings,
    code: tuple[tuple[str, ...], tuple[str, ...]],
    drain_wait: float,
    flags: dict[str, Any],
    *,
    joins: bool = False,
    reloads: bool = False,
) -> None:
    """Run workers until they are stopped; ``code`` are the folders of tools, and the Python workflows to host.

    With ``reloads``, the workflows are loaded again when their files change.
    """
    with ignore_lost_output():
        config = load_config(settings, level="info", **flags)

        from pathlib import Path

        import anyio

        from callboard.lib.temporary_folders import temporary_folder
        from callboard.runtime.hosting.names import split_kept_name
        from callboard.surfaces.cli.child_processes import ProcessOptions, perform_child
        from callboard.surfaces.cli.launching import open_fork_server

        folders = tuple(Path(folder).absolute() for folder in code[0])
        wanted = [kept for one in code[1] if (kept := split_kept_name(one)) is not None]
        today = tuple(one for one in code[1] if split_kept_name(one) is None)
        with (
            open_fork_server(partial(_import_worker, hosts=bool(code[1])), perform_child) as fork_server,
            temporary_folder() if wanted else nullcontext() as home,
        ):
            kept = anyio.run(_unpack, wanted, home, config) if home is not None else ()
            options = ProcessOptions(
                config, folders, drain_wait, joins, code=today, kept=kept, reloads=reloads, settings=settings
            )
            status = anyio.run(start_workers, options, settings, fork_server)
        ctx.exit(status)


async def _unpack(wanted: list[tuple[str, str]], home: "Path", config: "Config") -> "tuple[tuple[str, Path], ...]":
    """Write the kept sources of workflows into folders; return what to load, and the folder, of each.

    :raises CallboardError: ``python.code_not_kept``
    """
    from callboard.runtime.hosting.kept_code import unpack_code
    from callboard.service.operations.reach import reach

    found: list[tuple[str, Path]] = []
    async with reach(config, reads=True, name="callboard code") as connection:
        for number, (name, digest) in enumerate(wanted):
            folder = home / str(number)
            folder.mkdir()
            found.append((await unpack_code(connection, name, digest, folder), folder))
    return tuple(found)


SUPERVISOR = "callboard.surfaces.cli.worker"
WORKER_PROCESS = "callboard.surfaces.cli.worker_process"
"""The modules that the command, and the fork server for all workers, import while the server starts."""

EVENT_LOOP = "anyio._backends._asyncio"
"""What anyio imports when it first starts an event loop, which the fork server never does."""


def _import_worker(*, hosts: bool) -> None:
    """Import what all workers need; with ``hosts``, what performs workflows in Python too."""
    import_module(WORKER_PROCESS)
    import_module(EVENT_LOOP)
    if hosts:
        from callboard.languages.registry import hosting

        hosting()


async def start_workers(process_options: "ProcessOptions", settings: Settings, fork_server: "ForkServer") -> int:
    """Run workers until a signal arrives and all of them are drained; return the exit code.

    The embedded server starts while the fork server imports what performs runs, and a thread what supervises.

    :raises OperatorError: if the server cannot work
    """
    from callboard.bus.errors import StoreLocked
    from callboard.bus.nats.server.embedded import EmbeddedServer
    from callboard.surfaces.cli.process import importing

    config, server = process_options.config, None
    async with AsyncExitStack() as stack:
        with importing(SUPERVISOR):
            if not process_options.joins and config.nats_url is None:
                # If the store is locked, another process runs the server: this one finds it, or waits for it.
                with suppress(StoreLocked):
                    server = await stack.enter_async_context(EmbeddedServer(config.data_dir, sync=config.sync))
        from callboard.surfaces.cli.worker import run_workers

        return await run_workers(process_options, settings, fork_server, server)
