"""Child processes of ``callboard up`` and ``callboard worker``: the workers, the HTTP server and retention.

A child that dies is started again. The parent writes the child's configuration, with its secrets, to the child's
standard input and keeps that open: when the parent exits, the input ends and the child exits too. A child logs to the
parent's stderr. Signals reach only the parent, which terminates its children.

A child reports to its parent through a pipe, one byte at a time (`report`): that it is ready, that it cannot work, and
that its event loop still runs. The parent kills a child whose loop has stopped, because code in C can hold a process in
such a way that it obeys nothing else.
"""

import os
import pickle
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex

import anyio
import anyio.abc
import structlog
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from callboard.lib.backoff import backoff_s
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import Config
from callboard.surfaces.cli.launching import ForkServer, InheritedDescriptors, Launched, ProcessHandle
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.streams import ignore_lost_output

log = structlog.get_logger(__name__)

STDIN = 0

RESTART_PAUSE_S = 0.2
RESTART_PAUSE_MAX_S = 30.0
"""First and longest pause before a dead child is started again."""

STABLE_S = 10.0
"""A child that has run for at least this long is started again without a pause."""

BEAT_S = LOOK_S = 1.0
SILENT_LOOKS = 30
"""How often a child reports that its loop runs, and how often the parent looks. After so many looks without a report
the child is killed; by then, other workers have taken its runs over (``ack_wait_s``). Looks are counted, instead of
time, because parent and child may have been suspended together."""

EXIT_LOOK_S = 0.02
"""Pause between the end of a child's reports and the next look at whether it has exited."""

STOP_WAIT_S = 10.0
"""How much longer than its effects a child may take to stop, before it is killed."""

MARK_BYTES = 3
"""Length of the random part of a worker's name."""

READY, REFUSED, BEAT = b"R", b"X", b"."
"""The reports of a child: it is ready, or waits for other code; it cannot work, and has printed why; its loop runs."""


