"""An installation from a checkout, `pip install .`, has all that the checkout has, and runs without it."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import lanes
from tests.support.modules import FOLDERS
from tests.support.places import ROOT


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all processes of pytest, with a copy of the checkout and its installation; the first makes them."""
    shared = lanes.shared_folder(tmp_path_factory) / "installing"
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "made").exists():
            _copy_checkout(shared / "checkout")
            with _without_links(shared / "checkout"):
                _install(shared / "checkout", shared / "site")
            (shared / "made").touch()
    return shared


def _copy_checkout(checkout: Path) -> None:
    """Copy the checkout, so that what building leaves behind is not left in it."""
    checkout.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    # What an earlier build left, of a module that exists no more.
    stale = checkout / "build" / "lib" / "callboard" / "bus" / "gone.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")


@contextmanager
def _without_links(checkout: Path) -> Generator[None]:
    """Replace the links by files, as a checkout without support for links, or an unpacked archive, has them."""
    links = {path: path.readlink() for path in (checkout / "callboard").iterdir() if path.is_symlink()}
    assert links
    for path, target in links.items():
        path.unlink()
        path.write_text(str(target))
    yield
    for path, target in links.items():
        path.unlink()
        path.symlink_to(target)


def _install(checkout: Path, target: Path) -> None:
    # What it depends on is here already.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    done = subprocess.run([*pip, "--target", str(target), str(checkout)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def checkout(shared: Path) -> Path:
    return shared / "checkout"


@pytest.fixture
def installed(shared: Path) -> Path:
    """The checkout, installed."""
    return shared / "site"


def _files(folder: Path) -> set[str]:
    there = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)) for path in there}


def test_every_file_of_the_house_is_installed(installed: Path) -> None:
    *rooms, door = FOLDERS
    deployment = _files(ROOT / door).union(*({f"{name}/{file}" for file in _files(ROOT / name)} for name in rooms))
    assert deployment == _files(installed / "callboard")


def test_the_program_runs_from_there(installed: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    program = installed / "bin" / "callboard"
    done = subprocess.run(
        [sys.executable, str(program), "new", "--list"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "workflow" in done.stdout
    where = "import callboard.bus.log.port as log; print(log.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)


def test_a_program_in_the_checkout_finds_all_packages(installed: Path, checkout: Path) -> None:
    (checkout / "greeting.py").write_text(
        "import callboard, callboard.bus.log.port as log\nprint(callboard.run, log.__file__)"
    )
    # Without `site`, which would bring the editable installation of the tests: that finds the packages as well.
    command = [sys.executable, "-S", "greeting.py"]
    others = [path for path in sys.path if path.endswith("-packages")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), *others])}
    done = subprocess.run(command, env=env, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"{checkout / 'callboard' / 'bus' / 'log' / 'port.py'}\n")


USER = """
import asyncio
from typing import reveal_type

import callboard
from callboard.bus.events import payload_of

async def main() -> None:
    async with callboard.Runtime(data_dir="state") as runtime:
        run = await runtime.start("greet.md", input={"who": "Ada"}, run_id="greet-1")
        async for event in run.events():
            reveal_type(event.n)
        reveal_type((await run.result()).raise_for_status().run)
    reveal_type(await callboard.run(source="…"))
    reveal_type(payload_of)
    await callboard.run(sauce="…")

asyncio.run(main())
"""


def test_a_program_that_uses_it_is_type_checked(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    settings = {"extraPaths": [str(installed)], "typeCheckingMode": "strict", "reportMissingModuleSource": "none"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [one["message"] for one in found if one["severity"] == "information"]
    assert [message.split(" is ", 1)[1] for message in revealed[:3]] == ['"int"', '"str"', '"RunResult"'], found
    assert "Event) ->" in revealed[3]
    (wrong,) = (one["message"] for one in found if one["severity"] == "error")
    assert '"sauce"' in wrong
