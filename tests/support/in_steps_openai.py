"""Agents of the OpenAI Agents SDK that work in the body of a tool or a step, where no person can be asked."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from typing import Any

from agents import Agent, HostedMCPTool, RunConfig, Runner, ShellTool, WebSearchTool, function_tool
from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool
from openai.types.responses.response_output_item import McpApprovalRequest

from callboard import step, workflow
from callboard.adapters.openai_agents import callboard_run_config
from tests.support.openai_agents_model import PlayedModel, calls

MADE: list[str] = []
"""The calls that were made."""

Run = Callable[[], Awaitable[str]]


@function_tool
def pay(cents: int) -> str:
    MADE.append(f"pay {cents}")
    return "paid"


@function_tool(needs_approval=True)
def pay_carefully(cents: int) -> str:
    MADE.append(f"pay {cents}")
    return "paid"


@function_tool
def look_up(order: str) -> str:
    MADE.append(f"look_up {order}")
    return "500"


def clerk_with(*tools: Any, **call: Any) -> Agent[Any]:
    return Agent("clerk", model=PlayedModel("clerk", calls(**call), "Done."), tools=list(tools))


CLERK = clerk_with(pay, pay={"cents": 500})
CAREFUL = clerk_with(pay_carefully, pay_carefully={"cents": 500})
READER = clerk_with(look_up, pay, look_up={"order": "a1"})


PLAIN = RunConfig(tracing_disabled=True)


class Served(MCPServer):
    """A server with one tool."""

    @property
    def name(self) -> str:
        return "bank"

    async def connect(self) -> None: ...
    async def cleanup(self) -> None: ...
    async def list_prompts(self) -> Any: ...
    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[MCPTool]:
        return [MCPTool(name="wire", input_schema={"type": "object"})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        MADE.append(tool_name)
        return CallToolResult(content=[TextContent(type="text", text="wired")])


async def run(agent: Agent[Any], **settings: Any) -> str:
    return str((await Runner.run(agent, "Pay.", run_config=callboard_run_config(**settings))).final_output)


def pay_on_a_thread() -> None:
    def work() -> None:
        with suppress(Exception):
            asyncio.run(run(CLERK, approve=["pay"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


async def in_thread() -> str:
    pay_on_a_thread()
    return "ignored"


POOL, OTHER_POOL = ThreadPoolExecutor(1), ThreadPool(1)
"""Pools with threads that belong to no step."""


async def in_pool() -> str:
    return POOL.submit(lambda: asyncio.run(run(CLERK, approve=["pay"]))).result()


async def in_other_pool() -> str:
    return OTHER_POOL.apply(lambda: asyncio.run(run(CLERK, approve=["pay"])))


async def in_task() -> str:
    running = asyncio.create_task(run(CLERK, approve=["pay"]))
    await asyncio.wait([running])
    return "ignored" if running.exception() else running.result()


async def caught() -> str:
    try:
        return await run(CLERK, approve=["pay"])
    except BaseException:
        return "caught"


async def generated() -> str:
    async def pieces() -> AsyncIterator[str]:
        yield await run(CLERK, approve=["pay"])

    return "".join([piece async for piece in pieces()])


async def handed_over() -> str:
    front = Agent("front", model=PlayedModel("handing", calls(transfer_to_clerk={})), handoffs=[CAREFUL])
    return await run(front)


async def as_a_tool() -> str:
    first = CAREFUL.as_tool("ask_clerk", "Ask the clerk.")
    front = Agent("front", model=PlayedModel("asking", calls(ask_clerk={"input": "Pay."}), "Done."), tools=[first])
    return await run(front, approve=["no_such_tool"])


async def streamed() -> str:
    result = Runner.run_streamed(CLERK, "Pay.", run_config=callboard_run_config(approve=["pay"]))
    async for _ in result.stream_events():
        pass
    return str(result.final_output)


async def with_shell() -> str:
    shell = ShellTool(executor=lambda _request: MADE.append("shell") or "", needs_approval=True)
    model = PlayedModel("shell", "I have no shell.")
    return await run(Agent("clerk", model=model, tools=[shell]), approve=["shell"])


async def of_server() -> str:
    agent = Agent("clerk", model=PlayedModel("wiring", calls(wire={}), "Done."))
    agent.mcp_servers = [Served(require_approval="always")]
    return await run(agent)


REFUSED: dict[str, Run] = {
    "by its configuration": lambda: run(CLERK, approve=["pay"]),
    "by a condition": lambda: run(CLERK, approve=lambda tool, given: given.get("cents", 0) > 100),
    "by the tool": lambda: run(CAREFUL),
    "by a condition of the tool": lambda: run(
        clerk_with(function_tool(pay.__wrapped__, needs_approval=lambda *_: True), pay={"cents": 500})  # type: ignore
    ),
    "with arguments that cannot be read": lambda: run(clerk_with(pay_carefully, pay_carefully="{")),
    "without a configuration": lambda: Runner.run(CAREFUL, "Pay.", run_config=PLAIN),  # type: ignore
    "with an outer configuration": lambda: Runner.run(CLERK, "Pay.", run_config=PLAIN),  # type: ignore
    "in a thread": in_thread,
    "in a pool": in_pool,
    "in a pool of multiprocessing": in_other_pool,
    "in a task": in_task,
    "in a generator": generated,
    "caught": caught,
    "handed over": handed_over,
    "as a tool in the step": as_a_tool,
    "streamed": streamed,
    "of a server": of_server,
    "with a shell": with_shell,
}
"""Bodies of tools that must not continue without a person."""

CHOSEN: list[Run] = []


@function_tool
async def delegate() -> str:
    return str(await CHOSEN[0]())


@function_tool
def delegate_plainly() -> str:
    """A plain function."""
    pay_on_a_thread()
    return "ignored"


@step
async def delegate_in_step() -> str:
    return await run(CLERK, approve=["pay"])


def front(tool: Any, **more: Any) -> Agent[Any]:
    return Agent("front", model=PlayedModel("front", calls(**{tool.name: {}}), "Done."), tools=[tool], **more)


@workflow
async def desk() -> str:
    return await run(front(delegate), approve=["pay"])


@workflow
async def short_desk() -> str:
    """The output of the tool is the answer."""
    return await run(front(delegate, tool_use_behavior="stop_on_first_tool"))


@workflow
async def plain_desk() -> str:
    return await run(front(delegate_plainly))


@workflow
async def step_desk() -> str:
    return await delegate_in_step()


@workflow
async def nested_desk() -> str:
    """The agent with the tool is itself a tool, which returns failures to its model."""
    inner = front(delegate).as_tool("inner", "Delegate.")
    outer = Agent("outer", model=PlayedModel("outer", calls(inner={"input": "x"}), "Done."), tools=[inner])
    return await run(outer, approve=["pay"])


class Delegating(PlayedModel):
    """A model that lets an agent work while it answers."""

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> Any:
        with suppress(Exception):
            await run(CLERK, approve=["pay"])
        return await super().get_response(system_instructions, input, *more, **named)


@workflow
async def model_desk() -> str:
    return await run(Agent("front", model=Delegating("delegating", "Done.")))


@workflow
async def inline_desk() -> str:
    return await run(front(delegate), inline=["delegate"], approve=["other"])


# -- an agent whose provider calls tools of a server, and asks about them ----------------------------------------------


class Hosting(PlayedModel):
    """Asks for consent, and answers by what it gets."""

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> Any:
        response = await super().get_response(system_instructions, input, *more, **named)
        items = input if isinstance(input, list) else []
        answers = [one for one in items if one.get("type") == "mcp_approval_response"]
        if not answers:
            asked = McpApprovalRequest(
                id="ask-1", name="wire", arguments='{"cents": 5}', server_label="bank", type="mcp_approval_request"
            )
            response.output = [asked]
        return response


@workflow
async def search_desk() -> str:
    agent = Agent("clerk", model=PlayedModel("searching", "Done."), tools=[WebSearchTool()])
    return await run(agent, approve=["web_search"])


@workflow
async def hosted_desk() -> str:
    tool = HostedMCPTool({"type": "mcp", "server_label": "bank", "server_url": "https://bank.example"})
    result = await Runner.run(
        Agent("clerk", model=Hosting("hosting", "Done."), tools=[tool]), "Pay.", run_config=callboard_run_config()
    )
    [told] = [one.raw_item for one in result.new_items if one.type == "mcp_approval_response_item"]
    return f"{result.final_output} {told['approve']} {told.get('reason')}"


# -- agents in the workflow that have other settings than the agent in whose tool they are ---------------------------


@workflow
async def inner_desk() -> str:
    """The inline tool runs an agent with a configuration that demands nothing."""
    return await run(front(delegate), inline=["delegate"], approve=["pay"])


@workflow
async def inner_tool_desk() -> str:
    """The agent is a tool, with a configuration that demands nothing."""
    asked = CLERK.as_tool("ask_clerk", "Ask the clerk.", run_config=callboard_run_config())
    outer = Agent("front", model=PlayedModel("asking", calls(ask_clerk={"input": "Pay."}), "Done."), tools=[asked])
    return await run(outer, approve=["pay"])


@workflow
async def copied_desk() -> str:
    """The configuration is a copy."""
    copied = replace(callboard_run_config(approve=["pay"]), workflow_name="copied")
    return str((await Runner.run(CLERK, "Pay.", run_config=copied)).final_output)


@workflow
async def unrecorded_desk() -> str:
    return str((await Runner.run(CLERK, "Pay.", run_config=PLAIN)).final_output)


@workflow
async def renamed_desk() -> str:
    """The SDK offers the tool of the server under a name with the server's in front."""
    agent = Agent("clerk", model=PlayedModel("renamed", calls(mcp_bank__wire={}), "Done."))
    agent.mcp_config = {"include_server_in_tool_names": True}
    agent.mcp_servers = [Served()]
    return await run(agent, approve=["wire"])


