"""Stdout and stderr of this program, and how it behaves when they can no longer be written.

A loss of stderr is ignored. If the reader of a stdout pipe exits, the command ends quietly. Any other loss of stdout is
an error, because the result of the command is written nowhere else. Prints of steps, which this program performs for
others, go to stderr.
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
    """Stdout cannot be written: a device is full or gone, or it was closed before the program started."""


def guard() -> None:
    """From now on, raise a loss of stdout at the next output, and ignore a loss of stderr."""
    sys.stdout = _wrap_outlet(sys.stdout, _Outlet(_open_file(sys.stdout), patient=False), _Stdout)
    sys.stderr = _wrap_outlet(sys.stderr, _Outlet(_open_file(sys.stderr), patient=True))


@contextmanager
def ignore_lost_output() -> Generator[None]:
    """Continue if stdout or stderr is lost, for the length of the block: further output is dropped.

    :raises StdoutLost: after the block, if stdout was lost for another reason than that its reader exited
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
    if (
        before is not None and file is None and not _is_ours(before)
    ):  # Not a file of the system, as in tests of a command.
        yield None
        return
    outlet = _Outlet(file, patient=True)
    instead = _wrap_outlet(before, outlet, _Stdout if name == "stdout" else io.TextIOWrapper)
    setattr(sys, name, instead)
    try:
        yield outlet
    finally:
        instead.flush()
        setattr(sys, name, before)


def _open_file(stream: Any) -> io.FileIO | None:
    """Return the file that a stream writes to; None if it was closed, or is not a file of the system."""
    try:
        if stream is not None:
            stream.flush()
            return io.FileIO(stream.fileno(), "wb", closefd=False)
    except (AttributeError, OSError):
        return None
    return None


def _is_ours(stream: Any) -> bool:
    return isinstance(getattr(getattr(stream, "buffer", None), "raw", None), _Outlet)


class _Stdout(io.TextIOWrapper):
    """Stdout of this program. A step that it performs writes to stderr instead."""

    def write(self, text: str, /) -> int:
        work = sys.modules.get("callboard.bus.work")  # a light command has no steps, and does not import it
        if work is not None and work.WORK.get() is not None:
            return sys.stderr.write(text)
        return super().write(text)


def _wrap_outlet(stream: Any, outlet: "_Outlet", kind: type[io.TextIOWrapper] = io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a text stream over an outlet, like ``stream``; characters outside its encoding are escaped."""
    encoding, errors = (stream.encoding, stream.errors) if stream is not None else ("utf-8", "strict")
    spelled = "backslashreplace" if errors == "strict" else errors
    at_once = stream is None or stream.line_buffering
    return kind(io.BufferedWriter(outlet), encoding, spelled, line_buffering=at_once)


class _Outlet(io.RawIOBase):
    """A file that drops all output after it is lost; unless it is ``patient``, the loss is raised once."""

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
