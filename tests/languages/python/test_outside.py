"""Outside of a run, workflows and steps are plain functions, whose failures are those of a run."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from callboard import ChildFailed, StepFailed, child, step, step_context, workflow
from callboard.testing import Scenario


class Declined(Exception):
    pass


@step(retries=5)
async def charge(cents: int) -> str:
    raise Declined("no money")


@step
def charge_on_a_thread(cents: int) -> str:
    raise Declined("no money")


@step(process=True)
def charge_in_a_process(cents: int) -> str:
    raise Declined("no money")


@step
async def charge_by_another(cents: int) -> str:
    try:
        return await charge(cents)
    except Declined:
        return "the other step has raised its own exception"


@workflow
async def buy(way: str) -> list[Any]:
    ways: dict[str, Callable[[int], Any]] = {
        "loop": charge,
        "thread": charge_on_a_thread,
        "process": charge_in_a_process,
        "another": charge_by_another,
    }
    try:
        return [await ways[way](5)]
    except StepFailed as failed:
        return ["released", failed.type]


@workflow
async def failing(n: int) -> None:
    await charge(n)


@workflow
async def starting_a_failing_child() -> list[Any]:
    try:
        await child(failing, {"n": 1})
    except ChildFailed as failed:
        return [failed.status, failed.code]
    return []


@pytest.mark.parametrize("way", ["loop", "thread", "process", "another"])
def test_a_step_fails_outside_of_a_run_as_in_one(way: str, scenario: Scenario) -> None:
    scenario.start(buy, input={"way": way}).advance(minutes=5)
    assert asyncio.run(buy(way)) == scenario.result.output


def test_a_failing_step_has_its_exception_as_the_cause() -> None:
    with pytest.raises(StepFailed, match="step charge raised Declined: no money") as caught:
        asyncio.run(charge(1))
    assert isinstance(caught.value.__cause__, Declined)
    assert (caught.value.code, caught.value.type) == ("step.failed", "Declined")


def test_a_child_fails_outside_of_a_run_as_in_one(scenario: Scenario) -> None:
    scenario.start(starting_a_failing_child).advance(minutes=5)
    assert scenario.result.output == ["failed", "step.failed"]
    assert asyncio.run(starting_a_failing_child()) == ["failed", "step.failed"]


@step(process=True)
def context_in_a_process() -> list[str]:
    context = step_context()
    return [context.run, context.path, context.idempotency_key]


@workflow
async def with_a_context() -> list[str]:
    return await context_in_a_process()


def test_a_step_in_a_process_has_the_context_of_its_call(scenario: Scenario) -> None:
    scenario.start(with_a_context)
    run, path, key = scenario.result.output
    assert (run, path) == ("run-1", "context_in_a_process")
    assert key
    scenario.crash_everywhere()
