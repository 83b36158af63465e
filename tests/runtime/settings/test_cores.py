"""The number of cores that the control group of a process allows."""

import os
from pathlib import Path

import pytest

from callboard.runtime.settings.cores import cores

HERE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/a/b\n", {"cpu.max": "max 100000"}, HERE),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000"}, 1),
        ("0::/a/b\n", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "900000 100000"}, 1),
        ("0::/../x\n", {"cpu.max": "20000 100000"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000"}, min(HERE, 2)),
        ("0::/\n", {"cpu.max": "nonsense"}, HERE),
        ("4:cpu,cpuacct:/d\n", {"cpu/d/cpu.cfs_quota_us": "100000", "cpu/d/cpu.cfs_period_us": "100000"}, 1),
        ("4:cpu,cpuacct:/d\n", {"cpu/d/cpu.cfs_quota_us": "-1", "cpu/d/cpu.cfs_period_us": "100000"}, HERE),
        (None, {}, HERE),
    ],
)
def test_a_quota_bounds_the_cores(tmp_path: Path, group: str | None, files: dict[str, str], expected: int) -> None:
    ours = tmp_path / "ours"
    if group is not None:
        ours.write_text(group)
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert cores(tmp_path / "groups", ours) == expected
