"""Workflows whose models are asked by code of the workflow, as an adapter of an SDK does."""

import asyncio
from collections.abc import Callable
from typing import Any

from callboard import step_context, workflow
from callboard.bus.effects import Message, ModelRequest, Text, ToolOutput, ToolSpec, ToolUse, Usage, user
from callboard.bus.work import TurnReply
from callboard.languages.python.model_turns import ModelTurns

MODEL = "openai:gpt-4.1"
TOOLS = [ToolSpec("look_up", "Look an order up.")]

ASKED: list[str] = []
"""The idempotency keys of the requests that `answer_like` has answered."""

FAILURES: list[BaseException] = []
"""The exceptions that the next requests raise, in order."""


class Refused(Exception):
    """A refusal of an HTTP API."""

    def __init__(self, status: int, message: str = "slow down") -> None:
        super().__init__(message)
        self.status_code = status


def answer_like(reply: TurnReply, *pieces: str) -> Callable[[Callable[[str], None]], Any]:
    async def call(on_text: Callable[[str], None]) -> TurnReply:
        ASKED.append(step_context().idempotency_key)
        await asyncio.sleep(0)
        if FAILURES:
            raise FAILURES.pop(0)
        for piece in pieces:
            on_text(piece)
        return reply

    return call


CALLS = TurnReply(
    text="Let me see.",
    tool_calls=[ToolUse("c1", "look_up", {"order": "a1"})],
    usage=Usage(10, 2),
    response_model="gpt-4.1-2025",
    native={"thinking": "hm", "id": "r1"},
)
DONE = TurnReply(text="Paid.", usage=Usage(20, 3), stop_reason="stop", native={"id": "r2"})


@workflow
async def conversation() -> dict[str, Any]:
    """Two turns, the second of which continues the first, and a third in another conversation."""
    turns = ModelTurns("clerk")
    asked = ModelRequest(model=MODEL, system="Be fair.", messages=[user("Where is it?")], tools=TOOLS, temperature=0.5)
    first = await turns.perform(asked, answer_like(CALLS, "Let me ", "see."))
    use = first.tool_calls[0] if first.tool_calls else ToolUse("?", "?", {})
    said = Message("assistant", [Text("Let me "), Text("see."), use])
    after = [*asked.messages, said, Message("user", [ToolOutput(use.id, output={"cents": 500})])]
    second = await turns.perform(
        ModelRequest(model=MODEL, system="Be fair.", messages=after, tools=TOOLS), answer_like(DONE)
    )
    third = await turns.perform(ModelRequest(model=MODEL, messages=[user("Thanks.")]), answer_like(DONE))
    return {"native": [first.native, second.native], "texts": [first.text, second.text, third.text]}


@workflow
async def failing() -> str:
    turns = ModelTurns("clerk")
    request = ModelRequest(model=MODEL, messages=[user("?")])
    return (await turns.perform(request, answer_like(DONE), note=lambda error: {"said": str(error)})).text
