"""The debugger at the command line: stacks of a run, of its fork, and of other code; pdb with commands from stdin."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.languages.python import hosted
from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir

PARCEL = """\
import asyncio
from callboard import ask, step, workflow

@step
async def weigh(parcel: str) -> int:
    return 100 * len(parcel)

async def price(parcel: str) -> int:
    return 2 * await weigh(parcel)

async def approve(parcel: str) -> bool:
    question = f"Send {parcel}?"
    return await ask(question, bool)

@workflow
async def send(parcel: str) -> int:
    cents, approved = await asyncio.gather(price(parcel), approve(parcel))
    if not approved:
        raise ValueError(f"not approved: {cents}")
    return cents
"""

ASKED = 5
"""The event at which the parcel's question is asked."""


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workdir]:
    """A directory; this process hosts no code, and unloads the module of the file at the end."""
    monkeypatch.setattr(hosted, "HOSTED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Workdir(tmp_path)
    sys.modules.pop("debugged_parcel", None)


@pytest.fixture
def failed_run(workdir: Workdir) -> Workdir:
    """A run, ``p1``, that has failed."""
    file = workdir.write("debugged_parcel.py", PARCEL)
    given = json.dumps({"parcel": "vase"})
    result = "false\n"
    ended = workdir.run("run", f"{file}:send", "--input", given, "--run-id", "p1", stdin=result)
    assert ended.exit_code == exits.FAILED, ended.output
    return workdir


CODE = ("--code", "debugged_parcel.py")


def test_the_state_at_an_event_has_the_stacks_of_the_tasks(
    failed_run: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = failed_run.run("trace", "p1", "--format", "events").stdout
    shown = failed_run.run("show", "p1", "--at", str(ASKED), *CODE, "--locals").stdout
    assert "status      waiting:human" in shown
    assert (
        """\
  task[2]
    debugged_parcel.py:13 approve
      return await ask(question, bool)
        parcel = 'vase'
        question = 'Send vase?'
    awaits human.asked at task[2]/ask, event 5
"""
        in shown
    )
    output = failed_run.run_json("show", "p1", "--at", str(ASKED), *CODE)
    assert (output["status"], output["at"], output["stacks"]["same_code"]) == ("waiting:human", ASKED, True)
    assert [task["task"] for task in output["stacks"]["tasks"]] == ["", "task[1]", "task[2]"]
    assert output["stacks"]["tasks"][2]["effect"]["key"] == "task[2]/ask#1.1!ask"
    assert "failed: ValueError: not approved: 800" in failed_run.run("show", "p1", "--at", "10", *CODE).stdout

    monkeypatch.setattr(hosted, "HOSTED", {})
    failed_run.write("debugged_parcel.py", f"# A comment.\n{PARCEL}")
    changed = failed_run.run("show", "p1", "--at", str(ASKED), *CODE).stdout
    assert "The code differs from the code that ran" in changed
    assert "debugged_parcel.py:14 approve" in changed

    monkeypatch.setattr(hosted, "HOSTED", {})
    failed_run.write("debugged_parcel.py", PARCEL.replace("weigh(parcel)", "weigh(parcel * 2)", 1))
    diverged = failed_run.run("show", "p1", "--at", str(ASKED), *CODE)
    assert (diverged.exit_code, "status      waiting:human" in diverged.stdout) == (exits.OK, True)
    assert "replay.diverged" in diverged.stdout

    monkeypatch.setattr(hosted, "HOSTED", {})
    without = failed_run.run("show", "p1", "--at", str(ASKED))
    assert (without.exit_code, "status      waiting:human" in without.stdout) == (exits.OK, True)
    assert "--code MODULE|FILE|FOLDER" in without.stdout
    assert failed_run.run_json("show", "p1", "--at", str(ASKED))["stacks_error"]["code"] == "code.unknown"

    assert "replay.no_event" in failed_run.run("show", "p1", "--at", "99").output
    assert failed_run.run("show", "p1", "--locals").exit_code == exits.USAGE
    assert failed_run.run("trace", "p1", "--format", "events").stdout == events


def test_pdb_opens_in_the_frames_of_a_task_and_performs_no_effect(failed_run: Workdir) -> None:
    typed = """\
task
task task[2]
w
u
p parcel
d
p question
l
!open('typed.txt', 'w')
!import os; os.system('touch typed.txt')
p asyncio.run(None)
task nothing
run
"""
    shown = failed_run.run("debug", "p1", "--at", str(ASKED), *CODE, stdin=typed)
    assert shown.exit_code == exits.OK
    expected = (
        "-> 0 the workflow  debugged_parcel.py:17 send",
        "   2 task[2]  debugged_parcel.py:13 approve",
        "debugged_parcel.py(13)approve()",
        "(Pdb) 'vase'",
        "(Pdb) 'Send vase?'",
        "13  ->\t    return await ask(question, bool)",
        "opens a file 'typed.txt'",
        "starts a process",
        "cannot be called from a running event loop",
        "*** there is no task 'nothing'",
        "*** a past run cannot be run here",
    )
    left = shown.output
    for text in expected:
        assert text in left, (text, shown.output)
        left = left.partition(text)[2]
    assert not (failed_run.folder / "typed.txt").exists()

    raised = failed_run.run("debug", "p1", *CODE, stdin="p approved, cents\nq\n")
    assert "(Pdb) (False, 800)" in raised.output
    chosen = failed_run.run("debug", "p1", "--at", str(ASKED), "--task", "1", *CODE, stdin="p parcel\n")
    assert "debugged_parcel.py(9)price()" in chosen.output
    refused = failed_run.run("debug", "p1", "--at", str(ASKED), "--task", "nothing", *CODE)
    assert (refused.exit_code, "debug.no_task" in refused.output) == (exits.FAILED, True)
    early = failed_run.run("debug", "p1", "--at", "1", *CODE)
    assert (early.exit_code, "debug.no_frames" in early.output) == (exits.FAILED, True)
    assert failed_run.run("debug", "p1", "--json", *CODE).exit_code == exits.USAGE


def test_a_fork_has_the_frames_of_the_shared_part_and_its_own(workdir: Workdir) -> None:
    file = workdir.write("debugged_parcel.py", PARCEL)
    with workdir.up("--code", file):
        workdir.run_json("start", "send", "--input", '{"parcel": "vase"}', "--run-id", "p1")
        assert workdir.run("watch", "p1", "--until", "human.asked").exit_code == exits.OK
        assert workdir.run("answer", "p1", "false").exit_code == exits.OK
        workdir.run("watch", "p1", "--until", "run.end")
        workdir.run_json("fork", "p1", "--at", str(ASKED), "--run-id", "p2")
        assert workdir.run("watch", "p2", "--until", "run.parked").exit_code == exits.OK
        events = workdir.events("p2")
        for at in (ASKED, events[-1]["n"]):
            tasks = workdir.run_json("show", "p2", "--at", str(at), "--code", file)["stacks"]["tasks"]
            asking = next(task for task in tasks if task["task"] == "task[2]")
            assert [frame["function"] for frame in asking["frames"]] == ["approve"]
            assert asking["effect"]["type"] == "human.asked"
