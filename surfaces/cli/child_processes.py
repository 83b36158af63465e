"""Child processes of ``callboard up`` and ``callboard worker``: further workers, and who serves HTTP.

One that dies is started again. What a child needs to know, secrets too, comes over its standard input, which stays open
for as long as we live: it hears by its end that we have gone, and goes too. What it has to say goes to our stderr.
Signals reach us alone; we pass on that it is to stop.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc
import structlog
from msgspec import Struct

from callboard.lib.backoff import backoff_s
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import Config
from callboard.surfaces.cli.streams import ignore_lost_output

log = structlog.get_logger(__name__)

STDIN = 0

RESTART_PAUSE_S = 0.2
RESTART_PAUSE_MAX_S = 30.0
"""Pauses before one that died is started again, longer and longer."""

BEGIN_S = 0.5
"""So long we have the machine for ourselves before the first of them: what others have left continues at once, while
starting a process takes most of a second of a core."""

STABLE_S = 10.0
"""A process that has lived for so long may be started again at once."""


class ProcessOptions(Struct, frozen=True):
    """How to stand: ``joins`` at a server that runs already, else over a data directory of our own.

    ``listener`` is the descriptor of a bound socket, which a process that serves it inherits; ``code`` names what
    workers host.
    """

    config: Config
    folders: tuple[Path, ...]
    drain_wait_s: float
    joins: bool
    listener: int | None = None
    code: tuple[str, ...] = ()


class ChildProcess(Struct, frozen=True):
    """A child to be kept: ``perform`` (a function of a module) is what it does until it is told to stop."""

    name: str
    perform: Callable[[ProcessOptions], Awaitable[None]]
    standing: ProcessOptions


class ChildProcesses:
    """The children of this process."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._processes: set[anyio.abc.Process] = set()
        self._stopping = False
        self._gone = anyio.Event()

    def keep(self, child: ChildProcess) -> None:
        """Start a process, and start it again whenever it dies."""
        self._tasks.start_soon(self._keep, child)

    async def stop(self) -> None:
        """Have all of them stop in order, and wait until they have."""
        self._stopping = True
        for process in self._processes:
            _terminate(process)
        while self._processes:
            self._gone = anyio.Event()
            await self._gone.wait()

    async def _keep(self, child: ChildProcess) -> None:
        in_a_row = 0
        await anyio.sleep(BEGIN_S)
        while not self._stopping:
            began = anyio.current_time()
            process = await self._start(child)
            self._processes.add(process)
            if self._stopping:
                # Told while it was being started.
                _terminate(process)
            try:
                await _send_child(process, child)
                returncode = await process.wait()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                with anyio.CancelScope(shield=True):
                    await process.aclose()
                self._processes.discard(process)
                self._gone.set()
            if self._stopping:
                return
            in_a_row = 0 if anyio.current_time() - began >= STABLE_S else in_a_row + 1
            pause_s = backoff_s(in_a_row, RESTART_PAUSE_S, RESTART_PAUSE_MAX_S) if in_a_row else 0.0
            log.error("child process died", name=child.name, returncode=returncode, again_in_s=pause_s)
            await anyio.sleep(pause_s)

    async def _start(self, child: ChildProcess) -> anyio.abc.Process:
        process = await anyio.open_process(
            [sys.executable, "-m", __name__, child.name],
            stdin=subprocess.PIPE,
            stdout=None,
            stderr=None,
            pass_fds=() if child.standing.listener is None else (child.standing.listener,),
            start_new_session=True,  # a Ctrl-C in the terminal is for us
        )
        log.info("child process was started", name=child.name, pid=process.pid)
        return process


def _terminate(process: anyio.abc.Process) -> None:
    with suppress(ProcessLookupError):  # it has ended, and no one has noticed yet
        process.terminate()


async def _send_child(process: anyio.abc.Process, child: ChildProcess) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # its end says what there is to tell
        await process.stdin.send(pickle.dumps(child))


@asynccontextmanager
async def open_child_processes() -> AsyncGenerator[ChildProcesses]:
    """Keep child processes for the length of the block; those that are left at its end are killed."""
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        yield ChildProcesses(tasks)


@asynccontextmanager
async def watch_parent() -> AsyncGenerator[None]:
    """Cancel the block when the parent process has gone."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_at_end_of_input, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()


async def _cancel_at_end_of_input(scope: anyio.CancelScope) -> None:
    await anyio.wait_readable(STDIN)
    log.warning("the parent process has gone")
    scope.cancel()


def main() -> None:
    """Be a child, of a process that says over standard input what there is to do."""
    # A Ctrl-C is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with os.fdopen(os.dup(STDIN), "rb") as given:
        try:
            child: ChildProcess = pickle.load(given)
        except EOFError:
            return  # the parent went before it had said anything
    config = child.standing.config
    with ignore_lost_output():
        logs.configure(config.log_level, config.log_format)
        logs.keep_out(config.secrets())
        anyio.run(child.perform, child.standing)


if __name__ == "__main__":
    main()