def bank(**settings: Any) -> HostedMCPTool:
    config: Any = {"type": "mcp", "server_label": "bank", "server_url": "https://bank.example", **settings}
    return HostedMCPTool(config)


SERVERS: dict[str, Callable[[], HostedMCPTool]] = {
    "never": lambda: bank(require_approval="never"),
    "not about this tool": lambda: bank(require_approval={"never": {"tool_names": ["wire"]}}),
    "never, and the tool is allowed": lambda: bank(require_approval="never", allowed_tools=["wire"]),
    "never, and the tool is not allowed": lambda: bank(require_approval="never", allowed_tools=["look_up"]),
    "about other tools": lambda: bank(require_approval={"never": {"tool_names": ["look_up"]}}),
}
"""Servers whose tools a provider calls, by when it asks for consent."""


@workflow
async def server_desk(asks: str) -> str:
    agent = Agent("clerk", model=PlayedModel("server", "Done."), tools=[SERVERS[asks]()])
    return await run(agent, approve=["wire"])


@workflow
async def own_hosted_desk() -> str:
    """A function of the user decides about the calls of the provider."""
    tool = replace(bank(), on_approval_request=lambda _: {"approve": False, "reason": "by the function"})
    agent = Agent("clerk", model=Hosting("hosting", "Done."), tools=[tool])
    result = await Runner.run(agent, "Pay.", run_config=callboard_run_config(approve=["wire"]))
    [told] = [one.raw_item for one in result.new_items if one.type == "mcp_approval_response_item"]
    return str(told.get("reason"))
