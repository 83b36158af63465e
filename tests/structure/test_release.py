"""`make release` checks, writes version and change log, builds, commits and tags, or refuses and changes nothing."""

import datetime as dt
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.maintenance.release import ReleaseRefused, close_section, make_release

DAY = dt.date(2030, 1, 2)
LOG = "# Change log\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 (2029-01-01)\n\n- The first.\n"
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "released"
version = "0.1.0"
readme = "README.md"

[tool.setuptools]
py-modules = ["released"]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {"CHANGELOG.md": LOG, "pyproject.toml": PROJECT, "README.md": "# Released\n", "released.py": ""}
    files[".gitignore"] = "dist/\nbuild/\n*.egg-info/\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    _git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    _git(tmp_path, "config", "user.name", "A maintainer")
    _git(tmp_path, "config", "user.email", "maintainer@example.org")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "--message", "all")
    _git(tmp_path, "tag", "v0.1.0")
    return tmp_path


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_a_release_is_built_committed_and_tagged(checkout: Path) -> None:
    archive, wheel = sorted(make_release(checkout, "0.2.0", DAY, ["true"]), key=lambda file: file.suffix)
    assert (archive.name, wheel.name) == ("released-0.2.0.tar.gz", "released-0.2.0-py3-none-any.whl")
    with tarfile.open(archive) as opened:
        assert "released-0.2.0/released.py" in opened.getnames()
    assert _git(checkout, "log", "-1", "--format=%s %D") == "release: 0.2.0 HEAD -> main, tag: v0.2.0\n"
    assert 'version = "0.2.0"' in _git(checkout, "show", "HEAD:pyproject.toml")
    assert "## Unreleased\n\n## 0.2.0 (2030-01-02)\n\n### Added" in _git(checkout, "show", "HEAD:CHANGELOG.md")


@pytest.mark.parametrize(
    ("version", "reason"),
    [("0.1.0", "does not follow 0.1.0"), ("0.0.9", "does not follow 0.1.0"), ("next", "not a version"), ("", "not a")],
)
def test_a_version_that_does_not_follow_the_last_one_is_refused(checkout: Path, version: str, reason: str) -> None:
    with pytest.raises(ReleaseRefused, match=reason):
        make_release(checkout, version, DAY, ["true"])


def test_a_changed_checkout_is_refused(checkout: Path) -> None:
    (checkout / "released.py").write_text("changed = True\n")
    with pytest.raises(ReleaseRefused, match="not committed"):
        make_release(checkout, "0.2.0", DAY, ["true"])


def test_a_release_whose_checks_fail_changes_nothing(checkout: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        make_release(checkout, "0.2.0", DAY, ["false"])
    assert _git(checkout, "status", "--porcelain") == ""
    assert _git(checkout, "tag") == "v0.1.0\n"


def test_a_release_without_changes_is_refused() -> None:
    empty = close_section(LOG, "0.2.0", DAY)
    with pytest.raises(ReleaseRefused, match="no changes"):
        close_section(empty, "0.3.0", DAY)
