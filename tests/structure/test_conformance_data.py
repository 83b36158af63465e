"""`make conformance` takes only the data that it expects."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.maintenance import conformance
from tests.maintenance.conformance import Source, lay


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A repository with two commits, of which the first is wanted."""
    repository = tmp_path / "host" / "org" / "spec"
    monkeypatch.setattr(conformance, "HOST", (tmp_path / "host").as_uri())

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        done = subprocess.run(["git", *who, *words], cwd=repository, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (repository / "tests" / "cases").mkdir(parents=True)
    git("init", "--quiet")
    for content in ("wanted", "newer"):
        (repository / "tests" / "cases" / "one.json").write_text(content)
        (repository / "tests" / "README.md").write_text(content)
        git("add", ".")
        git("commit", "--quiet", "-m", content)
    wanted = Source("org/spec", git("rev-parse", "HEAD~"), {"data/vectors": "tests"}, "")
    expected = tmp_path / "expected" / "data" / "vectors" / "cases"
    expected.mkdir(parents=True)
    (expected / "one.json").write_text("wanted")
    return replace(wanted, checksum=wanted.checksum_in(tmp_path / "expected"))


def test_the_files_of_the_commit_replace_those_that_are_there(source: Source, tmp_path: Path) -> None:
    folder = tmp_path / "fetched"
    (folder / "old").mkdir(parents=True)
    assert lay([source], folder) == []
    assert (folder / "data" / "vectors" / "cases" / "one.json").read_text() == "wanted"
    assert not (folder / "old").exists()


def test_files_with_another_checksum_are_not_used(source: Source, tmp_path: Path) -> None:
    folder = tmp_path / "fetched"
    [fault] = lay([replace(source, checksum="0" * 64)], folder)
    assert fault == f"org/spec has the checksum {source.checksum}, expected {'0' * 64}"
    assert not folder.exists()


def test_a_missing_commit_is_an_error(source: Source, tmp_path: Path) -> None:
    [fault] = lay([replace(source, commit="0" * 40)], tmp_path / "fetched")
    assert "org/spec cannot be fetched at 000" in fault
