"""Sweeping: killing the processes of programs whose keeper was killed before it could do so."""

import os
import signal
import sys
from pathlib import Path

from callboard.actors.programs.keeper import MARK, name_of, status_of

_MARK = f"{MARK}=".encode()


def sweep() -> list[int]:
    """Kill the processes on this machine whose keeper is gone; return their ids. Blocks.

    Processes of other users, and of other PID namespaces, are left alone. On other systems than Linux, nothing is done.
    """
    if sys.platform != "linux":
        return []
    swept: list[int] = []
    namespace = os.stat("/proc/self/ns/pid").st_ino
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (keeper := _keeper_of(folder)) and _has_gone(keeper, namespace):
            try:
                os.kill(int(folder.name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended by now, or runs as another user
            swept.append(int(folder.name))
    return swept


def _keeper_of(folder: Path) -> str:
    """Return the name of the keeper of a process; empty if it has none or may not be inspected."""
    try:
        environment = (folder / "environ").read_bytes()
    except OSError:
        return ""
    for variable in environment.split(b"\0"):
        if variable.startswith(_MARK):
            return variable.removeprefix(_MARK).decode("utf-8", "replace")
    return ""


def _has_gone(keeper: str, namespace: int) -> bool:
    pid, _, rest = keeper.partition(".")
    if not pid.isdecimal() or rest.rpartition(".")[2] != str(namespace):
        return False
    try:
        # A zombie, which no process has waited for yet, is gone as well.
        return name_of(int(pid)) != keeper or status_of(int(pid))[0] in "ZX"
    except OSError:
        return True
