"""The output of a child process: logged line by line, with its end kept for failures."""

import os
import re
import select
import threading
from collections.abc import Callable
from typing import Any, TextIO

from callboard.lib.text import last_lines

LINE_BYTES_MAX = 8192
"""A longer line is logged in pieces."""

LINES_MAX = 10_000
"""How many lines of one process are logged; the rest is read, so that the process never blocks, and dropped."""

PRINTED_CHARS_MAX = 4_000
"""How much of the end of a process's output is part of a failure, and so recorded."""

KEPT_BYTES_MAX = 64 * 1024
"""How much of the output is kept: enough that a secret cut in two at the beginning is never part of a failure."""

PIPE_BYTES = 64 * 1024
"""The usual capacity of a pipe: after reading this much, everything written before has been read."""

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and other control sequences of a terminal."""

Redact = Callable[[str], str]
"""Replaces secrets in a text."""


class Printed:
    """The output of one process; made by `open_stderr`.

    A thread relays it to the log. A caller that needs the output first reads what the thread has not read yet: all
    output of a process before its answer, or its death, is in the pipe by then.
    """

    def __init__(self, read_end: int, log: Any) -> None:
        os.set_blocking(read_end, False)
        self._read_end = read_end
        self._log = log
        self._lock = threading.Lock()
        self._line = bytearray()
        self._kept = bytearray()
        self._bytes = 0
        self._lines = 0
        self._ended = False

    @property
    def position(self) -> int:
        """How many bytes have been read so far."""
        return self._bytes

    def since(self, position: int, redact: Redact) -> str:
        """Return the end of the output after a position, without secrets and colours. May block for a moment."""
        self._read()
        with self._lock:
            dropped = self._bytes - len(self._kept)
            text = bytes(self._kept[max(0, position - dropped) :]).decode("utf-8", "replace")
        if position < dropped:
            text = text.partition("\n")[2]
        return last_lines(_CONTROL.sub("", redact(text)), PRINTED_CHARS_MAX)

    def relay(self) -> None:
        """Read until the last holder of the other end is gone, which may be a grandchild that outlives its parent."""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while not self._ended:
            poll.poll()
            self._read()
        with self._lock:
            os.close(self._read_end)

    def _read(self) -> None:
        """Read the content of the pipe, and log the lines that are complete."""
        with self._lock:
            lines = self._take_lines()
        for line in lines:
            self._lines += 1
            if self._lines <= LINES_MAX:
                self._log.info("tool.stderr", line=line.decode("utf-8", "replace").rstrip())
            elif self._lines == LINES_MAX + 1:
                self._log.warning("tool.stderr.dropped", lines_max=LINES_MAX)

    def _take_lines(self) -> list[bytes]:
        lines: list[bytes] = []
        taken = 0
        while taken < PIPE_BYTES and not self._ended:
            try:
                chunk = os.read(self._read_end, PIPE_BYTES)
            except BlockingIOError:
                break
            taken += len(chunk)
            self._ended = not chunk
            lines += self._complete_lines(chunk)
        return lines

    def _complete_lines(self, chunk: bytes) -> list[bytes]:
        """Keep a chunk; return the lines that are complete, including the last one at the end of the pipe."""
        self._bytes += len(chunk)
        self._kept += chunk
        del self._kept[:-KEPT_BYTES_MAX]
        self._line += chunk
        *lines, rest = bytes(self._line).split(b"\n")
        if rest and (self._ended or len(rest) > LINE_BYTES_MAX):
            lines.append(rest)
            rest = b""
        self._line = bytearray(rest)
        return [line[at : at + LINE_BYTES_MAX] for line in lines for at in range(0, max(1, len(line)), LINE_BYTES_MAX)]


def open_stderr(log: Any) -> tuple[TextIO, Printed]:
    """Open a pipe whose lines go to a structlog logger.

    Returns its write end, which the caller closes after the spawn, and the output that is written to it.
    """
    read_end, write_end = os.pipe()
    printed = Printed(read_end, log)
    # A thread: an event loop would have to wait for the end of the pipe, and so for grandchildren.
    threading.Thread(target=printed.relay, name="callboard-tool-stderr", daemon=True).start()
    return os.fdopen(write_end, "w", encoding="utf-8"), printed
