"""Child processes of ``callboard up`` and ``callboard worker``: more workers, the HTTP server and retention.

A child that dies is started again. The parent writes the child's configuration, with its secrets, to the child's
standard input and keeps that open: when the parent exits, the input ends and the child exits too. A child logs to the
parent's stderr. Signals reach only the parent, which terminates its children.
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
"""First and longest pause before a dead child is started again."""

BEGIN_S = 0.5
"""Pause before the first child starts. Starting a process takes most of a second of a core; until then, runs that other
workers left behind continue in the parent."""

STABLE_S = 10.0
"""A child that has run for at least this long is started again without a pause."""


class ProcessOptions(Struct, frozen=True):
    """Options of a worker process and its children.

    ``joins`` says that the server runs elsewhere; otherwise it is ours, over the data directory. ``listener`` is the
    descriptor of a bound socket, which the HTTP child inherits; ``code`` names the Python workflows to host, and
    ``kept`` has those that were unpacked from the log: what to load, and the folder. With ``reloads``, all workers are
    child processes, which start again when the code has changed; ``registers`` says that a child registers its code.
    """

    config: Config
    folders: tuple[Path, ...]
    drain_wait_s: float
    joins: bool
    listener: int | None = None
    code: tuple[str, ...] = ()
    kept: tuple[tuple[str, Path], ...] = ()
    reloads: bool = False
    registers: bool = False


class ChildProcess(Struct, frozen=True):
    """A child process: it runs ``perform``, a function of a module, until it is terminated."""

    name: str
    perform: Callable[[ProcessOptions], Awaitable[None]]
    process_options: ProcessOptions


class ChildProcesses:
    """The children of this process."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._processes: dict[anyio.abc.Process, ChildProcess] = {}
        self._restarting: set[anyio.abc.Process] = set()
        self._restarted = anyio.Event()
        self._stopping = False
        self._gone = anyio.Event()

    def keep(self, child: ChildProcess) -> None:
        """Start a child, and start it again whenever it dies."""
        self._tasks.start_soon(self._keep, child)

    def restart(self, perform: Callable[[ProcessOptions], Awaitable[None]]) -> None:
        """Terminate the children that run this function, and start them again at once, also those that have died."""
        for process, child in self._processes.items():
            if child.perform is perform:
                self._restarting.add(process)
                _terminate(process)
        self._restarted.set()
        self._restarted = anyio.Event()

    async def stop(self) -> None:
        """Terminate all children, and wait until they have exited."""
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
            self._processes[process] = child
            if self._stopping:
                # `stop` was called while the child was starting.
                _terminate(process)
            try:
                await _send_child(process, child)
                returncode = await process.wait()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                with anyio.CancelScope(shield=True):
                    await process.aclose()
                del self._processes[process]
                self._gone.set()
            if self._stopping:
                return
            if process in self._restarting:
                self._restarting.discard(process)
                in_a_row = 0
                continue
            in_a_row = 0 if anyio.current_time() - began >= STABLE_S else in_a_row + 1
            pause_s = backoff_s(in_a_row, RESTART_PAUSE_S, RESTART_PAUSE_MAX_S) if in_a_row else 0.0
            log.error("child process died", name=child.name, returncode=returncode, again_in_s=pause_s)
            with anyio.move_on_after(pause_s):
                await self._restarted.wait()

    async def _start(self, child: ChildProcess) -> anyio.abc.Process:
        process = await anyio.open_process(
            [sys.executable, "-m", __name__, child.name],
            stdin=subprocess.PIPE,
            stdout=None,
            stderr=None,
            pass_fds=() if child.process_options.listener is None else (child.process_options.listener,),
            start_new_session=True,  # a Ctrl-C in the terminal reaches only the parent
        )
        log.info("child process was started", name=child.name, pid=process.pid)
        return process


def _terminate(process: anyio.abc.Process) -> None:
    with suppress(ProcessLookupError):  # it has already exited
        process.terminate()


async def _send_child(process: anyio.abc.Process, child: ChildProcess) -> None:
    assert process.stdin is not None
    with suppress(
        anyio.BrokenResourceError, anyio.ClosedResourceError
    ):  # the child has died; its exit is handled by the caller
        await process.stdin.send(pickle.dumps(child))


@asynccontextmanager
async def open_child_processes() -> AsyncGenerator[ChildProcesses]:
    """Keep child processes for the length of the block; at its end the remaining ones are killed."""
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        yield ChildProcesses(tasks)


@asynccontextmanager
async def watch_parent() -> AsyncGenerator[None]:
    """Cancel the block when the parent process has exited."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_at_end_of_input, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()


async def _cancel_at_end_of_input(scope: anyio.CancelScope) -> None:
    await anyio.wait_readable(STDIN)
    log.warning("the parent process has exited")
    scope.cancel()


def main() -> None:
    """Run as a child: read a `ChildProcess` from standard input and perform it."""
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with os.fdopen(os.dup(STDIN), "rb") as given:
        try:
            child: ChildProcess = pickle.load(given)
        except EOFError:
            return  # the parent exited before it sent anything
    config = child.process_options.config
    with ignore_lost_output():
        logs.configure(config.log_level, config.log_format)
        logs.keep_out(config.secrets())
        anyio.run(child.perform, child.process_options)


if __name__ == "__main__":
    main()
