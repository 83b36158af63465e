"""Exceptions outside of the class `Exception` fail the workflow or step that raises them, and never end the worker."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from callboard import RequestRefused, Runtime, StepFailed, step, workflow
from callboard.lib.foreign_errors import is_foreign
from callboard.testing import Scenario
from tests.support.scenarios import find_failure


class Stopped(BaseException):
    """An exception of a library."""


RAISED = {
    "SystemExit": SystemExit("bye"),
    "KeyboardInterrupt": KeyboardInterrupt("bye"),
    "GeneratorExit": GeneratorExit("bye"),
    "CancelledError": asyncio.CancelledError("bye"),
    "Stopped": Stopped("bye"),
    "KeyError": KeyError("bye"),
}


def fail(name: str) -> None:
    raise RAISED[name].with_traceback(None)


@step
async def failing(name: str) -> None:
    fail(name)


@step
def failing_on_a_thread(name: str) -> None:
    fail(name)


@step
async def grouped(name: str) -> None:
    raise BaseExceptionGroup("several", [RAISED[name].with_traceback(None)])


STEPS = {one.name: one for one in (failing, failing_on_a_thread, grouped)}


@workflow
async def stepping(how: str, name: str) -> list[str]:
    """Call a step that fails, then another one."""
    try:
        await STEPS[how](name)
    except StepFailed as error:
        return [error.code, error.type, await fine()]
    return ["went on"]


@step
async def fine() -> str:
    return "fine"


@workflow
async def raising(name: str) -> None:
    await fine()
    fail(name)


@workflow
async def raising_in_a_group(name: str) -> None:
    async def inner() -> None:
        await fine()
        fail(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(inner())


class Strict(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def check(cls, name: str) -> str:
        if name in RAISED:
            fail(name)
        return name


@workflow
async def taking(strict: Strict) -> str:
    return strict.name


@workflow
async def giving(name: str) -> Strict:
    return Strict.model_construct(name=name)


@step
async def give(name: str) -> Strict:
    return Strict.model_construct(name=name)


@workflow
async def taking_from_a_step(name: str) -> str:
    try:
        return (await give(name)).name
    except StepFailed as error:
        return error.code


@pytest.fixture(scope="module")
async def runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Runtime]:
    code = [stepping, raising, raising_in_a_group, taking, giving, taking_from_a_step]
    async with Runtime(data_dir=tmp_path_factory.mktemp("state"), code=code) as runtime:
        yield runtime


@pytest.mark.parametrize("name", RAISED)
def test_a_step_fails_whichever_exception_it_raises(name: str, scenario: Scenario) -> None:
    scenario.start(stepping, input={"how": "failing", "name": name})
    assert scenario.result.output == ["step.failed", name, "fine"]
    scenario.crash_everywhere()


@pytest.mark.parametrize("name", [name for name in RAISED if name != "CancelledError"])
def test_a_run_fails_whichever_exception_its_workflow_raises(name: str, scenario: Scenario) -> None:
    scenario.start(raising, input={"name": name})
    error = find_failure(scenario)
    assert error.code == ("python.exit" if name in ("SystemExit", "KeyboardInterrupt") else "python.failed")
    assert "test_base_exceptions.py:" in error.message
    scenario.crash_everywhere()


@pytest.mark.parametrize("how", STEPS)
async def test_a_worker_continues_after_a_step_raises(how: str, runtime: Runtime) -> None:
    for name in RAISED:
        run = await runtime.start(stepping, input={"how": how, "name": name})
        found: Any = (await run.result()).output
        assert (found[0], found[2]) == ("step.failed", "fine")


@pytest.mark.parametrize("failing_workflow", [raising, raising_in_a_group, giving])
async def test_a_worker_performs_the_next_run_after_a_workflow_raises(failing_workflow: Any, runtime: Runtime) -> None:
    for name in RAISED:
        if (name, failing_workflow) == ("CancelledError", raising_in_a_group):
            continue  # a task group ignores a task that has cancelled itself
        assert (await (await runtime.start(failing_workflow, input={"name": name})).result()).status == "failed"
    assert (await (await runtime.start(taking, input={"name": "ada"})).result()).output == "ada"


async def test_a_value_whose_validator_raises_is_refused(runtime: Runtime) -> None:
    for name in RAISED:
        with pytest.raises(RequestRefused, match=name):
            await runtime.start(taking, input={"name": name})
        run = await runtime.start(taking_from_a_step, input={"name": name})
        assert (await run.result()).output == "step.bad_output"


async def test_a_cancellation_or_a_close_is_not_foreign() -> None:
    caught: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(1000)
        except BaseException as error:
            caught.append(is_foreign(error))
            raise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    coro = wait()
    coro.send(None)
    coro.close()
    assert caught == [False, False]


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        pass


async def interrupt_twice() -> None:
    os.kill(os.getpid(), signal.SIGINT)  # cancels the main task
    interrupt()


@pytest.mark.parametrize("call", [interrupt, lambda: asyncio.run(interrupt_twice())], ids=["plain", "asyncio"])
def test_ctrl_c_is_not_foreign(call: Any) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        call()
    assert not is_foreign(caught.value)
