"""An installation from a checkout, `pip install .`, has all that the checkout has, and runs without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("bus", "actors", "languages", "projections", "runtime")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a copy of the checkout, so that what building leaves behind is not left in it."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("site")
    # What it depends on is here already.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    done = subprocess.run([*pip, "--target", str(target), str(checkout)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def _files(folder: Path) -> set[str]:
    there = (path for name in FOLDERS for path in (folder / name).rglob("*") if path.is_file())
    pages = {"runtime/cli/templates/README.md"}  # For those who write templates.
    return {str(path.relative_to(folder)) for path in there if path.suffix != ".pyc"} - pages


def test_every_file_of_the_house_is_installed(installed: Path) -> None:
    assert _files(ROOT) == _files(installed / "callboard")


def test_the_program_runs_from_there(installed: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    program = installed / "bin" / "callboard"
    done = subprocess.run(
        [sys.executable, str(program), "new", "--list"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "workflow" in done.stdout
    where = "import callboard.bus.log as log; print(log.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)
