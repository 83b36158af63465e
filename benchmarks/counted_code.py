"""The workflow in Python of `benchmarks.counts`. The counted worker hosts this file."""

from callboard import step, workflow


@step
async def nothing() -> None:
    """Do nothing, durably."""


@workflow
async def chain(steps: int) -> None:
    for _ in range(steps):
        await nothing()
