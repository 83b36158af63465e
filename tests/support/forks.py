"""Programs of this project as forks of a process that has made the imports, which take longest.

A fork is a process like any other: it has streams, a folder, an environment and arguments, and dies of signals. What
a fresh start takes (`test_imports`) and the installed program (`test_installing`) are tested without forks.

``python -m tests.support.forks FD ADDRESS`` forks the programs that `tests/support/fork_client.py` asks for at the
socket that it inherits; it ends when its standard input does. Where a fork would start a process for Python tools, that
is a fork as well.
"""

import array
import atexit
import faulthandler
import gc
import importlib
import io
import marshal
import os
import pkgutil
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from callboard.actors.tools import python as python_tools
from callboard.bus.prices import list_prices
from callboard.languages import registry
from callboard.languages.kit import every_kit, kits
from callboard.lib.installed import entry_points, version
from callboard.runtime.worker import providers
from callboard.surfaces import cli
from tests.support.places import ROOT

CLIENT = ROOT / "tests" / "support" / "fork_client.py"
CLI = "callboard.surfaces.cli.main"
PYTHON = Path(sys.executable)

SHARED = "TESTS_FORKS"
"""The variable with the folder of the process that forks for all processes of pytest."""

REAL_HOST = python_tools.HOST
"""The command for a process for Python tools that is not a fork."""

BEFORE_FORK = (
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "anyio._core._subprocesses",
    "callboard.actors.tools.python",
    "callboard.actors.tools.python_host",
    "callboard.client",
    "callboard.embedded",
    "callboard.service.worker.bootstrap",
    "callboard.service.files.run_files",
    "callboard.service.files.validation",
    "encodings.ascii",
    "encodings.utf_8_sig",
    "jsonschema",
    "mcp.client.stdio",
    "mcp.server.mcpserver",
    "pytest",
    "tests.support.worker_process",
)
"""Modules that programs import late, besides the modules of the command line."""


# -- for processes that start programs --------------------------------------------------------------------------------


def python(*program: str) -> list[str]:
    """The command for ``python PROGRAM…``, where that is a script or ``-m`` and a module, or ``-P -m``."""
    return [*_client(_place().address), *program]


def callboard(*args: str) -> list[str]:
    """The command for ``python -m callboard.surfaces.cli.main ARGS…``."""
    return python("-m", CLI, *args)


def python_host() -> list[str]:
    """The command for `REAL_HOST`."""
    return python(*REAL_HOST[1:])


def _client(address: str) -> list[str]:
    return [str(PYTHON), "-I", "-S", str(CLIENT), address]


def programs() -> str:
    """A folder with ``callboard`` and ``python``, to be found first on the PATH."""
    return _place().programs


@dataclass(frozen=True)
class _Place:
    address: str
    programs: str


def share() -> None:
    """Start the process that forks, for this process and all that it starts. No thread is started: this may fork."""
    home, listener = _listen()
    _begin(listener, home)


@cache
def _place() -> _Place:
    """Where the process listens that forks for this one and for those that it starts. It is started at the first
    request, and ends with this process."""
    if SHARED in os.environ:
        return _place_in(Path(os.environ[SHARED]))
    home, listener = _listen()
    threading.Thread(target=_begin_when_asked, args=[listener, home], daemon=True).start()
    return _place_in(home)


