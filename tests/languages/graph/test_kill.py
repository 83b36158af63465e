"""A graph that is killed at every boundary: a fan-out of agents with a tool, a delay and a person, on real workers.

Branches run in parallel. Each worker dies by SIGKILL before or after an append of the run, and the next one continues
it; another process answers. The run ends as it does without any death.
"""

import json
from pathlib import Path
from typing import Any

import anyio

from callboard.bus import events as ev
from callboard.bus.commands import Answer
from callboard.bus.log.port import Recorded
from callboard.service.client.client import Client
from tests.e2e.kills.test_kill import Case, deaths, lane, undisturbed
from tests.support.graphs import flow, graph, node, timeless, webhook
from tests.support.worker_processes import PATIENCE_S, end_payload, open_fleet, say

LANES = 8
"""How many chains of workers die beside each other; most of their time they wait."""

GRAPH = graph(
    [
        webhook(),
        flow("each", "LOOP", loop_type="for_each", array_path="body", iteration_variable="message"),
        node("write", "AI_AGENT", "ANTHROPIC_CLAUDE", ["search"], model="claude"),
        node("search", "TOOL", "NOTION_MCP_TOOL"),
        node("approve", "HUMAN_IN_THE_LOOP", "IN_APP_APPROVAL", interaction_type="approval", message="Send?"),
        flow("pause", "DELAY", duration_seconds=0.3),
    ],
    "t -> each",
    "each.iteration -> write",
    "write -> approve",
    "approve.confirmed -> pause",
)


USAGE = {"input_tokens": 3, "output_tokens": 1}
SCRIPT: dict[str, Any] = {
    "turns": {
        "each[0]/write": [
            {"tool_calls": [{"tool": "notion_search", "input": {"q": "a"}}]},
            {"text": "One.", "usage": USAGE},
        ],
        "each[1]/write": [{"text": "Two.", "usage": USAGE}],
    },
    "tools": {"notion_search": [{"output": {"hits": 1}}]},
}


def start(run_id: str) -> dict[str, Any]:
    return {
        "definition": {"language": "graph", "source": json.dumps(GRAPH)},
        "input": {"body": ["a", "b"]},
        "run_id": run_id,
        "model": "scripted",
        "script": SCRIPT,
        "options": {"parallel": True},
    }


async def attended(client: Client, run_id: str) -> list[Recorded]:
    """Follow a run to its end; answer its question once it parks for it."""
    said = False
    seen: list[Recorded] = []
    with anyio.fail_after(PATIENCE_S):
        async with client.follow(run_id) as feed:
            async for recorded in feed:
                seen.append(recorded)
                payload = ev.payload_of(recorded.event)
                if isinstance(payload, ev.RunEnd):
                    return seen
                asked = isinstance(payload, ev.RunParked) and "approve#1.1!ask" in payload.awaits
                if asked and not said:
                    said = True
                    await say(client, run_id, "answer", Answer("approve#1.1!ask", user_response={"approved": True}))
    raise AssertionError(f"{run_id} never ended")


OF_THE_RUN = frozenset({"id", "execution_id", "activation_id", "parent_activation_id", "interaction_id"})
"""Members of an Execution that are made of the run's id."""


def ending(end: ev.RunEnd) -> Any:
    """An end without its times, and without what is made of the run's id."""
    return end.status, end.usage, timeless(end.results, OF_THE_RUN), timeless(end.output, OF_THE_RUN)


CASE = Case("graph", start, attended, ["human.closed", "timer.fired", "tool.result", "model.result", "route"], ending)


async def test_a_graph_is_killed_at_every_boundary_and_answered_from_elsewhere(tmp_path: Path) -> None:
    async with open_fleet(tmp_path, partitions=2) as fleet:
        expected = await undisturbed(fleet, CASE)
        end = end_payload(expected)
        assert end.status == "completed"
        assert end.results["execution_sequence"] == ["t", "each", "write", "write", "approve", "pause"]
        assert end.results["tokens_used"]["total_tokens"] == 8
        kills = deaths(expected)
        async with anyio.create_task_group() as tasks:
            for i in range(LANES):
                tasks.start_soon(lane, fleet, CASE, f"lane-{i}", kills[i::LANES], expected)
