"""A first workflow: it greets several people at once."""

import asyncio

from callboard import step, workflow


@step(retries=2, timeout="10s")
async def greet(name: str) -> str:
    """Write a greeting. Each call is recorded, and is repeated only if it fails."""
    return f"Good morning, {name}."


@workflow
async def greetings(names: list[str]) -> list[str]:
    """Greet several people at once."""
    return await asyncio.gather(*(greet(name) for name in names))
