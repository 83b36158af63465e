"""The failure of a run keeps what its exception has: members of groups, notes, causes, and the lines of the code."""

import asyncio
from itertools import count

import pytest

from callboard import step, workflow
from callboard.testing import Scenario
from tests.support.places import ROOT
from tests.support.scenarios import find_failure


@step
async def refuse(n: int) -> None:
    raise ValueError(f"no {n}")


@workflow
async def noted() -> None:
    error = ValueError("the base")
    error.add_note("a helpful note")
    raise error from KeyError("the cause")


@workflow
async def in_context() -> None:
    try:
        raise KeyError("the first")
    except KeyError:
        raise ValueError("the second")  # noqa: B904


@workflow
async def grouped() -> None:
    inner = ExceptionGroup("inner", [KeyError("second"), TypeError("third")])
    raise ExceptionGroup("outer", [ValueError("first"), inner])


@workflow
async def tasks() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(refuse(1))
        group.create_task(wait_and_refuse())


async def wait_and_refuse() -> None:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        raise LookupError("while it was cancelled") from None


COUNTED = count()


@workflow
async def numbered() -> None:
    error = ValueError("the message")
    error.add_note(f"a number that differs in each replay: {next(COUNTED)}")
    raise error


@workflow
async def long() -> None:
    raise ValueError("x" * 3_000) from ValueError("y" * 3_000)


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (
            noted,
            ["the base", "a helpful note", "KeyError: 'the cause'", "direct cause", "in noted", "raise error from"],
        ),
        (in_context, ["the first", "the second", "During handling"]),
        (grouped, ["outer (2 sub-exceptions)", "ValueError: first", "KeyError: 'second'", "TypeError: third"]),
        (tasks, ["callboard.StepFailed: step refuse raised ValueError: no 1", "LookupError: while it was cancelled"]),
    ],
    ids=["notes and cause", "context", "groups", "a task group"],
)
def test_a_failed_run_keeps_all_of_its_exception(failing: object, expected: list[str], scenario: Scenario) -> None:
    scenario.start(failing)  # pyright: ignore[reportArgumentType]
    error = find_failure(scenario)
    traceback = error.details["traceback"]
    assert [text for text in expected if text not in traceback] == []
    assert "no running event loop" not in traceback
    assert str(ROOT) not in traceback, "files have their names in the code"
    scenario.crash_everywhere()


def test_a_note_may_differ_in_a_replay() -> None:
    with Scenario() as scenario:
        scenario.start(numbered)
        assert scenario.result.error is not None
        assert scenario.result.error.code == "python.failed"
        scenario.crash_everywhere()


def test_a_long_traceback_keeps_its_end() -> None:
    with Scenario() as scenario:
        scenario.start(long)
        error = scenario.result.error
        assert error is not None
        assert len(error.details["traceback"]) < 4_100
