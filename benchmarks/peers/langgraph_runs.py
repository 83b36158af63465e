"""LangGraph with its SQLite checkpointer, each superstep synced before the next (``durability="sync"``)."""

# pyright: basic, reportMissingImports=false

import asyncio
import operator
import os
import sys
import time
from functools import cache
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from provider import pieces
from workloads import LONG, Marks, measure, measure_tokens, read_arguments

WORKLOAD, FOLDER = read_arguments()
MARKS = Marks(FOLDER)


class State(TypedDict):
    done: Annotated[int, operator.add]


async def nothing(state):
    return {"done": 1}


async def mark(state):
    MARKS.mark()
    return {"done": 1}


async def hold(state, config):
    await MARKS.hold(config["configurable"]["thread_id"])
    return {"done": 1}


async def say(state):
    writer = get_stream_writer()
    async for piece in pieces(os.environ["PROVIDER_URL"]):
        writer(piece)
    return {"done": 1}


@cache
def graph(saver, kind, size):
    built = StateGraph(State)
    if kind == "wide":
        built.add_node("step", nothing)
        built.add_conditional_edges(START, lambda state: [Send("step", {"done": 0})] * size, ["step"])
        built.add_edge("step", END)
        return built.compile(saver)
    steps = {"chain": [nothing] * size, "marked": [mark] * size, "held": [mark, hold], "said": [say]}[kind]
    for number, step in enumerate(steps):
        built.add_node(f"n{number}", step)
        built.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    built.add_edge(f"n{len(steps) - 1}", END)
    return built.compile(saver)


def config(run) -> Any:
    return {"configurable": {"thread_id": run}, "recursion_limit": 2 * LONG}


async def main():
    async with AsyncSqliteSaver.from_conn_string(str(FOLDER / "checkpoints.sqlite")) as saver:

        async def perform(kind, size, run):
            state: Any = None if WORKLOAD == "resume" else {"done": 0}
            await graph(saver, kind, size).ainvoke(state, config(run), durability="sync")

        async def first(run):
            """Return the seconds to the first piece, after the run has ended."""
            began, heard = time.perf_counter(), []
            said = graph(saver, "said", 1)
            async for _ in said.astream({"done": 0}, config(run), stream_mode="custom", durability="sync"):
                heard.append(time.perf_counter() - began)
            return heard[:1]

        if WORKLOAD == "tokens":
            await measure_tokens(first)
        else:
            await measure(sys.argv[3] if WORKLOAD == "resume" else WORKLOAD, perform)


asyncio.run(main())
