"""Cores: how many this process may use, by its CPU affinity and the quota of its control group."""

import math
import os
import sys
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OURS = Path("/proc/self/cgroup")


def cores(cgroups: Path = CGROUPS, ours: Path = OURS) -> int:
    """Return how many cores this process may keep busy; a part of a core counts as one."""
    found = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = _quota(cgroups, ours)
    return found if quota is None else max(1, min(found, math.ceil(quota)))


def _quota(cgroups: Path, ours: Path) -> float | None:
    """Return the smallest quota of this process's group and its parents, in cores; None without a quota."""
    try:
        lines = ours.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    quotas: list[float] = []
    for line in lines:
        _number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            quotas += [quota for folder in _upwards(cgroups, path) if (quota := _second(folder)) is not None]
        elif "cpu" in controllers.split(","):
            folders = _upwards(cgroups / "cpu", path)
            quotas += [quota for folder in folders if (quota := _first(folder)) is not None]
    return min(quotas, default=None)


def _upwards(root: Path, path: str) -> list[Path]:
    """Return the folders of a group and its parents. In a container the group's own folder is the root."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [root.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _second(folder: Path) -> float | None:
    """Return the quota of a group of version 2: ``cpu.max`` has quota and period, or ``max``."""
    match _words(folder / "cpu.max"):
        case [quota, period] if quota.isdecimal() and period.isdecimal() and int(period):
            return int(quota) / int(period)
        case _:
            return None


def _first(folder: Path) -> float | None:
    """Return the quota of a group of version 1; a negative value means unlimited."""
    match _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us"):
        case [quota], [period] if quota.isdecimal() and period.isdecimal() and int(period):
            return int(quota) / int(period)
        case _:
            return None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []
