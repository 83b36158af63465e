"""What a child process prints: line by line into the structured log, and its end kept, to be told with a failure."""

import os
import re
import select
import threading
from collections.abc import Callable
from typing import Any, TextIO

from callboard.actors.tools.failures import last_lines

LINE_BYTES_MAX = 8192
"""A longer line is logged in pieces."""

LINES_MAX = 10_000
"""What one process may write to the log; the rest is read, so that it never blocks, and dropped."""

PRINTED_CHARS_MAX = 4_000
"""How much of what a process has printed is told with a failure, and so recorded: the end of it."""

KEPT_BYTES_MAX = 64 * 1024
"""How much of it is kept: so much more than is told that a secret cut in two at its beginning is never told."""

PIPE_BYTES = 64 * 1024
"""What a pipe holds at most, as a rule: who has read as much has read all that had been written."""

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and other orders to a terminal."""

Redact = Callable[[str], str]
"""Replaces secrets in a text."""


class Printed:
    """What one process prints; made by `open_stderr`.

    A thread relays it to the log. Whoever wants to tell what was printed reads what the thread has not come to yet:
    what a process printed before it answered, or died, is in the pipe by then.
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
        """Return the end of what was printed behind a position, without secrets and colours. May block for a moment."""
        self._read()
        with self._lock:
            dropped = self._bytes - len(self._kept)
            text = bytes(self._kept[max(0, position - dropped) :]).decode("utf-8", "replace")
        if position < dropped:
            text = text.partition("\n")[2]
        return last_lines(_CONTROL.sub("", redact(text)), PRINTED_CHARS_MAX)

    def relay(self) -> None:
        """Read until the last holder of the other end is gone, be it a grandchild that outlives its parent."""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while not self._ended:
            poll.poll()
            self._read()
        with self._lock:
            os.close(self._read_end)

    def _read(self) -> None:
        """Take what is in the pipe, and log the lines that it completes."""
        with self._lock:
            lines = self._taken()
        for line in lines:
            self._lines += 1
            if self._lines <= LINES_MAX:
                self._log.info("tool.stderr", line=line.decode("utf-8", "replace").rstrip())
            elif self._lines == LINES_MAX + 1:
                self._log.warning("tool.stderr.dropped", lines_max=LINES_MAX)

    def _taken(self) -> list[bytes]:
        lines: list[bytes] = []
        taken = 0
        while taken < PIPE_BYTES and not self._ended:
            try:
                chunk = os.read(self._read_end, PIPE_BYTES)
            except BlockingIOError:
                break
            taken += len(chunk)
            self._ended = not chunk
            lines += self._completed(chunk)
        return lines

    def _completed(self, chunk: bytes) -> list[bytes]:
        """Keep a chunk; return the lines that end in it, the last one at the end of all."""
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

    Returns its write end, which the caller closes after the spawn, and what is printed to it.
    """
    read_end, write_end = os.pipe()
    printed = Printed(read_end, log)
    # A thread: an event loop would have to wait for the end of the pipe, that is, for grandchildren.
    threading.Thread(target=printed.relay, name="callboard-tool-stderr", daemon=True).start()
    return os.fdopen(write_end, "w", encoding="utf-8"), printed
