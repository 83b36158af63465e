"""Declarations of installed packages are read once, and again if the path changes."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from callboard.lib.installed import entry_points, version


def install(folder: Path, name: str, group: str) -> None:
    about = folder / f"{name.replace('-', '_')}-1.5.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (about / "entry_points.txt").write_text(f"[{group}]\none = json:loads\n")


def test_a_package_is_found_once_its_folder_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "package-of-the-test", "callboard.test")
    assert entry_points(group="callboard.test") == []
    with pytest.raises(metadata.PackageNotFoundError):
        version("package-of-the-test")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert [point.value for point in entry_points(group="callboard.test")] == ["json:loads"]
    assert version("package-of-the-test") == "1.5"


def test_the_packages_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = version("callboard"), entry_points(group="callboard.languages")

    def unread(*_names: str, **_groups: str) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr(metadata, "version", unread)
    monkeypatch.setattr(metadata, "entry_points", unread)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path, str(tmp_path / "nowhere")])
    assert (version("callboard"), entry_points(group="callboard.languages")) == known
