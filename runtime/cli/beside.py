"""Processes beside ours: what ``callboard up`` and ``callboard worker`` keep, further workers and who serves HTTP.

One that dies is started anew.
What such a process needs to know, secrets too, comes over its standard input, which stays open for as long as we live:
it hears by its end that we have gone, and goes too. What it has to say goes to our stderr. Signals reach us alone; we
pass on that it is to stop.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc
import structlog

from callboard.bus.backoff import backoff_s
from callboard.runtime.cli.unheard import unheard
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import Config

log = structlog.get_logger(__name__)

STDIN = 0

RESTART_PAUSE_S = 0.2
RESTART_PAUSE_MAX_S = 30.0
"""Pauses before one that died is started anew, longer and longer."""

STABLE_S = 10.0
"""A process that has lived for so long may be started anew at once."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How to stand: ``joins`` at a server that runs already, else over a data directory of our own.

    ``listener`` is the descriptor of a bound socket, which a process that serves it inherits.
    """

    config: Config
    folders: tuple[Path, ...]
    drain_wait_s: float
    joins: bool
    listener: int | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """A process to be kept: ``perform`` (a function of a module) is what it does, until a signal or its end comes."""

    name: str
    perform: Callable[[Standing], Awaitable[None]]
    standing: Standing


class Company:
    """The processes beside ours."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._processes: set[anyio.abc.Process] = set()
        self._stopping = False
        self._gone = anyio.Event()

    def keep(self, beside: Beside) -> None:
        """Start a process, and start it anew whenever it dies."""
        self._tasks.start_soon(self._keep, beside)

    async def stop(self) -> None:
        """Have all of them stop in order, and wait until they have."""
        self._stopping = True
        for process in self._processes:
            process.terminate()
        while self._processes:
            self._gone = anyio.Event()
            await self._gone.wait()

    async def _keep(self, beside: Beside) -> None:
        in_a_row = 0
        while not self._stopping:
            began = anyio.current_time()
            process = await self._start(beside)
            self._processes.add(process)
            try:
                await _hand_over(process, beside)
                returncode = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                with anyio.CancelScope(shield=True):
                    await process.aclose()
                self._processes.discard(process)
                self._gone.set()
            if self._stopping:
                return
            in_a_row = 0 if anyio.current_time() - began >= STABLE_S else in_a_row + 1
            pause_s = backoff_s(in_a_row, RESTART_PAUSE_S, RESTART_PAUSE_MAX_S) if in_a_row else 0.0
            log.error("process beside ours died", name=beside.name, returncode=returncode, again_in_s=pause_s)
            await anyio.sleep(pause_s)

    async def _start(self, beside: Beside) -> anyio.abc.Process:
        process = await anyio.open_process(
            [sys.executable, "-m", __name__, beside.name],
            stdin=subprocess.PIPE,
            stdout=None,
            stderr=None,
            pass_fds=() if beside.standing.listener is None else (beside.standing.listener,),
            start_new_session=True,  # a Ctrl-C in the terminal is for us
        )
        log.info("process beside ours was started", name=beside.name, pid=process.pid)
        return process


async def _hand_over(process: anyio.abc.Process, beside: Beside) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # its end tells what there is to tell
        await process.stdin.send(pickle.dumps(beside))


@asynccontextmanager
async def open_company() -> AsyncGenerator[Company]:
    """Keep processes for the length of the block; those that are left at its end are killed."""
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        yield Company(tasks)


@asynccontextmanager
async def lifeline() -> AsyncGenerator[None]:
    """Cancel the block when the process that has started this one has gone."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_at_end_of_input, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()


async def _cancel_at_end_of_input(scope: anyio.CancelScope) -> None:
    await anyio.wait_readable(STDIN)
    log.warning("the process that started this one has gone")
    scope.cancel()


def main() -> None:
    """Be a process beside another, which says over standard input what there is to do."""
    # Until we know how to stop, stopping is nothing but that.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(STDIN), "rb") as given:
        beside: Beside = pickle.load(given)
    config = beside.standing.config
    with unheard():
        logs.configure(config.log_level, config.log_format)
        anyio.run(beside.perform, beside.standing)


if __name__ == "__main__":
    main()
