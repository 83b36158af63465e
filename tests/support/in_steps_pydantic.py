"""Agents of Pydantic AI that work in the body of a tool or a step, where no person can be asked."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, FunctionToolset, RunContext
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool

from callboard import step, workflow
from callboard.adapters.pydantic_ai import Durable, durable

MADE: list[str] = []
"""The calls that were made."""


@dataclass
class Deps:
    """The way by which a tool gets its agent, so that its code does not name it."""

    work: Callable[[], Awaitable[Any]]


async def pay() -> str:
    """Pay."""
    MADE.append("pay")
    return "paid"


async def pay_on_consent(ctx: RunContext[None]) -> str:
    """Pay."""
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return await pay()


def clerk(*tools: Any, **more: Any) -> Any:
    return Agent(TestModel(), name="clerk", tools=list(tools), **more)


CAREFUL = FunctionToolset[None]()
CAREFUL.add_function(pay, requires_approval=True)
ANY: Any = [str, DeferredToolRequests]

GUARDED = clerk(pay, capabilities=[Durable(approve=["pay"])])
ASKING = clerk(toolsets=[CAREFUL], output_type=ANY, capabilities=[Durable()])
ASKING_LATE = clerk(pay_on_consent, output_type=ANY, capabilities=[Durable()])
LATER = durable(clerk(pay), approve=["pay"])
FREE = clerk(pay, capabilities=[Durable(approve=["other"])])
READING = clerk(pay)


async def caught() -> str:
    with suppress(BaseException):
        await GUARDED.run("Pay.")
    return "caught"


async def streamed() -> str:
    async with GUARDED.run_stream("Pay.") as result:
        return await result.get_output()


async def in_task() -> Any:
    return await asyncio.gather(GUARDED.run("Pay."), return_exceptions=True)


WAYS: dict[str, Callable[[], Awaitable[Any]]] = {
    "by its capability": lambda: GUARDED.run("Pay."),
    "by the tool": lambda: ASKING.run("Pay."),
    "by the function of the tool": lambda: ASKING_LATE.run("Pay."),
    "made durable": lambda: LATER.run("Pay."),
    "streamed": streamed,
    "in a task": in_task,
    "caught": caught,
}
REFUSED = set(WAYS)
"""Bodies of tools that must not continue without a person."""

WAYS["free"] = lambda: FREE.run("Pay.")
WAYS["plain"] = lambda: READING.run("Pay.")

front = Agent(TestModel(), name="front", deps_type=Deps, capabilities=[Durable()])


@front.tool
async def delegate(ctx: RunContext[Deps]) -> str:
    return str(await ctx.deps.work())


@step
async def delegate_in_step(how: str) -> str:
    return str(await WAYS[how]())


@workflow
async def desk(how: str) -> str:
    return (await front.run("Pay.", deps=Deps(WAYS[how]))).output


@workflow
async def search_desk() -> str:
    agent: Any = Agent(TestModel(), name="clerk", capabilities=[NativeTool(WebSearchTool()), Durable(approve="*")])
    return (await agent.run("Pay.")).output


@workflow
async def step_desk(how: str) -> str:
    return await delegate_in_step(how)
