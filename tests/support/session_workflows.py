"""Workflows whose runs share sessions."""

from typing import Any

from callboard import Agent, StepFailed, session, workflow

clerk = Agent("clerk", system="Be fair.")


@workflow
async def keeping(key: str, texts: list[str], drop: bool = False) -> dict[str, Any]:
    notes = session(key, expires="1h", items_max=4)
    before = await notes.items()
    await notes.append(*texts)
    latest = await notes.items(1)
    popped = await notes.pop()
    if drop:
        await notes.forget()
    return {"before": before, "latest": latest, "popped": popped, "after": await notes.items()}


@workflow
async def chatting(key: str, texts: list[str]) -> list[str]:
    return [(await clerk.run(text, session=session(key))).text for text in texts]


@workflow
async def overfull(key: str) -> str:
    try:
        await session(key).append("x" * 600_000)
    except StepFailed as failed:
        return failed.code
    return ""
