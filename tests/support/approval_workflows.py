"""Workflows whose agents' calls wait for approval."""

from typing import Any

from callboard import Agent, Approve, ModelFailed, step, workflow


@step
async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return f"{order}: {cents}"


@step
async def look_up(order: str) -> str:
    """Return the state of an order."""
    return f"{order} is paid"


careful = Agent("clerk", tools=[refund, look_up], approve=["refund"])
limited = Agent("clerk", tools=[refund, look_up], approve=lambda tool, given: given.get("cents", 0) > 100)
once = Agent("clerk", tools=[refund], approve=Approve(once=True, to="ada"))
patient = Agent("clerk", tools=[refund], approve=[Approve(tools=["refund"], expires="1h")])
strict = Agent("clerk", tools=[refund], approve=Approve(expires=3600, on_expiry="fail", channel="slack", to="ada"))


@workflow
async def refunding(text: str) -> str:
    return (await careful.run(text)).text


@workflow
async def refunding_large(text: str) -> str:
    return (await limited.run(text)).text


@workflow
async def refunding_once(text: str) -> str:
    return (await once.run(text)).text


@workflow
async def refunding_in_time(text: str) -> str:
    return (await patient.run(text)).text


@workflow
async def refunding_or_failing(text: str) -> Any:
    try:
        return (await strict.run(text)).text
    except ModelFailed as failed:
        return failed.code
