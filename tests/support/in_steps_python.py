"""Workflows whose steps ask, or use an agent, where no person can be asked."""

import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

from callboard import Agent, Approve, ask, step, workflow
from callboard.languages.python.in_steps import NeedsPerson, refuse_in_step


async def pay() -> str:
    return "paid"


GUARDED = Agent("clerk", tools=[pay], approve=[Approve(tools=["pay"])])


@step
async def asking() -> str:
    with suppress(BaseException):
        return await ask("Pay?", str)
    return "nobody was asked"


@step(retries=3)
async def using_an_agent() -> str:
    return (await GUARDED.run("Pay.")).text


@workflow
async def inner() -> str:
    return await ask("Pay?", str)


@step
async def calling_a_workflow() -> str:
    return await inner()


@step
def on_a_thread() -> str:
    def work() -> None:
        with suppress(Exception):
            refuse_in_step("agent clerk", "calls pay")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return "ignored"


def attempt() -> str:
    """Try a forbidden action of a step, in a separate process."""
    try:
        refuse_in_step("agent clerk", "calls pay")
    except NeedsPerson as refused:
        return str(refused)
    return "made"


@step
def in_a_process() -> str:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(attempt).result()


STEPS: dict[str, Any] = {one.name: one for one in (asking, using_an_agent, calling_a_workflow, on_a_thread)}

delegating = Agent("front", tools=[asking])


@workflow
async def desk(name: str) -> str:
    with suppress(Exception):
        return await STEPS[name]()
    return "caught"


@workflow
async def agents_desk() -> str:
    return (await delegating.run("Pay.")).text


@workflow
async def process_desk() -> str:
    return await in_a_process()
