"""One process of the sandbox, seen from the worker: started once, it carries out one request after the other."""

import sys
from collections.abc import Mapping
from subprocess import DEVNULL
from typing import Any

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from callboard.actors.programs.program import Program

LENGTH_BYTES = 4

START_S = 30.0
"""How long a process may take to start: it loads modules, on a machine that may be busy."""

GRACE_S = 5.0
"""How much longer than a request's own time limit an answer may take: the process enforces the limit itself."""

_BROKEN = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class SandboxBroken(Exception):
    """The process does not start, has ended, or does not answer; the text says which."""


class Ended(msgspec.Struct, frozen=True):
    """How the isolated work ended: ``answered``, ``timeout``, ``cpu``, ``too_large`` or ``crashed``."""

    ending: str
    signal: int
    written: bytes = b""


class Sandbox:
    """A running process. It takes one request at a time; after a failure or a cancellation only `kill` is left."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._stdin = program.stdin
        self._frames = BufferedByteReceiveStream(program.stdout)

    @classmethod
    async def start(cls, isolated: bool) -> "Sandbox":
        """Start a process, with an empty environment.

        :raises SandboxBroken: if the process does not start, also because the kernel cannot isolate it
        """
        command = [sys.executable, "-I", "-m", "callboard.actors.sandbox.program"]
        command.append("isolated" if isolated else "bounded")
        program: Program | None = None
        try:
            with anyio.CancelScope(shield=True):  # a cancelled spawn would leak the process
                program = await Program.start(command, stderr=DEVNULL, env={}, cwd="/")
        except OSError as error:
            raise SandboxBroken(f"no process can be started: {error}") from error
        assert program is not None, "a shielded spawn either raises or returns"
        sandbox = cls(program)
        try:
            with anyio.fail_after(START_S):
                hello = msgspec.json.decode(await sandbox._receive())
        except (*_BROKEN, TimeoutError) as error:
            await sandbox.kill()
            raise SandboxBroken("its process does not start here") from error
        except BaseException:
            await sandbox.kill()
            raise
        if isolated and not hello["isolated"]:
            await sandbox.kill()
            raise SandboxBroken(hello["why"])
        return sandbox

    async def ask(self, limits: Mapping[str, Any], request: bytes) -> Ended:
        """Have a request carried out within limits.

        :raises SandboxBroken: if the process does not answer
        """
        try:
            with anyio.fail_after(limits["wall_s"] + GRACE_S):
                await self._send(msgspec.json.encode(limits))
                await self._send(request)
                ended = msgspec.json.decode(await self._receive(), type=Ended)
                return msgspec.structs.replace(ended, written=await self._receive())
        except (*_BROKEN, TimeoutError) as error:
            raise SandboxBroken("its process ended in the middle of a request") from error

    async def kill(self) -> None:
        """Kill the process and its children, and release its pipes."""
        await self._program.end()

    async def _send(self, frame: bytes) -> None:
        await self._stdin.send(len(frame).to_bytes(LENGTH_BYTES) + frame)

    async def _receive(self) -> bytes:
        size = int.from_bytes(await self._frames.receive_exactly(LENGTH_BYTES))
        return await self._frames.receive_exactly(size)
