"""Programs with the Claude Agent SDK that the tests of its adapter perform: agents as their users write them."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    TextBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)
from mcp.types import ToolAnnotations

from callboard import step_context, workflow
from callboard.adapters.claude_agent import ClaudeSDKClient, query

MADE: list[str] = []
"""The calls of the tools in the worker."""

KEYS: list[str] = []
"""The idempotency keys of these calls."""

READ_ONLY = ToolAnnotations.model_validate({"readOnlyHint": True})


@tool("price", "Return what an order has cost.", {"order": str}, annotations=READ_ONLY)
async def price(given: dict[str, Any]) -> dict[str, Any]:
    MADE.append(f"price {given['order']}")
    KEYS.append(step_context().idempotency_key)
    return {"content": [{"type": "text", "text": "500"}]}


@tool("refund", "Pay money back.", {"order": str, "cents": int})
async def refund(given: dict[str, Any]) -> dict[str, Any]:
    MADE.append(f"refund {given['order']} {given['cents']}")
    KEYS.append(step_context().idempotency_key)
    return {"content": [{"type": "text", "text": f"paid {given['cents']}"}]}


SHOP = create_sdk_mcp_server("shop", tools=[price, refund])

OPTIONS = ClaudeAgentOptions(
    system_prompt="Be fair.",
    model="claude-sonnet-5",
    mcp_servers={"shop": SHOP},
    allowed_tools=["mcp__shop__price", "mcp__shop__refund"],
)

APPROVE = ["mcp__shop__refund", "Bash"]


async def told(messages: Any) -> dict[str, Any]:
    """Return the messages as a program sees them."""
    texts: list[str] = []
    results: list[Any] = []
    ended: list[Any] = []
    async for message in messages:
        match message:
            case AssistantMessage(content=content):
                texts += [block.text for block in content if isinstance(block, TextBlock)]
            case UserMessage(content=list() as content):
                results += [getattr(block, "content", None) for block in content]
            case ResultMessage():
                ended.append([message.subtype, message.result])
            case _:
                pass
    return {"texts": texts, "results": [_text(one) for one in results], "ended": ended}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


@workflow
async def complaint(text: str) -> dict[str, Any]:
    return await told(query(prompt=text, options=OPTIONS, approve=APPROVE))


@workflow
async def chat(texts: list[str]) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    async with ClaudeSDKClient(OPTIONS, approve=APPROVE, name="clerk") as client:
        for text in texts:
            await client.query(text)
            said.append(await told(client.receive_response()))
    return said


@workflow
async def resumed(first: str, second: str) -> list[str]:
    found: list[str] = []
    session: str | None = None
    for text in (first, second):
        options = ClaudeAgentOptions(model="claude-sonnet-5", resume=session)
        async for message in query(prompt=text, options=options):
            if isinstance(message, ResultMessage):
                session = message.session_id
                found.append(message.result or "")
    return found


@workflow
async def listened(texts: list[str]) -> list[str]:
    """A task that takes the messages of all queries, while others are made."""
    heard: list[str] = []
    async with ClaudeSDKClient(OPTIONS) as client:

        async def listen() -> None:
            async for message in client.receive_messages():
                if isinstance(message, ResultMessage):
                    heard.append(message.result or "")

        listening = asyncio.create_task(listen())
        for text in texts:
            await client.query(text)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(listening), 60)
        listening.cancel()
        try:
            await client.interrupt()
        except TypeError as error:
            heard.append(str(error).split(";")[0])
    return heard


@workflow
async def plain() -> None:
    """An agent without the line that makes it durable."""
    async for _message in claude_agent_sdk.query(prompt="Hello."):
        pass


@workflow
async def stranger() -> None:
    async for _message in query(
        prompt="Hello.", options=ClaudeAgentOptions(resume="11111111-0000-0000-0000-000000000000")
    ):
        pass


@workflow
async def offline(url: str, cwd: str) -> dict[str, Any]:
    """The SDK's own program, which asks the API at ``url``."""
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    options = replace(OPTIONS, env=env, cwd=cwd, setting_sources=[], tools=["Bash"])
    return await told(query(prompt="Build it.", options=options, approve=APPROVE))


INNER: list[str] = []
"""How the tool `delegate` asks another agent."""


@tool("delegate", "Have another agent do it.", {})
async def delegate(_given: dict[str, Any]) -> dict[str, Any]:
    with suppress(Exception):
        if INNER == ["client"]:
            async with ClaudeSDKClient(approve=["Bash"], name="clerk") as client:
                await client.query("Build it.")
        else:
            await told(query(prompt="Build it.", approve=["Bash"], name="clerk"))
    return {"content": [{"type": "text", "text": "built"}]}


@workflow
async def delegating() -> dict[str, Any]:
    servers = {"office": create_sdk_mcp_server("office", tools=[delegate])}
    options = ClaudeAgentOptions(mcp_servers=servers, allowed_tools=["mcp__office__delegate"])  # type: ignore[arg-type]
    return await told(query(prompt="Build it.", options=options))
