"""Files that only their owner can read, and that are written whole or not at all."""

import os
from pathlib import Path

import pytest

from callboard.lib.private_files import write_own


def test_only_the_owner_can_read_a_written_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("for everybody")
    path.chmod(0o644)
    write_own(path, "for me\n")
    assert path.read_text() == "for me\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_existing_file_can_be_protected(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_own(path, "first", replaces=False)
    with pytest.raises(FileExistsError):
        write_own(path, "second", replaces=False)
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["key"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    write_own(path, "first")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_own(path, "second")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["key"]