class ProcessOptions(Struct, frozen=True):
    """Options of a worker process and its children.

    ``joins`` says that the server runs elsewhere; otherwise it is ours, over the data directory. ``listener`` is the
    descriptor of a bound socket, which the HTTP child inherits; ``code`` names the Python workflows to host, and
    ``kept`` has those that were unpacked from the log: what to load, and the folder. With ``reloads``, the workers
    start again when the code has changed; the one that ``registers`` registers the code. ``server_up_at`` is when the
    embedded server became ready, on the clock of event loops, if the parent runs it. ``mark`` is the end of a worker's
    name.
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
    server_up_at: float | None = None
    mark: str = ""
    settings: Settings = Settings()


class ChildProcess(Struct, frozen=True):
    """A child process: it runs ``perform``, a function of a module, until it is terminated."""

    name: str
    perform: Callable[[ProcessOptions], Awaitable[None]]
    process_options: ProcessOptions


class SupervisedChild:
    """A child that is kept. ``started`` is set when it is ready for the first time, or has failed before.

    ``refused`` is its exit code if it cannot work, for which it has printed the reason; it is not started again.
    """

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.refused: int | None = None


Died = Callable[[ChildProcess, int], Awaitable[None]]


async def _report_nothing(_child: ChildProcess, _pid: int) -> None:
    """Used if nobody is told that a child has died."""


class ChildProcesses:
    """The children of this process. ``died`` is called when one has died, before it is started again."""

    def __init__(self, tasks: anyio.abc.TaskGroup, fork_server: ForkServer, died: Died = _report_nothing) -> None:
        self._tasks = tasks
        self._fork_server = fork_server
        self._died = died
        self._processes: dict[ProcessHandle, ChildProcess] = {}
        self._restarting: set[ProcessHandle] = set()
        self._restarted = anyio.Event()
        self._stopping = False
        self._gone = anyio.Event()

    def keep(self, child: ChildProcess) -> SupervisedChild:
        """Start a child, and start it again whenever it dies."""
        kept = SupervisedChild()
        self._tasks.start_soon(self._keep, child, kept)
        return kept

    def restart(self, perform: Callable[[ProcessOptions], Awaitable[None]]) -> None:
        """Terminate the children that run this function, and start them again at once, also those that have died."""
        for process, child in self._processes.items():
            if child.perform is perform:
                self._restarting.add(process)
                process.terminate()
        self._restarted.set()
        self._restarted = anyio.Event()

    async def stop(self, effects_wait_s: float) -> None:
        """Terminate all children, and wait until they have exited. Kill those that take much longer than
        ``effects_wait_s``, which is how long running effects may finish."""
        self._stopping = True
        for process in self._processes:
            process.terminate()
        with anyio.move_on_after(effects_wait_s + STOP_WAIT_S) as waiting:
            await self._wait_gone()
        if waiting.cancelled_caught:
            for process, child in self._processes.items():
                log.error("child process does not stop, killing it", name=child.name, pid=process.pid)
                process.kill()
            await self._wait_gone()

    async def _wait_gone(self) -> None:
        while self._processes:
            self._gone = anyio.Event()
            await self._gone.wait()

    async def _keep(self, child: ChildProcess, kept: SupervisedChild) -> None:
        in_a_row = 0
        while not self._stopping:
            began = anyio.current_time()
            launched = await to_thread.run_sync(self._fork_server.launch, child.process_options.listener)
            process = launched.process
            # Each process has a name of its own.
            child = replace(child, process_options=replace(child.process_options, mark=token_hex(MARK_BYTES)))
            self._processes[process] = child
            log.info("child process was started", name=child.name, pid=process.pid)
            if self._stopping:
                # `stop` was called while the child was starting.
                process.terminate()
            try:
                returncode = await _attend(launched, child, kept)
            finally:
                launched.end()
                del self._processes[process]
                self._gone.set()
            if launched.has_refused and not kept.started.is_set():
                kept.refused = returncode
                kept.started.set()
                return
            if self._stopping:
                return
            await self._died(child, process.pid)
            if process in self._restarting:
                self._restarting.discard(process)
                in_a_row = 0
                continue
            in_a_row = 0 if anyio.current_time() - began >= STABLE_S else in_a_row + 1
            pause_s = backoff_s(in_a_row, RESTART_PAUSE_S, RESTART_PAUSE_MAX_S) if in_a_row else 0.0
            log.error("child process died", name=child.name, returncode=returncode, again_in_s=pause_s)
            with anyio.move_on_after(pause_s):
                await self._restarted.wait()


async def _attend(launched: Launched, child: ChildProcess, kept: SupervisedChild) -> int:
    """Send a child its options, note its reports, and kill it if they stay away after they have begun; return its exit
    code."""
    process, has_begun, silent = launched.process, False, 0
    await to_thread.run_sync(launched.send, pickle.dumps(child))
    while process.poll() is None:
        said = await _wait_reports(launched)
        has_begun = has_begun or bool(said)
        # A debugger may hold a child in which code is developed.
        silent = silent + 1 if has_begun and said is None and not child.process_options.reloads else 0
        if silent == SILENT_LOOKS:
            why = "its event loop is held, by code in C for example, or the process was stopped"
            log.error("child process is silent, killing it", name=child.name, pid=process.pid, why=why)
            process.kill()
        _note(said, launched, kept)
    _note(launched.read(), launched, kept)
    return process.wait()


async def _wait_reports(launched: Launched) -> bytes | None:
    """Wait a while for reports of a child; return them, empty if it is exiting, and None if there are none."""
    with anyio.move_on_after(LOOK_S):
        await anyio.wait_readable(launched.reports)
    if (said := launched.read()) == b"":
        await anyio.sleep(EXIT_LOOK_S)
    return said


def _note(said: bytes | None, launched: Launched, kept: SupervisedChild) -> None:
    launched.has_refused = launched.has_refused or REFUSED in (said or b"")
    if READY in (said or b""):
        kept.started.set()


@asynccontextmanager
async def open_child_processes(fork_server: ForkServer, died: Died = _report_nothing) -> AsyncGenerator[ChildProcesses]:
    """Keep child processes for the length of the block; at its end the remaining ones are killed."""
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        yield ChildProcesses(tasks, fork_server, died)


@asynccontextmanager
async def watch_parent() -> AsyncGenerator[None]:
    """Cancel the block when the parent process has exited."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_at_end_of_input, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()


_reporting = -1
"""The pipe to the parent, in a child."""


def report(what: bytes) -> None:
    """Report to the parent, if this process is a child."""
    if _reporting >= 0:
        # If the parent is stopped and the pipe is full, one more report says nothing new.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(_reporting, what)


@asynccontextmanager
async def reporting_life() -> AsyncGenerator[None]:
    """Report during the block that the event loop runs."""

    async def beat() -> None:
        while True:
            report(BEAT)
            await anyio.sleep(BEAT_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        yield
        tasks.cancel_scope.cancel()


async def _cancel_at_end_of_input(scope: anyio.CancelScope) -> None:
    await anyio.wait_readable(STDIN)
    log.warning("the parent process has exited")
    scope.cancel()


def perform_child(inherited: InheritedDescriptors) -> int:
    """Read a `ChildProcess` from standard input, perform it, and return the exit code."""
    global _reporting
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _reporting = inherited.reports
    os.set_inheritable(_reporting, False)
    os.set_blocking(_reporting, False)
    with os.fdopen(os.dup(STDIN), "rb") as given:
        try:
            child: ChildProcess = pickle.load(given)
        except EOFError:
            return 0  # the parent exited before it sent anything
    process_options = replace(child.process_options, listener=inherited.listener)
    config = process_options.config
    with ignore_lost_output():
        logs.configure(config.log_level, config.log_format)
        logs.keep_out(config.secrets())
        try:
            anyio.run(child.perform, process_options)
        except (Exception, BaseExceptionGroup) as error:
            from callboard.surfaces.cli.errors import report as print_error

            settings = process_options.settings
            code = print_error(error, as_json=settings.as_json, settings=settings)
            report(REFUSED)
            return code
    return 0
