"""Graphs of LangGraph that work in the body of a tool or a step, where no person can be asked."""

# Users write graphs with less exact types than the rest of this repository has.
# pyright: basic, reportArgumentType=false, reportReturnType=false

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import Tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from callboard import step, workflow
from callboard.adapters.langgraph import durable

MADE: list[str] = []
"""The calls that were made."""

GIVEN = {"messages": [("user", "Pay.")]}


@tool
def pay(cents: int) -> str:
    """Pay."""
    MADE.append(f"pay {cents}")
    return "paid"


@tool
def look_up(order: str) -> str:
    """Look up."""
    MADE.append(f"look_up {order}")
    return "500"


def calling(name: str, **args: Any) -> Any:
    """Return a node that asks for a call."""

    def ask(_state: MessagesState) -> dict:
        return {"messages": [AIMessage("", tool_calls=[{"name": name, "args": args, "id": "1"}])]}

    return ask


def graph_with(ask: Any, *tools: Any, handles: Any = False, **compiled: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode(list(tools), handle_tool_errors=handles))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return builder.compile(**compiled)


def asking_graph(**compiled: Any) -> Any:
    def clerk(_state: MessagesState) -> dict:
        return {"messages": [("ai", f"answered {interrupt('Pay?')}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("clerk", clerk)
    builder.add_edge(START, "clerk")
    return builder.compile(**compiled)


PAYING, READING = graph_with(calling("pay", cents=500), pay), graph_with(calling("look_up", order="a1"), look_up)
GUARDED = durable(PAYING, approve=["pay"])
THREAD = {"configurable": {"thread_id": "t"}}


async def ended(graph: Any, config: Any = None) -> str:
    return (await graph.ainvoke(GIVEN, config))["messages"][-1].text


async def caught() -> str:
    with suppress(BaseException):
        await ended(GUARDED)
    return "caught"


async def streamed() -> str:
    return str([piece async for piece in GUARDED.astream(GIVEN)])


async def called_with_a_text() -> str:
    return await pay.ainvoke("500")


async def called() -> str:
    return await pay.ainvoke({"cents": 500})


async def interrupted_before() -> str:
    return await ended(
        graph_with(calling("pay", cents=5), pay, interrupt_before=["tools"], checkpointer=InMemorySaver()), THREAD
    )


async def on_a_thread() -> str:
    return (await asyncio.to_thread(PAYING.invoke, GIVEN))["messages"][-1].text


REFUSED: dict[str, Callable[[], Awaitable[str]]] = {
    "a durable graph": lambda: ended(GUARDED),
    "a durable graph, streamed": streamed,
    "a durable graph that was made durable again": lambda: ended(durable(GUARDED, steps=["model"])),
    "a plain graph": lambda: ended(PAYING),
    "a plain graph on a thread": on_a_thread,
    "a tool": called,
    "a tool, with a text": called_with_a_text,
    "caught": caught,
    "an interrupt": lambda: ended(asking_graph()),
    "an interrupt of a graph with a checkpointer": lambda: ended(asking_graph(checkpointer=InMemorySaver()), THREAD),
    "a breakpoint": interrupted_before,
}
"""Bodies of tools that must not continue without a person."""

CHOSEN: list[Callable[[], Awaitable[str]]] = []


@tool
async def delegate() -> str:
    """Have it done."""
    return await CHOSEN[0]()


@step
async def delegate_in_step() -> str:
    return await CHOSEN[0]()


OUTER = graph_with(calling("delegate"), delegate, handles=True)
GRAPH = durable(OUTER, approve=["pay"])
INLINE = durable(OUTER, inline=["delegate"])
IN_STEPS = durable(PAYING, steps=["tools"], approve=["pay"])


@workflow
async def desk() -> str:
    return await ended(GRAPH)


@workflow
async def inline_desk() -> str:
    return await ended(INLINE)


@workflow
async def step_desk() -> str:
    return await delegate_in_step()


@workflow
async def node_desk() -> str:
    """A node that is a step calls the tool."""
    return await ended(IN_STEPS)


def nesting(inner: Any) -> Any:
    async def node(_state: MessagesState) -> dict:
        return {"messages": [("ai", await ended(inner))]}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return durable(builder.compile())


NESTING, TWICE = nesting(GUARDED), durable(GUARDED, to="ada")


@workflow
async def nesting_desk() -> str:
    """A node of a durable graph calls another durable graph."""
    return await ended(NESTING)


SEARCHING = GenericFakeChatModel(messages=iter([AIMessage("Done.")] * 9)).bind(
    tools=[{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
)


def searching(approve: str) -> Any:
    async def ask(state: MessagesState) -> dict:
        return {"messages": [await SEARCHING.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_edge(START, "model")
    return durable(builder.compile(name="clerk"), approve=[approve])


SEARCHES = {one: searching(one) for one in ("web_search", "bash")}


@workflow
async def search_desk(approve: str = "web_search") -> str:
    return await ended(SEARCHES[approve])


@workflow
async def twice_desk() -> str:
    """A durable graph was made durable again."""
    return await ended(TWICE)


# -- tools that a node calls with a text -----------------------------------------------------------------------------


@tool
async def wire(cents: str) -> str:
    """Wire."""
    MADE.append(f"wire {cents}")
    return "wired"


def _wire_plainly(cents: str) -> str:
    MADE.append(f"wire {cents}")
    return "wired"


def calling_with_a_text(tool: Any) -> Any:
    async def node(_state: MessagesState) -> dict:
        return {"messages": [("ai", await tool.ainvoke("500"))]}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile()


TEXT_TOOLS = {"of parameters": wire, "of one input": Tool("wire", _wire_plainly, "Wire.")}


@workflow
async def text_desk(kind: str) -> str:
    return await ended(durable(calling_with_a_text(TEXT_TOOLS[kind]), approve=["wire"]))
