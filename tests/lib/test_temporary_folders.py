"""Temporary folders: those of killed processes are removed, those in use are not."""

import os
import signal
from pathlib import Path

import pytest

from callboard.lib import temporary_folders
from callboard.lib.temporary_folders import TemporaryFolder, temporary_folder


def create_in_killed_process(parent: Path) -> None:
    """Create a folder in a process that is killed."""
    pid = os.fork()
    if pid == 0:
        TemporaryFolder(parent)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    create_in_killed_process(tmp_path)
    [left] = tmp_path.iterdir()
    (left / "file").write_text("x")
    own = TemporaryFolder(tmp_path)
    assert list(tmp_path.iterdir()) == [own.path]
    own.remove()
    assert list(tmp_path.iterdir()) == []


def test_folders_in_use_and_those_of_others_stay(tmp_path: Path) -> None:
    used = TemporaryFolder(tmp_path)
    (tmp_path / "callboard-work").mkdir()
    (tmp_path / "callboard-temporary-note").write_text("a file")
    elsewhere = tmp_path / "callboard-work" / "data"
    elsewhere.mkdir()
    (tmp_path / "callboard-temporary-link").symlink_to(elsewhere, target_is_directory=True)
    again = TemporaryFolder(tmp_path)
    names = {one.name for one in tmp_path.iterdir()}
    assert names == {
        used.path.name,
        again.path.name,
        "callboard-work",
        "callboard-temporary-note",
        "callboard-temporary-link",
    }
    assert elsewhere.is_dir()
    for one in (used, again):
        one.remove()


def test_temporary_folder_is_in_the_folder_of_the_system_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_folders.tempfile, "tempdir", str(tmp_path))
    with temporary_folder() as folder:
        assert folder.parent == tmp_path
        (folder / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
