"""Control groups: the quotas of processor time and of memory that Linux has set for this process."""

from collections.abc import Callable, Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OURS = Path("/proc/self/cgroup")

UNLIMITED_BYTES = 2**60
"""Version 1 has no word for an unlimited quota of memory, but a very large number."""


def cpu_quota(cgroups: Path = CGROUPS, ours: Path = OURS) -> float | None:
    """Return the smallest quota of this process's group and its parents, in cores; None without a quota."""
    return min(_quotas(cgroups, ours, "cpu", _second_cpu, _first_cpu), default=None)


def memory_quota(cgroups: Path = CGROUPS, ours: Path = OURS) -> int | None:
    """Return the smallest quota of memory of this process's group and its parents, in bytes; None without a quota."""
    found = _quotas(cgroups, ours, "memory", _bytes_of("max"), _bytes_of("limit_in_bytes"))
    return min((int(one) for one in found), default=None)


def _quotas(
    cgroups: Path,
    ours: Path,
    controller: str,
    second: Callable[[Path], float | None],
    first: Callable[[Path], float | None],
) -> Iterator[float]:
    """Yield the quotas of a group and its parents; ``second`` and ``first`` read those of the two versions."""
    try:
        lines = ours.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from (quota for folder in _upwards(cgroups, path) if (quota := second(folder)) is not None)
        elif controller in controllers.split(","):
            folders = _upwards(cgroups / controller, path)
            yield from (quota for folder in folders if (quota := first(folder)) is not None)


def _upwards(root: Path, path: str) -> list[Path]:
    """Return the folders of a group and its parents. In a container the group's own folder is the root."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [root.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _second_cpu(folder: Path) -> float | None:
    """Return the quota of a group of version 2: ``cpu.max`` has quota and period, or ``max``."""
    match _words(folder / "cpu.max"):
        case [quota, period] if quota.isdecimal() and period.isdecimal() and int(period):
            return int(quota) / int(period)
        case _:
            return None


def _first_cpu(folder: Path) -> float | None:
    """Return the quota of a group of version 1; a negative value means unlimited."""
    match _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us"):
        case [quota], [period] if quota.isdecimal() and period.isdecimal() and int(period):
            return int(quota) / int(period)
        case _:
            return None


def _bytes_of(name: str) -> Callable[[Path], float | None]:
    """Return a reader of a group's quota of memory: a number of bytes, or ``max``."""

    def read(folder: Path) -> float | None:
        match _words(folder / f"memory.{name}"):
            case [quota] if quota.isdecimal() and 0 < int(quota) < UNLIMITED_BYTES:
                return int(quota)
            case _:
                return None

    return read


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []
