"""The workloads as workflows in Python. Callboard's workers host this file; it imports nothing but Callboard."""

import asyncio

from callboard import step, workflow


@step
async def nothing() -> None:
    """Do nothing, durably."""


@workflow
async def chain(steps: int) -> None:
    for _ in range(steps):
        await nothing()


@workflow
async def wide(width: int) -> None:
    await asyncio.gather(*(nothing() for _ in range(width)))