def _listen() -> tuple[Path, socket.socket]:
    """Make a folder with the programs, and the socket that they ask."""
    # No `TemporaryDirectory`: a fork of this process that forgets what is to be done at its end would remove it.
    home = Path(tempfile.mkdtemp(prefix="callboard-forks-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ[SHARED] = str(home)
    address = _place_in(home).address
    listener = socket.socket(socket.AF_UNIX)
    # Without a request `_begin` does not close it.
    atexit.register(listener.close)
    listener.bind(address)
    # All processes of pytest may ask at once.
    listener.listen(128)
    fork = shlex.join(_client(address))
    _program(home / "bin" / "callboard", f'exec {fork} {shlex.quote(str(PYTHON.with_name("callboard")))} "$@"')
    # An option, or no argument at all, is for Python itself.
    real = shlex.quote(str(PYTHON))
    _program(home / "bin" / "python", f'case "$1" in *.py|-m) exec {fork} "$@";; *) exec {real} "$@";; esac')
    return home, listener


def _place_in(home: Path) -> _Place:
    return _Place(str(home / "socket"), str(home / "bin"))


def _begin_when_asked(listener: socket.socket, home: Path) -> None:
    select.select([listener], [], [])
    _begin(listener, home)


def _begin(listener: socket.socket, home: Path) -> None:
    with listener:
        command = [sys.executable, "-m", "tests.support.forks", str(listener.fileno()), _place_in(home).address]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    # It ends with its standard input, which this closes.
    atexit.register(process.communicate)


def _program(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


# -- the process that forks -------------------------------------------------------------------------------------------


def main() -> None:
    """Fork until standard input ends; in a fork, be the program."""
    # First, so that it is called last.
    atexit.register(_leave)
    for kit in kits().values():
        registry.language(kit.name)
        if kit.authoring_module:
            importlib.import_module(kit.authoring_module)
    for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
        if module.name != CLI:
            importlib.import_module(module.name)
    for name in BEFORE_FORK:
        importlib.import_module(name)
    python_tools.HOST = (*_client(sys.argv[2]), *python_tools.HOST[1:])
    read_before_fork()
    wanted = _Forks(socket.socket(fileno=int(sys.argv[1]))).serve()
    if wanted is None:
        return
    try:
        _be(wanted)
    except SystemExit as end:
        _ended_with.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    _ended_with.append(0)


def read_before_fork() -> None:
    """Read files that do not change, so that forks need not read them; call it after all imports."""
    list_prices()
    entry_points(group=providers.GROUP)
    version("callboard")
    # The collector leaves the imported objects alone, so that forks need not copy their pages.
    gc.collect()
    gc.freeze()


_ended_with: list[int] = []
"""The exit code of a fork that has ended."""


def _leave() -> None:
    """End at once: to take apart all that was imported, of which a fork has no copy yet, takes longer than most do."""
    if _ended_with:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(_ended_with[0] & 0xFF)


class _Forks:
    """The forks that live, by their client's connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._forks: dict[socket.socket, int] = {}
        self._ended, self._bell = os.pipe()
        os.set_blocking(self._bell, False)

    def serve(self) -> dict[str, Any] | None:
        """Return the order in a fork, and None at the end."""
        signal.set_wakeup_fd(self._bell)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        while True:
            ready, _, _ = select.select([self._listener, self._ended, 0, *self._forks], [], [])
            if 0 in ready:
                for pid in self._forks.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            if self._ended in ready:
                os.read(self._ended, 65_536)
                self._reap()
            for client in [one for one in ready if one in self._forks]:
                # The client has ended.
                os.kill(self._forks[client], signal.SIGKILL)
                self._forget(client)
            if self._listener in ready and (wanted := self._fork()) is not None:
                return wanted

    def _reap(self) -> None:
        while self._forks:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for client in [client for client, its in self._forks.items() if its == pid]:
                _say(client, os.waitstatus_to_exitcode(status))
                self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        del self._forks[client]
        client.close()

    def _fork(self) -> dict[str, Any] | None:
        client, _ = self._listener.accept()
        received = array.array("i")
        length, ancillary, _, _ = client.recvmsg(4, socket.CMSG_LEN(3 * received.itemsize))
        for _level, _type, data in ancillary:
            received.frombytes(data)
        body = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        pid = os.fork()
        if not pid:
            for stream in range(3):
                os.dup2(received[stream], stream)
            self._leave()
        for stream in received:
            os.close(stream)
        if pid:
            self._forks[client] = pid
            _say(client, pid)
            return None
        client.close()
        return marshal.loads(body)

    def _leave(self) -> None:
        """In a fork: close everything that the process that forks has open."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for client in self._forks:
            client.close()
        self._listener.close()
        os.close(self._ended)
        os.close(self._bell)


def _say(client: socket.socket, number: int) -> None:
    try:
        client.sendall(b"%d\n" % number)
    except BrokenPipeError:
        # The client was killed: the next read of its connection shows it.
        return


def _be(wanted: dict[str, Any]) -> None:
    """Become a program, as the interpreter does when it starts with its arguments."""
    os.environ.clear()
    os.environ.update(wanted["environ"])
    os.chdir(wanted["folder"])
    sys.stdin = io.TextIOWrapper(open(0, "rb"), encoding="utf-8")  # noqa: SIM115
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdout = io.TextIOWrapper(open(1, "wb"), encoding=encoding, line_buffering=os.isatty(1))  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True)  # noqa: SIM115
    for stream in wanted["closed"]:
        os.close(stream)
        setattr(sys, ("stdin", "stdout", "stderr")[stream], None)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    program = wanted["program"]
    safe_path = program[0] == "-P"
    program = program[safe_path:]
    theirs = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    # Languages may be installed there.
    kits.cache_clear()
    every_kit.cache_clear()
    if program[0] == "-m":
        # Here every module has been imported already.
        warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)
        sys.path[:1] = theirs if safe_path else [wanted["folder"], *theirs]
        sys.argv = program[1:]
        # Its imports have been done; it is to be executed all the same.
        sys.modules.pop(program[1], None)
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[:1] = [str(Path(program[0]).resolve().parent), *theirs]
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
