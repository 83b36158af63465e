"""Processes of this machine: a name for this one, and whether a process with such a name is known to have ended.

A process id alone says neither: it is used again, containers on one machine use the same ones, and so do other
machines. So a name has the host and its boot, the namespace of the id, the id, and when the process began. Copies of a
running virtual machine have the same boot, so each needs a host name of its own. Only Linux says all of that. On other
systems a process has no name, and is not known to have ended.
"""

import os
import re
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

PLACE_BYTES = 8

_PID = re.compile(r"[1-9][0-9]{0,8}")

_STATE, _THREADS, _BEGAN = 0, 17, 19
"""Fields of ``/proc/PID/stat`` after the name (`proc_pid_stat(5)`)."""


def own_process() -> str:
    """Return a name of this process, which no other process has or had; empty if the system cannot tell."""
    return _name_process(os.getpid())


def has_ended(process: str) -> bool:
    """Return whether the process with a name of `own_process` is known to have ended.

    False for one that may still run, because it has no name, or ran on another machine, or in another container.
    """
    place, _, rest = process.partition(".")
    pid, _, began = rest.partition(".")
    if not place or place != _find_place(os.getpid()) or not _PID.fullmatch(pid):
        return False
    try:
        # Unlike ``/proc``, which may hide processes of other users, this finds every process.
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    try:
        fields = _read_status(int(pid))
    except (OSError, IndexError):
        return False
    # A zombie has ended, and is only not yet waited for. That does not hold for its threads, if it has others.
    is_zombie = fields[_STATE] in ("Z", "X") and int(fields[_THREADS]) <= 1
    return is_zombie or fields[_BEGAN] != began


# The id of this process is a parameter, because a fork has another name, and may be in another namespace.


@cache
def _name_process(pid: int) -> str:
    if not (place := _find_place(pid)):
        return ""
    with suppress(OSError, IndexError):
        return f"{place}.{pid}.{_read_status(pid)[_BEGAN]}"
    return ""


@cache
def _find_place(pid: int) -> str:
    """Return an identifier of where the ids and times of processes are counted: the host, its boot, and the namespaces
    of this process; empty if ``/proc`` cannot tell, or is that of another namespace."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        ids = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if ids != [str(pid)]:
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        numbered = os.stat("/proc/self/ns/pid").st_ino
    except (OSError, ValueError):
        return ""
    timed = 0
    with suppress(OSError):  # before Linux 5.6 there is one time for all
        timed = os.stat("/proc/self/ns/time").st_ino
    return blake2b(f"{os.uname().nodename}/{boot}/{numbered}/{timed}".encode(), digest_size=PLACE_BYTES).hexdigest()


def _read_status(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
