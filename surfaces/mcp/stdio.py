"""The transport over stdin and stdout: one JSON message per line, and nothing else on stdout.

While it is open, file descriptor 1 is stderr and 0 is empty, so that neither a print nor a child process can disturb
the conversation. No thread blocks on input or on a slow reader, since a signal could not interrupt it.
"""

import os
import select
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

READ_BYTES = 64 * 1024

LINE_BYTES_MAX = 16 * 1024 * 1024
"""A longer message ends the conversation: it cannot be intended."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def divert_stdio() -> AsyncGenerator[tuple[int, int]]:
    """Reserve stdin and stdout for the length of the block; yield descriptors to read and write."""
    reads, writes = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    try:
        yield reads, writes
    finally:
        for ours, standard in ((reads, 0), (writes, 1)):
            os.dup2(ours, standard)
            os.close(ours)


@asynccontextmanager
async def open_stdio(reads: int, writes: int) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Exchange messages over two descriptors; the incoming stream ends with the input, or when the output is closed."""
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, reads, to_server)
        tasks.start_soon(_write, writes, from_server, tasks.cancel_scope)
        async with incoming, outgoing:
            yield incoming, outgoing
        tasks.cancel_scope.cancel()


async def _read(source: int, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    pending = bytearray()
    async with to_server:
        while len(pending) <= LINE_BYTES_MAX:
            # A regular file cannot be waited for, since it is always ready.
            with suppress(PermissionError):
                await anyio.wait_readable(source)
            read = os.read(source, READ_BYTES)
            *lines, rest = read.split(b"\n")
            for line in lines:
                pending += line
                if pending.strip():
                    await to_server.send(_message(bytes(pending)))
                pending.clear()
            pending += rest
            if not read:
                return


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(
    sink: int, from_server: MemoryObjectReceiveStream[SessionMessage], conversation: anyio.CancelScope
) -> None:
    async with from_server:
        async for message in from_server:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                await _write_all(sink, line)
            except BrokenPipeError:
                conversation.cancel()
                return


async def _write_all(sink: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        with suppress(PermissionError):
            await anyio.wait_writable(sink)
        # As many bytes as a ready pipe accepts without blocking.
        view = view[os.write(sink, view[: select.PIPE_BUF]) :]
