"""``callboard up --dev``: workers whose code is loaded again when its files change.

Each load is one of a new process: so no module is left of the code before.
"""

import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from callboard.bus.errors import CallboardError
from callboard.languages.registry import code_language
from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN
from callboard.runtime.client.connection import Connection
from callboard.runtime.hosting.code_loader import LoadedCode, code_changes, find_sources, load, load_kept
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.surfaces.cli.child_processes import READY, ProcessOptions, report
from callboard.surfaces.cli.errors import error_text
from callboard.surfaces.cli.output import say

DIVERGED = "replay.diverged"

RUNS_CHECKED_MAX = 100
"""How many open runs, the newest ones, are replayed with new code."""


@asynccontextmanager
async def reloading(code: Sequence[str], restart: Callable[[], None]) -> AsyncGenerator[None]:
    """Call ``restart`` whenever the code has changed, for the length of the block.

    :raises CallboardError: ``python.code_missing``
    """
    for one in code:
        find_sources(one)

    async def reload() -> None:
        async for _change in code_changes(code):
            say("The code has changed: the workers start again.", err=True)
            restart()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reload)
        yield
        tasks.cancel_scope.cancel()


async def load_or_wait(
    process_options: ProcessOptions, signals: AsyncIterator[signal.Signals]
) -> list[LoadedCode] | None:
    """Load the code of a worker. If it cannot be loaded and is reloaded after changes, wait for the signal to end, and
    return None.

    :raises CallboardError: if it cannot be loaded, and is not reloaded
    """
    try:
        _host_kept(process_options)
        return [load(one) for one in process_options.code]
    except CallboardError as error:
        if not process_options.reloads:
            raise
        if process_options.registers:
            say(f"{error_text(error)}\nNo runs are performed until the code is corrected.", err=True)
        report(READY)
    async for _first in signals:
        break
    return None


def _host_kept(process_options: ProcessOptions) -> None:
    """Load earlier versions of code. They are not registered: names keep referring to the code of today.

    :raises CallboardError: if one cannot be loaded
    """
    for target, folder in process_options.kept:
        bundle = load_kept(target, folder)
        names = ", ".join(bundle.definitions)
        say(f"Hosting the kept code {bundle.digest[:HASH_DIGITS_SHOWN]}: {names}", err=True)


async def register_code(connection: Connection, code: Sequence[str], bundles: Sequence[LoadedCode]) -> None:
    """Register the code of this worker, print what it hosts, and which open runs cannot continue with it."""
    for target, bundle in zip(code, bundles, strict=True):
        try:
            await register_bundle(connection, bundle)
        except CallboardError as error:
            say(error_text(error), err=True)
        names = ", ".join(bundle.definitions)
        say(f"Hosting {target} with the code {bundle.digest[:HASH_DIGITS_SHOWN]}: {names}", err=True)
    if bundles:
        await _say_diverging(connection)


async def _say_diverging(connection: Connection) -> None:
    """Print which open runs do not follow the code of this process."""
    from callboard.service.operations.replay_all import Location, replay_all
    from callboard.surfaces.cli.runs import find_runs, parse_question

    config = connection.config
    # A run that has not ended has no time of its end to compare.
    question = parse_question(f"language={code_language()} and not ended>1970-01-02")
    runs = (await find_runs(connection, question))[-RUNS_CHECKED_MAX:]
    for one in await replay_all(Location(config, config.tenant), runs, 1, lambda _more: None):
        if one.code == DIVERGED:
            text = "cannot continue with this code, and gets the status waiting:code when it has to"
            say(f"Run {one.run} {text}: {one.message}", err=True)
