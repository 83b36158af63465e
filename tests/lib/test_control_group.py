"""The quota of memory that a process's control group has."""

from pathlib import Path

import pytest

from callboard.lib.control_group import memory_quota


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/a/b\n", {"memory.max": "max"}, None),
        ("0::/a/b\n", {"a/memory.max": "1000", "a/b/memory.max": "2000"}, 1000),
        ("0::/../x\n", {"memory.max": "3000"}, 3000),
        ("0::/\n", {"memory.max": "nonsense"}, None),
        ("4:memory:/d\n", {"memory/d/memory.limit_in_bytes": "4000"}, 4000),
        ("4:memory:/d\n", {"memory/d/memory.limit_in_bytes": "9223372036854771712"}, None),
        (None, {}, None),
    ],
)
def test_the_smallest_quota_counts(
    tmp_path: Path, group: str | None, files: dict[str, str], expected: int | None
) -> None:
    ours = tmp_path / "ours"
    if group is not None:
        ours.write_text(group)
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert memory_quota(tmp_path / "groups", ours) == expected
