"""Starting the processes of children of ``callboard up`` and ``callboard worker``.

The first worker is forked as soon as the configuration is read: it needs neither a new Python nor the imports that were
made by then, and imports the rest while the server starts. That is possible only before the command has threads, an
event loop and connections. All other children, and a worker that is started again, are new Python processes.
"""

import atexit
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Protocol

PROGRAM = "callboard.surfaces.cli.child_processes"
"""The module that children run."""

REPORT_BYTES_MAX = 4096
FAILED = 1


class Process(Protocol):
    """A process, as `subprocess.Popen` has it."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Launched:
    """The process of a child. It reads its options from the pipe ``options`` and writes to ``reports``.

    ``has_refused`` says whether it has reported that it cannot work.
    """

    def __init__(self, process: Process, options: int, reports: int) -> None:
        self.process = process
        self._options = options
        self.reports = reports
        self.has_refused = False
        os.set_blocking(reports, False)

    def send(self, options: bytes) -> None:
        """Send the child its options. The pipe stays open: its end says that the parent has exited."""
        with suppress(BrokenPipeError):  # it has died; the caller notes its exit
            while options:
                options = options[os.write(self._options, options) :]

    def read(self) -> bytes | None:
        """Return what the child has reported since the last time; None if that is nothing, empty after its end."""
        try:
            return os.read(self.reports, REPORT_BYTES_MAX)
        except BlockingIOError:
            return None

    def end(self) -> None:
        """Kill the process if it still runs, and close what is open to it. Harmless if that was done before."""
        if self.reports < 0:
            return
        self.process.kill()
        self.process.wait()
        os.close(self.reports)
        os.close(self._options)
        self.reports = -1


def launch(name: str, listener: int | None = None) -> Launched:
    """Start a new Python as the process of a child."""
    reports, reporting = os.pipe()
    given, options = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, name, str(reporting)],
            stdin=given,
            pass_fds=(reporting,) if listener is None else (reporting, listener),
            start_new_session=True,  # a Ctrl-C in the terminal reaches only the parent
        )
    except BaseException:
        os.close(reports)
        os.close(options)
        raise
    finally:
        os.close(reporting)
        os.close(given)
    return Launched(process, options, reports)


@contextmanager
def forked(perform: Callable[[int], int]) -> Generator[Launched]:
    """Fork this process, which has no threads yet: the child calls ``perform`` with the writing end of its reports, and
    exits with what that returns. It is killed if it still runs after the block."""
    reports, reporting = os.pipe()
    given, options = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reports)
        os.close(options)
        os.dup2(given, sys.__stdin__.fileno() if sys.__stdin__ is not None else 0)
        os.close(given)
        _perform_and_exit(perform, reporting)
    os.close(reporting)
    os.close(given)
    launched = Launched(_Forked(pid), options, reports)
    try:
        yield launched
    finally:
        launched.end()


def _perform_and_exit(perform: Callable[[int], int], reporting: int) -> None:
    """Perform the work of a forked child, and exit without returning to the parent's code."""
    code = FAILED
    try:
        os.setsid()
        # What was registered before is the parent's.
        atexit._clear()  # pyright: ignore
        code = perform(reporting)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()  # pyright: ignore
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)


class _Forked:
    """A process that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._returncode: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        found = self._wait(0)
        assert found is not None
        return found

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, options: int) -> int | None:
        if self._returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid == self.pid:
                self._returncode = os.waitstatus_to_exitcode(status)
        return self._returncode
