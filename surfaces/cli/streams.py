"""Streams: stdout and stderr of this program, and what becomes of it when they take nothing any longer.

Nothing hangs on whether stderr is heard. Whoever reads our stdout from a pipe may leave: that ends a command quietly.
Any other loss of stdout is an error, for what the command has come to stands nowhere else.
"""

import errno
import io
import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import click


class StdoutLost(OSError):
    """Stdout takes nothing: a device is full or gone, or it was closed before we began."""


def guard() -> None:
    """Have a loss of stdout raised where something is said, and one of stderr ignored, as long as the process lives."""
    sys.stdout = _wrap_outlet(sys.stdout, _Outlet(_open_file(sys.stdout), patient=False))
    sys.stderr = _wrap_outlet(sys.stderr, _Outlet(_open_file(sys.stderr), patient=True))


@contextmanager
def ignore_lost_output() -> Generator[None]:
    """Continue without those who hear us, for the length of the block: what is said then goes nowhere.

    :raises StdoutLost: after the block, if stdout was lost otherwise than by a reader who left
    """
    with ExitStack() as stack:
        outlets = [stack.enter_context(_replace_stream(name)) for name in ("stdout", "stderr")]
        try:
            yield
        except click.exceptions.Exit:
            _flush_stdout(outlets[0])
            raise
        _flush_stdout(outlets[0])


def _flush_stdout(outlet: "_Outlet | None") -> None:
    sys.stdout.flush()
    if outlet is not None and isinstance(outlet.lost, StdoutLost):
        raise outlet.lost


@contextmanager
def _replace_stream(name: str) -> "Generator[_Outlet | None]":
    before: Any = getattr(sys, name)
    file = _open_file(before)
    if before is not None and file is None and not _is_ours(before):  # None of the system's, as in tests of a command.
        yield None
        return
    outlet = _Outlet(file, patient=True)
    instead = _wrap_outlet(before, outlet)
    setattr(sys, name, instead)
    try:
        yield outlet
    finally:
        instead.flush()
        setattr(sys, name, before)


def _open_file(stream: Any) -> io.FileIO | None:
    """What our own stream writes to; None if it was closed before we began, or is none of the system's."""
    try:
        if stream is not None:
            stream.flush()
            return io.FileIO(stream.fileno(), "wb", closefd=False)
    except (AttributeError, OSError):
        return None
    return None


def _is_ours(stream: Any) -> bool:
    return isinstance(getattr(getattr(stream, "buffer", None), "raw", None), _Outlet)


def _wrap_outlet(stream: Any, outlet: "_Outlet") -> io.TextIOWrapper:
    """Text over an outlet, as that of ``stream`` is; what its encoding does not know is spelled out."""
    encoding, errors = (stream.encoding, stream.errors) if stream is not None else ("utf-8", "strict")
    spelled = "backslashreplace" if errors == "strict" else errors
    at_once = stream is None or stream.line_buffering
    return io.TextIOWrapper(io.BufferedWriter(outlet), encoding, spelled, line_buffering=at_once)


class _Outlet(io.RawIOBase):
    """A file that takes everything once it is lost; unless it is ``patient``, that is raised the first time."""

    def __init__(self, file: io.FileIO | None, patient: bool) -> None:
        self._file = file
        self._is_patient = patient
        self.lost: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return super().fileno() if self._file is None else self._file.fileno()

    def isatty(self) -> bool:
        return self._file is not None and self._file.isatty()

    def write(self, data: Any, /) -> int | None:
        if self.lost is None:
            try:
                if self._file is None:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                return self._file.write(data)
            except (BrokenPipeError, ConnectionResetError) as error:
                self.lost = error
            except OSError as error:
                self.lost = StdoutLost(error.errno, error.strerror)
            if not self._is_patient:
                raise self.lost
        return memoryview(data).nbytes
