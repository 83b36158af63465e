"""The way of a child process's stderr into the structured log, line by line."""

import os
import threading
from typing import Any, BinaryIO, TextIO

LINE_BYTES_MAX = 8192
"""A longer line is logged in pieces."""

LINES_MAX = 10_000
"""What one process may write to the log; the rest is read, so that it never blocks, and dropped."""


def open_stderr(log: Any) -> TextIO:
    """Return the write end of a pipe whose lines go to a structlog logger; the caller closes it after the spawn.

    A daemon thread reads until the last holder is gone: also a grandchild that outlives its parent, which an event
    loop waiting for the end of the pipe would have to wait for.
    """
    read_end, write_end = os.pipe()
    reader = os.fdopen(read_end, "rb")
    threading.Thread(target=_relay, args=(reader, log), name="callboard-tool-stderr", daemon=True).start()
    return os.fdopen(write_end, "w", encoding="utf-8")


def _relay(reader: BinaryIO, log: Any) -> None:
    count = 0
    with reader:
        while line := reader.readline(LINE_BYTES_MAX):
            count += 1
            if count <= LINES_MAX:
                log.info("tool.stderr", line=line.decode("utf-8", "replace").rstrip())
            elif count == LINES_MAX + 1:
                log.warning("tool.stderr.dropped", lines_max=LINES_MAX)
