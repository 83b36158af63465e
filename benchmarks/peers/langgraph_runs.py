"""LangGraph with its SQLite checkpointer, each superstep synced before the next (``durability="sync"``)."""

# pyright: basic, reportMissingImports=false

import asyncio
import operator
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from workloads import AT_ONCE, LONG, STEPS, WIDTH, chains, fan_outs, marks, read_arguments, say


class State(TypedDict):
    done: Annotated[int, operator.add]


def chain(steps, mark=lambda: None):
    graph = StateGraph(State)

    async def step(state):
        mark()
        return {"done": 1}

    for number in range(steps):
        graph.add_node(f"n{number}", step)
        graph.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    graph.add_edge(f"n{steps - 1}", END)
    return graph


def wide():
    graph = StateGraph(State)

    async def step(state):
        return {"done": 1}

    graph.add_node("step", step)
    graph.add_conditional_edges(START, lambda state: [Send("step", {"done": 0})] * WIDTH, ["step"])
    graph.add_edge("step", END)
    return graph


def config(thread):
    return {"configurable": {"thread_id": thread}, "recursion_limit": 2 * LONG}


async def main():
    workload, folder = read_arguments()
    async with AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:

        async def perform(graph, thread, state):
            return await graph.ainvoke(state, config(thread), durability="sync")

        if workload in AT_ONCE:
            graph = chain(STEPS).compile(saver)
            say(await chains(AT_ONCE[workload], lambda run: perform(graph, run, {"done": 0})))
        elif workload == "fan_out":
            graph = wide().compile(saver)
            say(await fan_outs(lambda run: perform(graph, run, {"done": 0})))
        else:
            graph = chain(LONG, marks(folder)).compile(saver)
            await perform(graph, "long", {"done": 0} if workload == "long" else None)


asyncio.run(main())
