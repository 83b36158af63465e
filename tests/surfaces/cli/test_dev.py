"""`callboard up --dev`: code is loaded again when it changes, and what is not deterministic fails in its first run."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callboard.surfaces.cli import exits
from tests.support.cli_stage import Place

APPROVAL = """
from itertools import count
from callboard import ask, step, workflow

performed = count()

@step
async def look(path: str) -> int:
    return len(path)

@workflow
async def approve(path: str) -> dict:
    looks = await look(path)
    return {"looks": looks, "allowed": await ask("Ship?", bool)}

@workflow
async def shaky(path: str) -> bool:
    await look("x" * next(performed))
    return await ask("Ship?", bool)
"""

WITH_A_COMMENT = APPROVAL.replace("    looks = await", "    # The length.\n    looks = await")
WITH_A_STEP_BEFORE = APPROVAL.replace("    looks = await", '    await look("x")\n    looks = await')


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def developing(place: Place, file: str) -> Generator[subprocess.Popen[str]]:
    with place.process("up", "--dev", "--json", "--log-level", "error", "--code", file) as process:
        yield process
        process.terminate()
        out, err = process.communicate()
        assert json.loads(out.splitlines()[-1]) == {"stopped": True, "drained": True}
        assert "Exception ignored" not in err


def said(process: subprocess.Popen[str], beginning: str) -> str:
    """Return the next line on stderr that begins so."""
    assert process.stderr is not None
    passed: list[str] = []
    for line in process.stderr:
        if line.startswith(beginning):
            return line
        passed.append(line)
    raise AssertionError(f"nothing begins with {beginning}: {passed}")


def parked(place: Place, run: str) -> None:
    place.told("start", "approve", "--input", '{"path": "abc"}', "--run-id", run)
    assert place.here("watch", run, "--until", "human.asked").exit_code == exits.OK


def test_code_that_changes_is_hosted_and_open_runs_continue_if_they_follow_it(place: Place) -> None:
    file = place.write("developed_play.py", APPROVAL)
    with developing(place, file) as process:
        first = said(process, f"Hosting {file} with the code ")
        assert first.endswith(": approve, shaky\n")
        parked(place, "r1")
        parked(place, "r2")
        place.write(file, WITH_A_COMMENT)
        said(process, "The code has changed")
        assert said(process, f"Hosting {file}") != first
        place.told("answer", "r1", "true")
        assert place.here("watch", "r1", "--until", "run.end", "--json").stdout.count('"run.adopted"') == 1
        place.write(file, "def (\n")
        assert f"{file}:1" in said(process, "  where: ")
        said(process, "No runs are performed until")
        place.write(file, WITH_A_STEP_BEFORE)
        said(process, f"Hosting {file}")
        assert "developed_play.py:" in said(process, "Run r2 cannot continue with this code")
        place.here("answer", "r2", "true")
        assert place.here("watch", "r2", "--until", "run.diverged").exit_code == exits.OK
        assert place.told("show", "r2")["status"] == "waiting:code"


def test_what_is_not_deterministic_fails_at_its_first_rest(place: Place) -> None:
    file = place.write("shaky_play.py", APPROVAL)
    with developing(place, file) as process:
        said(process, f"Hosting {file}")
        place.told("start", "shaky", "--input", '{"path": "abc"}', "--run-id", "r1")
        assert place.here("watch", "r1", "--until", "run.end").exit_code == exits.OK
        assert place.told("show", "r1")["error"]["code"] == "python.nondeterministic"


def test_code_that_is_not_there_is_refused_at_once(place: Place) -> None:
    done = place.call("up", "--dev", "--code", "nothing_there.py")
    assert done.returncode == exits.FAILED
    assert "error python.code_missing" in done.stderr


def test_a_start_is_accepted_as_soon_as_the_command_says_that_it_is_up(place: Place) -> None:
    file = place.write("approval.py", APPROVAL)
    with developing(place, file) as process:
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        assert place.told("start", "approve", "--input", '{"path": "abc"}', "--run-id", "r1")["run_id"] == "r1"
