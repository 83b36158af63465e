"""The checks of the contents and the growth of a store: runs, memory and disk; and of clocks and versions."""

import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

from anyio import to_thread

from callboard.bus.events import RunAccepted, RunEnd
from callboard.bus.nats.cooling import count_cold_runs
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api, direct_get
from callboard.bus.nats.server.program import MEMORY_VARIABLE, memory_limit
from callboard.lib.control_group import memory_quota
from callboard.runtime.client.connection import Connection
from callboard.service.operations.doctor.findings import Finding, ok

AREA = "growth"

RUN_BYTES = 1_700
"""The memory of a server at rest for each run, most of it for the subjects of its events."""

FINISHED_MAX = 300_000
"""With more finished runs and no rule that removes them, the memory and the start of the server become a burden."""

BUSY_FACTOR = 4
"""How much more memory a server uses under load than at rest."""

MEMORY_SHARE = 0.8
DISK_SHARE = 0.1
CLOCK_S = 1.0

REMOTE = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"}
"""File systems on which a sync does not mean that the data is on a disk, or is very slow."""

VOLATILE = {"tmpfs", "ramfs"}


async def check_growth(connection: Connection) -> AsyncGenerator[Finding]:
    """Check what the store contains.

    :raises NoAnswer: if the log does not answer
    """
    log = connection.log
    runs, ended = [
        await _count(log, f"{log.subjects.prefix}.run.*.*.*.{kind}") for kind in (RunAccepted.type, RunEnd.type)
    ]
    cold = await count_cold_runs(log, None)
    yield await _contents(log, runs, ended, cold)
    yield _rules(connection, ended)
    yield _memory(connection, runs)
    if connection.server is not None:
        yield await to_thread.run_sync(_disk, Path(connection.config.data_dir))
    yield _clock(log)
    yield _version(connection)


async def _count(log: JetStreamLog, filter: str) -> int:
    messages, pending = await direct_get(log.nc, log.stream, {"next_by_subj": filter, "seq": 1, "batch": 1})
    return len(messages) + pending


async def _contents(log: JetStreamLog, runs: int, ended: int, cold: int) -> Finding:
    prefix = log.subjects.prefix
    state = (await api(log.requests, f"STREAM.INFO.{log.stream}", {})).get("state") or {}
    kinds = {"events": "run", "pieces of large values": "blob", "marks of purged runs": "gone"}
    counts = {kind: await _count(log, f"{prefix}.{subject}.>") for kind, subject in kinds.items()}
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    # The stream has the end of each cold run.
    message = f"{runs:,} runs, of which {max(0, ended - cold):,} have ended, in {state.get('bytes', 0):,} bytes"
    message += f", and {cold:,} runs in cold storage" if cold else ""
    return ok(AREA, "store-contents", f"{message} ({told})" if told else message)


def _rules(connection: Connection, ended: int) -> Finding:
    if connection.config.retention or connection.config.cold is not None:
        return ok(AREA, "store-growth", "rules purge runs that have ended, or move them to cold storage")
    if ended < FINISHED_MAX:
        return ok(AREA, "store-growth", f"no rule removes runs that have ended; {ended:,} are no burden yet")
    message = f"{ended:,} runs have ended, and no rule removes any"
    return Finding(
        AREA, "store-growth", "warning", message, "Add a rule of cold storage or of retention, or purge runs."
    )


def _memory(connection: Connection, runs: int) -> Finding:
    """A server whose memory exceeds the quota of its container is killed."""
    needed = runs * RUN_BYTES * BUSY_FACTOR
    if connection.server is None:
        message = f"under load the server needs about {_mb(needed)} for {runs:,} runs"
        return ok(AREA, "server-memory", message)
    quota = memory_quota()
    limit = memory_limit(quota, os.environ)
    if limit is None or quota is None:
        return ok(AREA, "server-memory", f"under load the server needs about {_mb(needed)}; it has no limit")
    if needed < quota * MEMORY_SHARE:
        message = f"under load the server needs about {_mb(needed)} of the container's {_mb(quota)}"
        return ok(AREA, "server-memory", f"{message}; its limit is {limit}")
    message = f"under load the server needs about {_mb(needed)}, and the container has {_mb(quota)}"
    remedy = f"Give the container more memory, or purge runs. `{MEMORY_VARIABLE}` sets another limit."
    return Finding(AREA, "server-memory", "warning", message, remedy)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _disk(folder: Path) -> Finding:
    kind = file_system_of(folder, Path("/proc/mounts"))
    usage = shutil.disk_usage(folder)
    if kind in VOLATILE:
        message = f"{folder} is in memory ({kind}): a restart of the machine loses every run"
        return Finding(AREA, "store-disk", "error", message, "Set `data_dir` to a folder on a disk.")
    if kind in REMOTE:
        message = f"{folder} is on a file system of another machine ({kind}), whose locks and syncs may not hold"
        return Finding(AREA, "store-disk", "warning", message, "Set `data_dir` to a folder on a local disk.")
    if usage.free < usage.total * DISK_SHARE:
        message = f"the disk of {folder} has {_mb(usage.free)} of {_mb(usage.total)} left"
        return Finding(AREA, "store-disk", "warning", message, "Free space, or purge runs (`callboard forget`).")
    return ok(AREA, "store-disk", f"the disk of {folder} has {_mb(usage.free)} left")


def file_system_of(folder: Path, mounts: Path) -> str:
    """Return the type of the file system of a folder, by the table of mounted file systems; empty if unknown."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return ""
    path = folder.resolve()
    # The last of several file systems that are mounted at one place hides the others.
    at = {Path(line[1]): line[2] for line in lines if len(line) > 2}
    return next((at[one] for one in (path, *path.parents) if one in at), "")


def _clock(log: JetStreamLog) -> Finding:
    ahead_s = log.clock.ahead_s
    if abs(ahead_s) < CLOCK_S:
        return ok(AREA, "clock", "this machine's clock agrees with the server's")
    way = "ahead of" if ahead_s > 0 else "behind"
    message = f"this machine's clock is {abs(ahead_s):.1f} s {way} the server's"
    return Finding(AREA, "clock", "warning", message, "Synchronize the clocks, for example with `chrony`.")


def _version(connection: Connection) -> Finding:
    version = connection.nc.connected_server_version
    named = f"{version.major}.{version.minor}.{version.patch}"
    return ok(AREA, "server-version", f"nats-server {named} has the features that Callboard needs")
