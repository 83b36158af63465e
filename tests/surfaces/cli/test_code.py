"""Workers that host code: their runs survive a kill, and other code continues only a run whose log it follows."""

import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from callboard.surfaces.cli import exits
from tests.support.cli_stage import Place, read_json

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
def open_killed_up(place: Place, source: str) -> Generator[None]:
    """`callboard up` with a file of code, killed with its server and its worker at the end."""
    file = place.write("approval.py", source)
    with place.process("up", "--json", "--code", file) as process:
        read_json(process)
        yield
        process.send_signal(signal.SIGKILL)
        process.wait()


def status_of(place: Place, run: str) -> dict[str, Any]:
    return place.told("show", run)


def test_a_killed_worker_repeats_no_step_and_other_code_continues_only_matching_runs(place: Place) -> None:
    counted = place.folder / "calls"
    given = json.dumps({"path": str(counted)})
    with open_killed_up(place, APPROVAL):
        place.told("start", "approve", "--input", given, "--run-id", "r1")
        assert place.here("watch", "r1", "--until", "run.parked").exit_code == exits.OK
    with open_killed_up(place, WITH_A_STEP_BEFORE):
        output = place.here("answer", "r1", "true")
        assert place.here("watch", "r1", "--until", "run.diverged").exit_code == exits.OK
        assert "is kept, and need not be repeated" in " ".join(output.stderr.split())
        found = status_of(place, "r1")
        assert found["status"] == "waiting:code"
        details = found["error"]["details"]
        assert details["entry"] == "approval:approve"
        difference = details["difference"]
        assert difference["recorded_at"] == "approval.py:13 approve"
        assert difference["requested_at"] == "approval.py:13 approve"
        assert [run["run"] for run in place.told("runs", "--status", "waiting:code")] == ["r1"]
    with open_killed_up(place, WITH_A_COMMENT):
        watched = place.here("watch", "r1", "--until", "run.end", "--json")
        assert (watched.exit_code, watched.stdout.count('"run.adopted"')) == (exits.OK, 1)
        found = status_of(place, "r1")
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
def open_killed_worker(place: Place, file: str) -> Generator[None]:
    """`callboard worker` with a file of code, killed at the end."""
    with place.process("worker", "--json", "--code", file) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()
        # Its children hold its output open, so wait for them.
        process.communicate()


def test_runs_are_performed_by_the_workers_that_have_their_code(place: Place) -> None:
    approval, other = place.write("approval.py", APPROVAL), place.write("confirming.py", OTHER)
    with place.up("--code", approval):
        with open_killed_worker(place, other):
            for run in RUNS:
                place.told("start", "confirm", "--input", '{"what": "Go?"}', "--run-id", run)
            for run in RUNS:
                assert place.here("watch", run, "--until", "human.asked").exit_code == exits.OK
            assert place.told("answer", RUNS[0], "true")
            assert place.here("watch", RUNS[0], "--until", "run.end").exit_code == exits.OK
        refused = place.here("start", "confirm", "--input", '{"what": "Go?"}')
        assert "had it last" in refused.output
        for run in RUNS[1:]:
            place.here("answer", run, "true")
        for run in RUNS[1:]:
            assert place.here("watch", run, "--until", "run.diverged").exit_code == exits.OK
            assert status_of(place, run)["status"] == "waiting:code"
        with open_killed_worker(place, other):
            for run in RUNS[1:]:
                assert place.here("watch", run, "--until", "run.end").exit_code == exits.OK
        found = [status_of(place, run) for run in RUNS]
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


def test_prints_of_code_are_not_in_the_json_of_a_command(place: Place) -> None:
    file = place.write("talking.py", TALKING)
    done = place.call("run", file, "--run-id", "r1", "--json")
    assert json.loads(done.stdout)["output"] == 3
    for printed in ("imported", "workflow", "step on the loop", "step on a thread"):
        assert done.stderr.splitlines().count(printed) == 1
    replayed = place.call("replay", "r1", "--code", file, "--json")
    assert json.loads(replayed.stdout)["run"] == "r1"
    assert "workflow" not in replayed.stderr.splitlines()
