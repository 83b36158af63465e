"""One child process that runs Python tools, seen from the worker."""

import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio import to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from callboard.actors.programs.program import Program
from callboard.actors.tools.python_frames import (
    LENGTH_BYTES,
    Answer,
    Call,
    Describe,
    Logged,
    Reply,
    Reported,
    Setup,
    encode_frame,
    frame_length,
    reply_decoder,
)
from callboard.actors.tools.stderr import Printed, Redact, open_stderr

EXIT_GRACE_S = 2.0
"""How long a process may take to end before it is killed; longer than the host's own grace period."""

HOST = (sys.executable, "-P", "-m", "callboard.actors.tools.python_host")
"""The command that starts a host process."""

FRAME_BYTES_SLACK = 1024 * 1024
"""The size allowed to a frame in addition to a tool's output, for specs, messages and tracebacks."""

_BROKEN = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class HostDied(Exception):
    """The process ended in the middle of a request; the text says how, ``printed`` is its output."""

    def __init__(self, how: str, host: "HostProcess") -> None:
        super().__init__(how)
        self.host = host
        self.printed = ""


class HostProcess:
    """A running host. It takes one request at a time; after a timeout or a cancellation, only `kill` may be called."""

    def __init__(self, program: Program, frame_bytes_max: int, printed: Printed) -> None:
        self._program = program
        self._stdin = program.stdin
        self._frames = BufferedByteReceiveStream(program.stdout)
        self._frame_bytes_max = frame_bytes_max
        self._printed = printed
        self._asked_at = 0

    @classmethod
    async def start(cls, setup: Setup, env: Mapping[str, str], output_bytes_max: int, log: Any) -> "HostProcess":
        """Start a host; its stderr and stdout go to the log.

        :raises OSError: if the process cannot be started
        """
        host: HostProcess | None = None
        writer, printed = open_stderr(log)
        with writer as stderr, anyio.CancelScope(shield=True):  # a cancelled spawn would leak the process
            program = await Program.start(HOST, env=env, stderr=stderr)
            host = cls(program, output_bytes_max + FRAME_BYTES_SLACK, printed)
        assert host is not None, "a shielded spawn either raises or returns"
        try:
            await host._stdin.send(encode_frame(setup))
        except _BROKEN as error:
            raise HostDied(await host.reap(), host) from error
        except BaseException:
            await host.kill()
            raise
        return host

    @property
    def alive(self) -> bool:
        return self._program.returncode is None

    async def ask(self, request: Describe | Call, heard: Callable[[Reported | Logged], None]) -> Answer:
        """Send a request and wait for its answer; earlier events are passed to ``heard``.

        :raises HostDied: if the process ends, or sends something that is not a frame, before it has answered
        """
        if isinstance(request, Call):
            self._asked_at = self._printed.position
        try:
            await self._stdin.send(encode_frame(request))
            while True:
                match await self._receive():
                    case Reported() | Logged() as event:
                        heard(event)
                    case answer:
                        return answer
        except _BROKEN as error:
            raise HostDied(await self.reap(), self) from error

    async def printed_text(self, redact: Redact) -> str:
        """Return the end of the text that the process has printed since its last request, without secrets."""
        said = ""
        with anyio.CancelScope(shield=True):
            said = await to_thread.run_sync(self._printed.since, self._asked_at, redact)
        return said  # noqa: RET504 - the scope may swallow what is in it, as far as types go

    async def _receive(self) -> Reply:
        size = frame_length(await self._frames.receive_exactly(LENGTH_BYTES))
        if size > self._frame_bytes_max:
            await self.kill()
            raise HostDied(f"sent a frame of {size} bytes, more than {self._frame_bytes_max}", self)
        return reply_decoder.decode(await self._frames.receive_exactly(size))

    async def reap(self) -> str:
        """Wait for a process that is ending, killing it if it lingers, and return how it ended."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(EXIT_GRACE_S):
                await self._program.wait()
            await self.kill()
        return _ending(self._program.returncode)

    async def kill(self) -> None:
        """Kill the process and its children, and release its pipes."""
        await self._program.end()

    async def close(self) -> None:
        """Let an idle process end by closing its pipe; kill it if it does not."""
        with anyio.CancelScope(shield=True):
            with suppress(*_BROKEN):
                await self._stdin.aclose()
            await self.reap()


def _ending(returncode: int | None) -> str:
    if returncode is None:
        return "could not be reaped"
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"was killed by signal {-returncode}"
