"""Prints of a workflow go to stderr once, and replays print nothing. Prints of other code go to stdout."""

import asyncio
import sys

import pytest

from callboard import step, workflow
from callboard.languages.python.output import printing
from callboard.testing import Scenario


@step
async def echo(n: int) -> int:
    print(f"step {n}")
    return n


@workflow
async def talking() -> int:
    print("before")
    sys.stdout.writelines(["written", "\n"])
    found = await asyncio.gather(echo(1), echo(2))
    print("to stderr", file=sys.stderr)
    print("after", end="!\n", flush=True)
    return sum(found)


def test_prints_of_a_workflow_go_to_stderr_once(capsys: pytest.CaptureFixture[str], scenario: Scenario) -> None:
    scenario.start(talking)
    assert scenario.result.output == 3
    scenario._check()  # pyright: ignore[reportPrivateUsage] - it replays the run once more
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["step 1", "step 2"]
    assert shown.err.splitlines() == ["before", "written", "to stderr", "after!"]


def test_outside_of_a_run_prints_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(talking())
    assert capsys.readouterr().out.splitlines() == ["before", "written", "step 1", "step 2", "after!"]


def test_prints_of_other_code_go_to_stdout_while_a_workflow_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with printing(lambda: None):
        print("of another thread")
        assert sys.stdout.encoding
    with printing(lambda: False):
        print("of a replay")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("of another thread\n", "")
