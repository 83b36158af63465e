"""`callboard up --dev`: changed code is loaded again, and nondeterministic code fails in its first run."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir, read_json

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


@contextmanager
def open_up_dev(workdir: Workdir, file: str) -> Generator[subprocess.Popen[str]]:
    with workdir.process("up", "--dev", "--json", "--log-level", "error", "--code", file) as process:
        yield process
        process.terminate()
        out, err = process.communicate()
        assert json.loads(out.splitlines()[-1]) == {"stopped": True, "drained": True}
        assert "Exception ignored" not in err


def read_line(process: subprocess.Popen[str], beginning: str) -> str:
    """Return the next line of stderr with a beginning."""
    assert process.stderr is not None
    passed: list[str] = []
    for line in process.stderr:
        if line.startswith(beginning):
            return line
        passed.append(line)
    raise AssertionError(f"nothing begins with {beginning}: {passed}")


def start_and_park(workdir: Workdir, run: str) -> None:
    workdir.run_json("start", "approve", "--input", '{"path": "abc"}', "--run-id", run)
    assert workdir.run("watch", run, "--until", "human.asked").exit_code == exits.OK


def test_changed_code_is_loaded_and_continues_matching_runs(workdir: Workdir) -> None:
    file = workdir.write("developed_play.py", APPROVAL)
    with open_up_dev(workdir, file) as process:
        first = read_line(process, f"Hosting {file} with the code ")
        assert first.endswith(": approve, shaky\n")
        start_and_park(workdir, "r1")
        start_and_park(workdir, "r2")
        workdir.write(file, WITH_A_COMMENT)
        read_line(process, "The code has changed")
        assert read_line(process, f"Hosting {file}") != first
        workdir.run_json("answer", "r1", "true")
        assert workdir.run("watch", "r1", "--until", "run.end", "--json").stdout.count('"run.adopted"') == 1
        workdir.write(file, "def (\n")
        assert f"{file}:1" in read_line(process, "  where: ")
        read_line(process, "No runs are performed until")
        workdir.write(file, WITH_A_STEP_BEFORE)
        read_line(process, f"Hosting {file}")
        assert "developed_play.py:" in read_line(process, "Run r2 cannot continue with this code")
        workdir.run("answer", "r2", "true")
        assert workdir.run("watch", "r2", "--until", "run.diverged").exit_code == exits.OK
        assert workdir.run_json("show", "r2")["status"] == "waiting:code"


def test_nondeterministic_code_fails_when_it_first_waits(workdir: Workdir) -> None:
    file = workdir.write("shaky_play.py", APPROVAL)
    with open_up_dev(workdir, file) as process:
        read_line(process, f"Hosting {file}")
        workdir.run_json("start", "shaky", "--input", '{"path": "abc"}', "--run-id", "r1")
        assert workdir.run("watch", "r1", "--until", "run.end").exit_code == exits.OK
        assert workdir.run_json("show", "r1")["error"]["code"] == "python.nondeterministic"


def test_missing_code_is_refused_at_once(workdir: Workdir) -> None:
    done = workdir.call("up", "--dev", "--code", "nothing_there.py")
    assert done.returncode == exits.FAILED
    assert "error python.code_missing" in done.stderr


def test_a_start_is_accepted_once_up_reports_its_address(workdir: Workdir) -> None:
    file = workdir.write("approval.py", APPROVAL)
    with open_up_dev(workdir, file) as process:
        read_json(process)
        assert workdir.run_json("start", "approve", "--input", '{"path": "abc"}', "--run-id", "r1")["run_id"] == "r1"
