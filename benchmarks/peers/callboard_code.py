"""The workloads as workflows in Python. Callboard's workers host this file."""

import asyncio
import os
from pathlib import Path

from provider import MODEL
from workloads import Marks

from callboard import generate, step, workflow

marks = Marks(Path(os.environ["PEERS_FOLDER"]))


@step
async def nothing() -> None:
    """Do nothing, durably."""


@step
async def mark() -> None:
    marks.mark()


@step
async def hold(run: str) -> None:
    await marks.hold(run)


@workflow
async def chain(size: int, run: str) -> None:
    for _ in range(size):
        await nothing()


@workflow
async def wide(size: int, run: str) -> None:
    await asyncio.gather(*(nothing() for _ in range(size)))


@workflow
async def marked(size: int, run: str) -> None:
    for _ in range(size):
        await mark()


@workflow
async def held(size: int, run: str) -> None:
    await mark()
    await hold(run)


@workflow
async def said(size: int, run: str) -> str:
    return await generate("Go.", model=f"anthropic:{MODEL}")
