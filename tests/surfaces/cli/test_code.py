"""Workers that host code: their runs survive a kill, and other code continues only a run whose log it follows."""

import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir, read_json

APPROVAL = """
from callboard import ask, step, workflow

@step
def look(path: str) -> int:
    with open(path, "a") as file:
        file.write("x")
    return len(open(path).read())

@workflow
async def approve(path: str) -> dict:
    looks = await look(path)
    return {"looks": looks, "allowed": await ask("Ship?", bool)}
"""

WITH_A_COMMENT = APPROVAL.replace("    looks = await", "    # The number of calls.\n    looks = await")
WITH_A_STEP_BEFORE = APPROVAL.replace("    looks = await", "    await look(path)\n    looks = await")


@contextmanager
def open_killed_up(workdir: Workdir, source: str) -> Generator[None]:
    """`callboard up` with a file of code, killed with its server and its worker at the end."""
    file = workdir.write("approval.py", source)
    with workdir.process("up", "--json", "--code", file) as process:
        read_json(process)
        yield
        process.send_signal(signal.SIGKILL)
        process.wait()


def status_of(workdir: Workdir, run: str) -> dict[str, Any]:
    return workdir.run_json("show", run)


def test_a_killed_worker_repeats_no_step_and_other_code_continues_only_matching_runs(workdir: Workdir) -> None:
    counted = workdir.folder / "calls"
    given = json.dumps({"path": str(counted)})
    with open_killed_up(workdir, APPROVAL):
        workdir.run_json("start", "approve", "--input", given, "--run-id", "r1")
        assert workdir.run("watch", "r1", "--until", "run.parked").exit_code == exits.OK
    with open_killed_up(workdir, WITH_A_STEP_BEFORE):
        output = workdir.run("answer", "r1", "true")
        assert workdir.run("watch", "r1", "--until", "run.diverged").exit_code == exits.OK
        assert "is kept, and need not be repeated" in " ".join(output.stderr.split())
        found = status_of(workdir, "r1")
        assert found["status"] == "waiting:code"
        details = found["error"]["details"]
        assert details["entry"] == "approval:approve"
        difference = details["difference"]
        assert difference["recorded_at"] == "approval.py:13 approve"
        assert difference["requested_at"] == "approval.py:13 approve"
        assert [run["run"] for run in workdir.run_json("runs", "--status", "waiting:code")] == ["r1"]
    with open_killed_up(workdir, WITH_A_COMMENT):
        watched = workdir.run("watch", "r1", "--until", "run.end", "--json")
        assert (watched.exit_code, watched.stdout.count('"run.adopted"')) == (exits.OK, 1)
        found = status_of(workdir, "r1")
    # The answer that came while the run waited for code is kept.
    assert (found["status"], found["output"]) == ("completed", {"looks": 1, "allowed": True})
    assert counted.read_text() == "x"


OTHER = """
from callboard import ask, workflow

@workflow
async def confirm(what: str) -> bool:
    return await ask(what, bool)
"""
RUNS = [f"c{k}" for k in range(6)]
"""Ids of runs in the partitions of both workers."""


@contextmanager
def open_killed_worker(workdir: Workdir, file: str) -> Generator[None]:
    """`callboard worker` with a file of code, killed at the end."""
    with workdir.process("worker", "--json", "--code", file) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()
        # Its children hold its output open, so wait for them.
        process.communicate()


def test_runs_are_performed_by_the_workers_that_have_their_code(workdir: Workdir) -> None:
    approval, other = workdir.write("approval.py", APPROVAL), workdir.write("confirming.py", OTHER)
    with workdir.up("--code", approval):
        with open_killed_worker(workdir, other):
            for run in RUNS:
                workdir.run_json("start", "confirm", "--input", '{"what": "Go?"}', "--run-id", run)
            for run in RUNS:
                assert workdir.run("watch", run, "--until", "human.asked").exit_code == exits.OK
            assert workdir.run_json("answer", RUNS[0], "true")
            assert workdir.run("watch", RUNS[0], "--until", "run.end").exit_code == exits.OK
        refused = workdir.run("start", "confirm", "--input", '{"what": "Go?"}')
        assert "had it last" in refused.output
        for run in RUNS[1:]:
            workdir.run("answer", run, "true")
        for run in RUNS[1:]:
            assert workdir.run("watch", run, "--until", "run.diverged").exit_code == exits.OK
            assert status_of(workdir, run)["status"] == "waiting:code"
        with open_killed_worker(workdir, other):
            for run in RUNS[1:]:
                assert workdir.run("watch", run, "--until", "run.end").exit_code == exits.OK
        found = [status_of(workdir, run) for run in RUNS]
        assert {(one["status"], one["output"]) for one in found} == {("completed", True)}


TALKING = """
from callboard import step, workflow

print("imported")

@step
async def look(n: int) -> int:
    print("step on the loop")
    return n

@step
def look_on_a_thread(n: int) -> int:
    print("step on a thread")
    return n

@workflow
async def talk() -> int:
    print("workflow")
    return await look(1) + await look_on_a_thread(2)
"""


def test_prints_of_code_are_not_in_the_json_of_a_command(workdir: Workdir) -> None:
    file = workdir.write("talking.py", TALKING)
    done = workdir.call("run", file, "--run-id", "r1", "--json")
    assert json.loads(done.stdout)["output"] == 3
    for printed in ("imported", "workflow", "step on the loop", "step on a thread"):
        assert done.stderr.splitlines().count(printed) == 1
    replayed = workdir.call("replay", "r1", "--code", file, "--json")
    assert json.loads(replayed.stdout)["run"] == "r1"
    assert "workflow" not in replayed.stderr.splitlines()
