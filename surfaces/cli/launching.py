"""Starting the processes of children of ``callboard up`` and ``callboard worker``.

All are forks of one process, the fork server. It is a fork of the command, made as soon as the configuration is read.
It imports what performs runs while the NATS server starts, once for all workers, which also share the memory of it. A
process can be forked while it has no threads, event loop or connections: the fork server never has any, and the
command has none before it starts the NATS server.

The fork server does what the command asks for, one request at a time: fork, look whether a child has exited, send a
signal. It exits when the command does. Its children find that out by themselves.
"""

import atexit
import gc
import os
import signal
import socket
import struct
import sys
import traceback
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import NamedTuple, NoReturn, Protocol

from callboard.bus.errors import OperatorError

REPORT_BYTES_MAX = 4096
FAILED = 1

STDERR = 2
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_REQUEST = struct.Struct("=cii")
"""The kind of request, the process, and the signal."""

_REPLY = struct.Struct("=i")

_RUNS = 1 << 30
"""Stands for the exit code of a process that has not exited."""


class ProcessHandle(Protocol):
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

    def __init__(self, process: ProcessHandle, options: int, reports: int) -> None:
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
        # Without the fork server, the child exits because its options end.
        with suppress(ForkServerEnded):
            self.process.kill()
            self.process.wait()
        os.close(self.reports)
        os.close(self._options)
        self.reports = -1


class InheritedDescriptors(NamedTuple):
    """The descriptors of a child: the writing end of its reports, and a bound socket if it has been given one."""

    reports: int
    listener: int | None


class ForkServerEnded(OperatorError):
    """The fork server has exited, so children can no longer be started or watched."""

    def __init__(self) -> None:
        message = "the process from which the workers are forked has exited"
        remedy = "Find out what has killed it, and start the command again."
        super().__init__("process.fork_server_ended", message, remedy=remedy)


class ForkServer:
    """The fork server, as the command sees it. Several threads may use it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._turn = Lock()

    def launch(self, listener: int | None = None) -> Launched:
        """Fork a child. This waits until the fork server has imported what it imports.

        :raises ForkServerEnded: if the fork server has exited
        """
        reports, reporting = os.pipe()
        given, options = os.pipe()
        try:
            pid = self.request(b"F", given=[given, reporting, *([] if listener is None else [listener])])
        except BaseException:
            os.close(reports)
            os.close(options)
            raise
        finally:
            os.close(reporting)
            os.close(given)
        return Launched(_Forked(self, pid), options, reports)

    def request(self, what: bytes, pid: int = 0, number: int = 0, *, given: list[int] | None = None) -> int:
        """Ask the fork server for something; return its reply.

        :raises ForkServerEnded: if the fork server has exited
        """
        with self._turn:
            try:
                socket.send_fds(self._channel, [_REQUEST.pack(what, pid, number)], given or [])
                reply = self._channel.recv(_REPLY.size)
            except OSError:
                reply = b""
        if not reply:
            raise ForkServerEnded
        return _REPLY.unpack(reply)[0]


class _Forked:
    """A child of the fork server."""

    def __init__(self, fork_server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._fork_server = fork_server
        self._returncode: int | None = None

    def poll(self) -> int | None:
        return self._ask(b"P")

    def wait(self) -> int:
        found = self._ask(b"W")
        assert found is not None
        return found

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._returncode is None:
            self._fork_server.request(b"S", self.pid, number)

    def _ask(self, what: bytes) -> int | None:
        if self._returncode is None:
            code = self._fork_server.request(what, self.pid)
            self._returncode = None if code == _RUNS else code
        return self._returncode


@contextmanager
def open_fork_server(
    prepare: Callable[[], object], perform: Callable[[InheritedDescriptors], int]
) -> Generator[ForkServer]:
    """Fork this process, which has no threads yet, and have the fork server for the length of the block.

    The fork server calls ``prepare``. Each of its children calls ``perform``, and exits with what that returns.
    """
    # What has started the command may have closed its standard streams, whose numbers other files would take then. It
    # may also ignore the exits of children, which nobody can wait for then.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _close_all_but(theirs.fileno())
        _perform_and_exit(lambda: _serve(theirs, prepare, perform))
    theirs.close()
    try:
        yield ForkServer(ours)
    finally:
        ours.close()
        os.waitpid(pid, 0)


def _serve(
    channel: socket.socket, prepare: Callable[[], object], perform: Callable[[InheritedDescriptors], int]
) -> int:
    """Fork children until the command closes the channel; return the exit code."""
    # Finalizers and functions that were registered before are the command's. Children call those that imported modules
    # register.
    for finalizer in [*weakref.finalize._registry]:  # pyright: ignore
        finalizer.detach()
    atexit._clear()  # pyright: ignore
    # A signal that reaches a child before its own code runs waits for that.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    prepare()
    # Children share the memory of imported modules for as long as nothing writes to it.
    gc.freeze()
    while True:
        try:
            request, given, _flags, _address = socket.recv_fds(channel, _REQUEST.size, 3)
        except ConnectionResetError:
            return 0  # The command was killed while it waited for a reply.
        if not request:
            return 0
        what, pid, number = _REQUEST.unpack(request)
        match what:
            case b"F":
                reply = os.fork()
                if reply == 0:
                    channel.close()
                    _perform_and_exit(partial(_begin, given, perform))
                for descriptor in given:
                    os.close(descriptor)
            case b"S":
                # A child that has exited keeps its number until the command has looked.
                os.kill(pid, number)
                reply = 0
            case _:
                ended, status = os.waitpid(pid, os.WNOHANG if what == b"P" else 0)
                reply = os.waitstatus_to_exitcode(status) if ended else _RUNS
        channel.sendall(_REPLY.pack(reply))


def _close_all_but(kept: int) -> None:
    """Close what the command has been given besides its standard streams: it is not for the code of workflows."""
    for name in os.listdir("/dev/fd"):
        if int(name) > STDERR and int(name) != kept:
            with suppress(OSError):
                os.close(int(name))


def _begin(given: list[int], perform: Callable[[InheritedDescriptors], int]) -> int:
    """Perform the work of a child: its options are its standard input."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    options, reports, *listener = given
    os.dup2(options, sys.__stdin__.fileno() if sys.__stdin__ is not None else 0)
    os.close(options)
    return perform(InheritedDescriptors(reports, listener[0] if listener else None))


def _perform_and_exit(perform: Callable[[], int]) -> NoReturn:
    """Perform the work of a forked process, and exit without returning to the code of the parent."""
    code = FAILED
    try:
        os.setsid()  # a Ctrl-C in the terminal reaches only the command
        code = perform()
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
