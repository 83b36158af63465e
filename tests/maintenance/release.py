"""Make a release: `make release VERSION=1.2.0` checks, writes version and change log, builds, commits and tags.

It runs `.ci/run` first. The source archive and the wheel are in `dist/`. Nothing leaves this machine: the maintainer
looks at the commit, and publishes it with its tag and the files.
"""

import datetime as dt
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path

from tests.support.places import ROOT

VERSION = re.compile(r"\d+\.\d+\.\d+")
UNRELEASED = "## Unreleased\n"


class ReleaseRefused(Exception):
    """The release cannot be made, for this reason."""


def make_release(root: Path, version: str, today: dt.date, checks: Sequence[str] = (".ci/run",)) -> list[Path]:
    """Make a release of the checkout at ``root``; return the files to publish.

    :raises ReleaseRefused: before anything is changed
    """
    _check_version(root, version)
    if _run(root, "git", "status", "--porcelain"):
        raise ReleaseRefused("the checkout has changes that are not committed; commit or remove them")
    changes, project = root / "CHANGELOG.md", root / "pyproject.toml"
    log = close_section(changes.read_text(encoding="utf-8"), version, today)
    subprocess.run(checks, cwd=root, check=True)
    changes.write_text(log, encoding="utf-8")
    text = project.read_text(encoding="utf-8")
    project.write_text(re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', text, count=1), encoding="utf-8")
    files = _build(root, version)
    _run(root, "git", "commit", "--quiet", "--message", f"release: {version}", "CHANGELOG.md", "pyproject.toml")
    _run(root, "git", "tag", f"v{version}")
    return files


def close_section(log: str, version: str, today: dt.date) -> str:
    """Return the change log with the unreleased changes as the section of a version, and an empty section above it.

    :raises ReleaseRefused: if no change is listed
    """
    before, found, after = log.partition(UNRELEASED)
    entries = re.split(r"(?m)^## ", after, maxsplit=1)[0]
    if not found or not re.search(r"(?m)^- ", entries):
        raise ReleaseRefused("CHANGELOG.md lists no changes under Unreleased")
    return f"{before}{UNRELEASED}\n## {version} ({today.isoformat()})\n{after}"


def _check_version(root: Path, version: str) -> None:
    if not VERSION.fullmatch(version):
        raise ReleaseRefused(f"{version!r} is not a version; expected three numbers, such as 1.2.0")
    tags = _run(root, "git", "tag", "--list", "v*").split()
    released = [_numbers(tag[1:]) for tag in tags if VERSION.fullmatch(tag[1:])]
    if released and _numbers(version) <= max(released):
        last = ".".join(map(str, max(released)))
        raise ReleaseRefused(f"version {version} does not follow {last}, which is released")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _build(root: Path, version: str) -> list[Path]:
    """Build the source archive and the wheel, and check that the wheel has this version and the README."""
    target = root / "dist"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for what in ("sdist", "wheel"):
        program = f"from setuptools import build_meta; build_meta.build_{what}({str(target)!r})"
        _run(root, sys.executable, "-c", program)
    [wheel] = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(opened.read(name).decode())
    if metadata["Version"] != version or metadata["Description-Content-Type"] != "text/markdown":
        raise ReleaseRefused(f"{wheel.name} has the version {metadata['Version']}, or no README")
    return sorted(target.iterdir())


def _run(root: Path, *command: str) -> str:
    return subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    try:
        for file in make_release(ROOT, sys.argv[1] if len(sys.argv) > 1 else "", dt.datetime.now(dt.UTC).date()):
            print(file)
    except ReleaseRefused as error:
        sys.exit(f"no release: {error}")
