"""The program of the sandbox: a process of the worker that forks others for each request.

Started as ``python -I -m callboard.actors.sandbox.program isolated|bounded``, with an empty environment. It never
changes its state: a child of it reads the request and supervises its own child, which runs the code in the sandbox;
both end with the answer. So a request costs two forks, starts with every module loaded that code may import, and sees
nothing of another request. A frame is a length of four bytes and as many bytes of content:

- when it starts, the program reports what it can do: ``{"isolated": true | false, "why": "…"}``;
- a request is two frames: ``{"wall_s", "cpu_s", "memory_bytes", "output_bytes"}``, and the work for the child;
- an answer is two frames: ``{"ending": "answered" | "timeout" | "cpu" | "too_large" | "crashed", "signal": …}``, and
  the output of the child, which this program has not checked.

Only the standard library is imported here.
"""

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from callboard.actors.sandbox import request_loop, walls

LENGTH_BYTES = 4

SLACK_BYTES = 64 * 1024
"""The size allowed to an answer in addition to its results."""

CHUNK_BYTES = 256 * 1024

NO_MEMORY = b'{"failure":{"code":"code.memory","message":"there was no memory left"}}'
"""Prepared in advance, because building it would need memory."""

_PROBE = {"cpu_s": 5.0, "memory_bytes": 1024**3}


def main() -> None:
    """Serve until the worker closes the pipe."""
    isolated = sys.argv[1] == "isolated"
    why = _probe() if isolated else "it was not asked for"
    send(json.dumps({"isolated": isolated and not why, "why": why}).encode())
    if isolated and why:
        return
    gc.freeze()
    while _one_more(isolated):
        pass


def _one_more(isolated: bool) -> bool:
    """Have a child serve the next request; return whether there was one.

    Requests and answers never enter the memory of this process, so the next child does not inherit them.
    """
    select.select([0], [], [])
    parent = os.getpid()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        walls.end_with_parent(parent)
        limits, request = receive(), receive()
        if limits is not None and request is not None:
            _serve(json.loads(limits), request, isolated)
            os._exit(0)
    finally:
        os._exit(1)


def send(frame: bytes) -> None:
    """Write a frame to the worker."""
    left = memoryview(len(frame).to_bytes(LENGTH_BYTES) + frame)
    while left:
        left = left[os.write(1, left) :]


def receive() -> bytes | None:
    """Read a frame of the worker; return None when the worker has closed the pipe."""
    prefix = _read(LENGTH_BYTES)
    return None if prefix is None else _read(int.from_bytes(prefix))


def _read(size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        chunk = os.read(0, min(CHUNK_BYTES, size - len(found)))
        if not chunk:
            return None
        found += chunk
    return bytes(found)


def _serve(limits: Mapping[str, Any], request: bytes, isolated: bool) -> None:
    child, answer = _fork_child(limits, lambda: request_loop.answer_request(request, limits["output_bytes"]), isolated)
    ending, written = _watch_child(answer, limits)
    os.close(answer)
    # A child that has answered is ending anyway; one that has closed its stdout and lingers is not waited for.
    os.kill(child, signal.SIGKILL)
    if ending == "abandoned":
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ending == "answered" and -code in (signal.SIGPROF, signal.SIGXCPU):
        ending = "cpu"
    elif ending == "answered" and code != 0:
        ending = "crashed"
    send(json.dumps({"ending": ending, "signal": max(0, -code)}).encode())
    send(written if ending == "answered" else b"")


def _watch_child(answer: int, limits: Mapping[str, Any]) -> tuple[str, bytes]:
    """Read the output of a child until it ends, has written too much, or its time is over."""
    deadline = time.monotonic() + limits["wall_s"]
    written = bytearray()
    poller = select.poll()
    poller.register(answer, select.POLLIN)
    poller.register(0, select.POLLIN)
    while True:
        ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            return "timeout", b""
        if any(descriptor == 0 for descriptor, _ in ready):
            # The worker sends nothing while it waits: it has died, or gives up the request.
            return "abandoned", b""
        chunk = os.read(answer, CHUNK_BYTES)
        if not chunk:
            return "answered", bytes(written)
        written += chunk
        if len(written) > limits["output_bytes"] + SLACK_BYTES:
            return "too_large", b""


def _fork_child(limits: Mapping[str, Any], work: Callable[[], bytes], isolated: bool) -> tuple[int, int]:
    """Fork a child that does some work in the sandbox; return its id and the descriptor of its stdout."""
    parent = os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _perform(parent, writer, limits, work, isolated)
    os.close(writer)
    return child, reader


def _perform(
    parent: int, writer: int, limits: Mapping[str, Any], work: Callable[[], bytes], isolated: bool
) -> NoReturn:
    try:
        os.dup2(writer, 1)
        os.close(0)
        os.closerange(2, max(64, writer + 1))
        os.environ.clear()
        walls.end_with_parent(parent)
        walls.bound(limits["memory_bytes"], limits["cpu_s"])
        if isolated:
            walls.close()
        left = memoryview(work())
        while left:
            left = left[os.write(1, left) :]
        os._exit(0)
    except MemoryError:
        os.write(1, NO_MEMORY)
        os._exit(0)
    except walls.NoWalls as error:
        os.write(1, str(error).encode())
    finally:
        os._exit(1)


# -- checking the walls ------------------------------------------------------------------------------------------------


def _probe() -> str:
    """Have a child try to get through the walls; return why they do not hold, or the empty text."""
    child, answer = _fork_child(_PROBE, _try_walls, isolated=True)
    said = os.read(answer, CHUNK_BYTES).decode()
    os.close(answer)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if (status, said) == (0, "holds") else said or f"an isolated process ended with {status}"


def _try_walls() -> bytes:
    """Do what code may do, then what it may not."""
    request_loop.answer_request(
        b'{"source":"lambda x: [0] * 100000","function":null,"inputs":[0],"wrap":false}', 1_000_000
    )
    try:
        os.close(os.dup(1))
    except PermissionError:
        return b"holds"
    return b"the filter of system calls lets through what it must not"


if __name__ == "__main__":
    main()
