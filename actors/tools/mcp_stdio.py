"""The pipes of an MCP server: a program that is started, and JSON-RPC in lines of its stdin and stdout.

This replaces the SDK's own transport, which accepts lines of any length, in a time that grows with the square of the
length, and which waits forever after a byte that is not UTF-8. A line that is not a message is passed on as an error,
so that it can be counted; a line that is too long ends the session. When the transport is closed, the program is asked
to end as the specification requires (MCP specification, *Lifecycle*, "Shutdown"): by the end of its stdin, then with
all its processes by SIGTERM, then by SIGKILL. None of its processes outlives it (`callboard.actors.programs`).
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TextIO

import anyio
import structlog
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from callboard.actors.programs.program import Program
from callboard.actors.tools.mcp_lines import UnreadableLine, messages_of

GRACE_S = 2.0
"""How long a program may take to end after its stdin is closed, and again after each signal."""

FLUSH_S = 0.5
"""How long the messages that are being sent may take when the session is closed."""

LARGE_BYTES = 1024 * 1024
"""A longer message is read in a thread: all other tasks wait for the event loop."""

_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

_log: Any = structlog.get_logger("callboard.tools.mcp")

Heard = SessionMessage | Exception


@asynccontextmanager
async def start_server(
    command: Sequence[str], env: Mapping[str, str], stderr: TextIO, line_bytes_max: int
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Heard], MemoryObjectSendStream[SessionMessage]]]:
    """Start a server for the length of the block; yield the stream of its messages and the stream to it.

    The server gets ``env`` in addition to the variables that every program needs.

    :raises OSError: if the program cannot be started
    """
    program: Program | None = None
    inherited = {**get_default_environment(), **env}
    with anyio.CancelScope(shield=True):  # a cancelled spawn would leak the process
        program = await Program.start(command, env=inherited, stderr=stderr)
    assert program is not None, "a shielded spawn either raises or returns"
    to_session, said = anyio.create_memory_object_stream[Heard](0)
    told, to_server = anyio.create_memory_object_stream[SessionMessage](0)
    is_sent = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, program.stdout, to_session, line_bytes_max)
        tasks.start_soon(_tell, program.stdin, to_server, to_session, is_sent)
        try:
            yield said, told
        finally:
            with anyio.CancelScope(shield=True):
                # No messages are read or written from here on, so that the rest is discarded.
                said.close()
                told.close()
                with anyio.move_on_after(FLUSH_S):
                    await is_sent.wait()
                await _stop(program)
            tasks.cancel_scope.cancel()


async def _listen(stdout: ByteReceiveStream, session: MemoryObjectSendStream[Heard], line_bytes_max: int) -> None:
    """Pass each line on as a message; the session ends with the pipe, and later output is discarded."""
    pieces: list[bytes] = []
    size = 0
    with suppress(*_BROKEN):
        async with session:
            async for chunk in stdout:
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    for one in await _read(b"".join([*pieces, end])):
                        await session.send(one)
                    pieces, size = [], 0
                pieces.append(rest)
                size += len(rest)
                if size > line_bytes_max:
                    _log.warning("tool.mcp.line_too_long", line_bytes_max=line_bytes_max)
                    return
    # A program that is blocked while it writes could not end.
    with suppress(*_BROKEN):
        async for _ in stdout:
            continue


async def _read(line: bytes) -> Sequence[Heard]:
    try:
        messages = await to_thread.run_sync(messages_of, line) if len(line) > LARGE_BYTES else messages_of(line)
    except UnreadableLine as error:
        return [error]
    return [SessionMessage(message) for message in messages]


async def _tell(
    stdin: ByteSendStream,
    messages: MemoryObjectReceiveStream[SessionMessage],
    session: MemoryObjectSendStream[Heard],
    is_sent: anyio.Event,
) -> None:
    """Send each message as a line; when the pipe is closed, the session ends."""
    try:
        async with messages:
            async for one in messages:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send(text.encode("utf-8", "replace") + b"\n")
    except _BROKEN:
        await session.aclose()
    finally:
        is_sent.set()


async def _stop(program: Program) -> None:
    """Have a program end: by the end of its stdin, by SIGTERM, and then with all its processes by SIGKILL."""
    with suppress(*_BROKEN):
        await program.stdin.aclose()
    with anyio.move_on_after(GRACE_S):
        await program.wait()
    program.terminate()
    with anyio.move_on_after(GRACE_S):
        await program.wait()
    await program.end()
