"""Context variables that a workflow has set have their values in its steps."""

import asyncio
from contextvars import ContextVar
from pathlib import Path

import anyio

from callboard import Runtime, step, workflow
from callboard.bus.work import WORK
from callboard.languages.python.variables import variables_of
from callboard.testing import Scenario

TENANT = ContextVar("tenant", default="nobody")


@step(retries=1, backoff=0)
async def ask_on_the_loop() -> list[str]:
    before = TENANT.get()
    TENANT.set("changed by the step")

    async def inner() -> str:
        return TENANT.get()

    return [before, await asyncio.create_task(inner())]


@step
def ask_on_a_thread() -> list[str]:
    before = TENANT.get()
    TENANT.set("changed by the step")
    return [before]


@workflow
async def asking() -> list[list[str]]:
    found = [await ask_on_the_loop(), await ask_on_a_thread()]

    async def branch(name: str) -> list[str]:
        TENANT.set(name)
        await asyncio.sleep(0)
        return [(await ask_on_the_loop())[0], (await ask_on_a_thread())[0]]

    TENANT.set("ada")
    found += await asyncio.gather(branch("grace"), branch("alan"))
    return [*found, await ask_on_the_loop(), await ask_on_a_thread(), [TENANT.get()]]


CHANGED = "changed by the step"
EXPECTED = [["nobody", CHANGED], ["nobody"], ["grace", "grace"], ["alan", "alan"], ["ada", CHANGED], ["ada"], ["ada"]]


def test_variables_of_the_workflow_reach_its_steps_also_after_a_crash(scenario: Scenario) -> None:
    scenario.start(asking)
    assert scenario.result.output == EXPECTED
    scenario.crash_everywhere()


async def test_variables_reach_the_code_loop_and_the_threads_of_a_worker(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path, code=[asking]) as runtime:
        run = await runtime.start(registered="asking")
        with anyio.fail_after(60):
            assert (await run.result()).output == EXPECTED


def test_variables_reach_steps_outside_of_a_run() -> None:
    async def outside() -> list[str]:
        TENANT.set("ada")
        return [(await ask_on_the_loop())[0], (await ask_on_a_thread())[0], TENANT.get()]

    assert asyncio.run(outside()) == ["ada", "ada", "ada"]


def test_variables_of_libraries_stay_in_the_workflow() -> None:
    other = ContextVar("other", default="")
    token, mine = other.set("x"), TENANT.set("ada")
    try:
        assert variables_of("/nowhere/", {"TENANT": TENANT, "WORK_": WORK}) == [(TENANT, "ada")]
    finally:
        other.reset(token)
        TENANT.reset(mine)
