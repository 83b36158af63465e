"""Output that nobody reads: whoever reads our pipe may leave, and what is under way goes on unheard."""

import io
import os
import stat
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def unheard() -> Generator[None]:
    """Let the readers of stdout and stderr leave, for the length of the block: what is said then goes nowhere.

    Only pipes are affected, in which saying something to nobody is an error that would end us.
    """
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            if _is_pipe(stream := getattr(sys, name)):
                stack.enter_context(_patient(name, stream))
        yield


def _is_pipe(stream: Any) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (AttributeError, OSError):  # No stream at all, or one that is none of the system's.
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def _patient(name: str, stream: io.TextIOWrapper) -> Generator[None]:
    stream.flush()
    buffered = io.BufferedWriter(_Pipe(stream.fileno(), "wb", closefd=False))
    instead = io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
    setattr(sys, name, instead)
    try:
        yield
    finally:
        instead.flush()
        setattr(sys, name, stream)


class _Pipe(io.FileIO):
    """A pipe that takes everything, whether somebody reads it or not."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except (BrokenPipeError, ConnectionResetError):
            return memoryview(data).nbytes
