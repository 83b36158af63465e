"""A source archive and a wheel have all that the checkout has, and are used without it, with the packages they name.

They are built and installed once, for all processes of pytest: the wheel from the source archive, and into an
environment that has no other packages than those that the wheel needs.
"""

import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import installed, lanes
from tests.support.modules import FOLDERS
from tests.support.places import ROOT

STALE = Path("build", "lib", "callboard", "bus", "gone.py")
"""A file of an earlier build, of a module that no longer exists."""


class Installation:
    """The checkout's copy, what is built of it, and an environment that has the wheel."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.built = folder / "built"
        self.environment = folder / "environment"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def packages(self) -> Path:
        [found] = self.environment.glob("lib/python*/site-packages")
        return found

    def make(self) -> None:
        self._copy()
        archive = self.built / _build("sdist", self.checkout, self.built)
        with tarfile.open(archive) as opened:
            opened.extractall(self.built, filter="data")
        [unpacked] = (path for path in self.built.iterdir() if path.is_dir())
        (unpacked / STALE).parent.mkdir(parents=True)
        (unpacked / STALE).touch()
        wheel = self.built / _build("wheel", unpacked, self.built)
        _run(sys.executable, "-m", "venv", "--without-pip", self.environment)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        installed.link(installed.needed(project["dependencies"]), self.environment)
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--no-index", "--no-compile")
        _run(*pip, wheel)

    def _copy(self) -> None:
        """Copy the checkout, so that the files of a build are not left in it."""
        self.checkout.mkdir()
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, self.checkout)
        for name in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.checkout / name, symlinks=True, ignore=ignored)
        for link in filter(Path.is_symlink, (self.checkout / "callboard").iterdir()):
            # Git does so where links are not supported.
            target = os.readlink(link)
            link.unlink()
            link.write_text(target)


def _build(what: str, source: Path, target: Path) -> str:
    """Build as pip does, in this environment; return the name of the file."""
    target.mkdir(exist_ok=True)
    program = f"from setuptools import build_meta; print(build_meta.build_{what}({str(target)!r}))"
    return _run(sys.executable, "-c", program, cwd=source).splitlines()[-1]


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The same one for all processes of pytest; the first makes it."""
    folder = lanes.shared_folder(tmp_path_factory) / "installing"
    folder.mkdir(exist_ok=True)
    found = Installation(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            found.make()
            (folder / "made").touch()
    return found


def _files(folder: Path) -> set[str]:
    there = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)) for path in there}


def test_every_file_of_the_package_is_installed(installation: Installation) -> None:
    *rooms, door = FOLDERS
    deployment = _files(ROOT / door).union(*({f"{name}/{file}" for file in _files(ROOT / name)} for name in rooms))
    assert deployment == _files(installation.packages / "callboard")


def test_archive_and_wheel_have_no_links(installation: Installation) -> None:
    [archive], [wheel] = installation.built.glob("*.tar.gz"), installation.built.glob("*.whl")
    with tarfile.open(archive) as opened:
        assert [one.name for one in opened if not (one.isfile() or one.isdir())] == []
    with zipfile.ZipFile(wheel) as opened:
        assert [one.filename for one in opened.infolist() if stat.S_ISLNK(one.external_attr >> 16)] == []


USE = """
import json, pkgutil, sys
from importlib import import_module

import callboard.adapters
from callboard.service.files.templates import templates
from callboard.surfaces.cli.main import cli

def perform(*words):
    assert not cli.main([*words], standalone_mode=False), words

ran = []
for one in templates():
    if one.name == "minimal":
        folder = one.language
        perform("new", folder, "--language", one.language)
        script = ["--script", f"{folder}/{one.script}"] if one.script else []
        perform("run", f"{folder}/{one.definition}", "--input", f"@{folder}/{one.input}", *script, "--run-id", folder)
        ran.append(folder)

refused = {}
for found in pkgutil.iter_modules(callboard.adapters.__path__):
    if found.ispkg:
        try:
            import_module(f"callboard.adapters.{found.name}")
        except ImportError as error:
            refused[found.name] = str(error)
print(json.dumps({"from": callboard.adapters.__file__, "ran": sorted(ran), "refused": refused}), file=sys.stderr)
"""


def test_an_installation_is_used_without_the_checkout(installation: Installation, tmp_path: Path) -> None:
    """Templates are copied and run in every language, the page is served, and adapters say what they need."""
    names = ("PYTHONPATH", "TESTS_FORKS")
    env = {name: value for name, value in os.environ.items() if name not in names}
    env |= {"CALLBOARD_HTTP_LISTEN": "127.0.0.1:0"}
    with _up(installation, tmp_path, env) as address:
        page = _read(address)
        style = re.search(r'href="(/static/[^"]+/style.css)"', page)
        assert style is not None, page
        assert _read(address + style[1]) == (ROOT / "surfaces" / "page" / "static" / "style.css").read_text()
        command = [installation.python, "-c", USE]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["ran"] == ["flow", "graph", "playbook", "python", "workflow"]
    assert len(re.findall(r"^■ completed", done.stdout, re.MULTILINE)) == len(told["ran"]), done.stdout
    assert Path(told["from"]).is_relative_to(installation.packages)
    assert len(told["refused"]) == 4
    for name, refusal in told["refused"].items():
        assert f"pip install 'callboard[{name.replace('_', '-')}]'" in refusal


@contextmanager
def _up(installation: Installation, folder: Path, env: dict[str, str]) -> Generator[str]:
    """Serve from a folder; yield the address of the page."""
    command = [installation.environment / "bin" / "callboard", "up"]
    with subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            yield next(found[1] for line in lines if (found := re.search(r"(http://[^/]+)/", line)))
        finally:
            process.terminate()
    assert process.returncode == 0


def _read(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


def test_a_program_in_the_checkout_finds_all_packages(installation: Installation) -> None:
    program = "import callboard, callboard.bus.log.port as log; print(callboard.run, log.__file__)"
    printed = _run(installation.python, "-c", program, cwd=ROOT)
    assert printed.endswith(f"{ROOT / 'callboard' / 'bus' / 'log' / 'port.py'}\n")


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


def test_a_program_that_uses_it_is_type_checked(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    settings = {
        "extraPaths": [str(installation.packages)],
        "typeCheckingMode": "strict",
        "reportMissingModuleSource": "none",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [one["message"] for one in found if one["severity"] == "information"]
    assert [message.split(" is ", 1)[1] for message in revealed[:3]] == ['"int"', '"str"', '"RunResult"'], found
    assert "Event) ->" in revealed[3]
    (wrong,) = (one["message"] for one in found if one["severity"] == "error")
    assert '"sauce"' in wrong
