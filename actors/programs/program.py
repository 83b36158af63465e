"""A program that a worker has started to carry an effect out, with all processes that the program starts itself.

Between the worker and the program is a keeper (`callboard.actors.programs.keeper`). It ends all of them when the worker
says so, when the program ends, and when the worker dies, however it dies.
"""

import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import structlog
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from callboard.actors.programs import keeper
from callboard.actors.programs.orphan_cleanup import sweep

KEEPER = str(Path(keeper.__file__).resolve())
"""The file of the keeper."""

END_S = keeper.END_S + 5.0
"""How long a keeper may take to end."""

ENDED = b"ended"
"""The message of a keeper when no process of its program is left."""

_log: Any = structlog.get_logger("callboard.programs")


class Program:
    """A running program. However it ends, the caller has to await `end`, which waits until no process of it is left."""

    def __init__(self, process: Process, line: socket.socket) -> None:
        self._process = process
        self._line = line

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: Any = PIPE,
        stdout: Any = PIPE,
        stderr: Any = PIPE,
    ) -> "Program":
        """Start a program in a new session. A cancellation does not interrupt the start, which would leak the process.

        :raises OSError: if the program cannot be started
        """
        program: Program | None = None
        with anyio.CancelScope(shield=True):
            ours, theirs = socket.socketpair()
            locale = str(int("LC_CTYPE" in env))
            kept = [sys.executable, "-I", "-S", KEEPER, str(theirs.fileno()), locale, *command]
            try:
                process = await anyio.open_process(
                    kept, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd,
                    start_new_session=True, pass_fds=[theirs.fileno()],
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            ours.setblocking(False)
            program = cls(process, ours)
            said = await program._read_report(4)
            number = int.from_bytes(said, "big") if said else errno.ECHILD
            if number:
                await program.end()
                raise OSError(number, os.strerror(number), command[0])
        assert program is not None, "a shielded start either raises or returns"
        return program

    @property
    def stdin(self) -> ByteSendStream:
        assert self._process.stdin is not None, "it was started with this pipe"
        return self._process.stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        assert self._process.stdout is not None, "it was started with this pipe"
        return self._process.stdout

    @property
    def stderr(self) -> ByteReceiveStream:
        assert self._process.stderr is not None, "it was started with this pipe"
        return self._process.stderr

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended it; None while it or a descendant lives."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until the program has ended and all processes that it started are killed."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask the program, and all processes that it has started, to end."""
        if self._process.returncode is None:
            self._process.terminate()

    async def end(self) -> None:
        """Kill the remaining processes of the program, and release its pipes."""
        with anyio.CancelScope(shield=True):
            if self._line.fileno() < 0:
                return
            self._line.shutdown(socket.SHUT_WR)
            said = b""
            with anyio.move_on_after(END_S):
                said = await self._read_report(len(ENDED))
                await self._process.wait()
            self._line.close()
            await self._process.aclose()
            if said != ENDED:
                # The keeper was killed from outside.
                swept = await to_thread.run_sync(sweep)
                _log.warning("program.swept", pids=swept)

    async def _read_report(self, size: int) -> bytes:
        """Read what the keeper reports; fewer bytes if the keeper is gone."""
        said = b""
        while len(said) < size:
            try:
                chunk = self._line.recv(size - len(said))
            except BlockingIOError:
                await anyio.wait_readable(self._line)
                continue
            except ConnectionError:
                return said
            if not chunk:
                return said
            said += chunk
        return said
