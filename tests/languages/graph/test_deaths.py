"""Graphs whose worker dies after any event, or replays after each event, end as they do without a death."""

from typing import Any

import anyio
import pytest

from callboard.actors.carrier import Job
from tests.support.graphs import check_deaths, condition, flow, graph, node, perform, step, webhook
from tests.support.simulation import World


async def run_code(job: Job, request: Any) -> Any:
    """Functions that return their input, and fail at the first attempt of a node called ``flaky``."""
    await anyio.sleep(0.5)
    if job.event.path.endswith("flaky") and job.event.attempt == 1:
        return {"results": [{"error": "not yet"} for _ in request["inputs"]]}
    return {"results": [{"value": value} for value in request["inputs"]]}


CODE = {"code": "lambda value: value"}
KINDS = {"code": run_code}

BRANCHES = graph(
    [
        webhook(),
        condition("i", "$json.body.n > 1"),
        flow("each", "FOR_EACH"),
        node("flaky", "ACTION", "RUN_CODE", retry_attempts=2, retry_backoff_seconds=60, retry_jitter_seconds=5, **CODE),
        flow("pause", "DELAY", duration_seconds=3600),
        flow("wait", "WAIT", wait_type="condition", timeout_seconds=7200),
        flow("late", "WAIT", wait_type="condition", timeout_seconds=1800),
        flow("all", "MERGE", merge_strategy="concatenate"),
        node("slow", "ACTION", "RUN_CODE", timeout=0.1, retry_attempts=0, **CODE),
        step("never"),
    ],
    "t -> i",
    "i.true -> pause",
    "i.false -> never",
    "pause -> each | lambda value: [1, 2]",
    "each.iteration -> flaky | lambda value: value",
    "flaky -> all",
    "i.true -> wait",
    "wait.completed -> late",
    "late.timeout -> all",
    "never -> all",
)
"""A condition, timers, a signal, a bound, conversions, a fan-out with retries, and a join of all."""

FAILING = graph([webhook(), node("slow", "ACTION", "RUN_CODE", timeout=0.1, retry_attempts=1, **CODE)], "t -> slow")


@pytest.mark.parametrize("parallel", [False, True], ids=["one by one", "side by side"])
def test_a_graph_without_people_survives_any_death(parallel: bool) -> None:
    done = check_deaths(
        BRANCHES, {"body": {"n": 2}}, world=World(signals={"wait": {"x": 1}}), kinds=KINDS, parallel=parallel
    )
    assert done.results["status"] == "SUCCESS"
    assert done.sequence == ["t", "i", "pause", "wait", "each", "late", "flaky", "all"]
    assert done.record("never")["status"] == "PENDING"


def test_a_graph_that_fails_survives_any_death() -> None:
    done = check_deaths(FAILING, {"body": 1}, kinds=KINDS)
    assert done.results["status"] == "ERROR"
    assert done.record("slow")["retry_count"] == 1


def test_a_cancellation_ends_the_nodes_that_are_active() -> None:
    done = perform(BRANCHES, {"body": {"n": 2}}, kinds=KINDS, commands=[("cancel", {})], parallel=True)
    assert done.results["status"] == "CANCELED"
    assert {name for name, one in done.results["node_executions"].items() if one["error"]} == {"pause", "wait"}


PERSON = node(
    "approve",
    "HUMAN_IN_THE_LOOP",
    "SLACK_INTERACTION",
    interaction_type="approval",
    channel_type="slack",
    message="Send {{ content.content }}?",
    timeout_seconds=7200,
    timeout_action="continue",
)

WITH_PEOPLE = graph(
    [
        webhook(),
        flow("each", "FOR_EACH"),
        node("write", "AI_AGENT", "ANTHROPIC_CLAUDE", ["memory", "search"], model="claude", retry_attempts=1),
        node("memory", "MEMORY", "CONVERSATION_BUFFER"),
        node("search", "TOOL", "NOTION_MCP_TOOL"),
        flow("pause", "DELAY", duration_seconds=600),
        PERSON,
        step("sent"),
        step("dropped"),
    ],
    "t -> each | lambda value: value",
    "each.iteration -> write",
    "write -> pause",
    "pause -> approve",
    "approve.confirmed -> sent",
    "approve.timeout -> dropped",
)
"""A fan-out, an agent with memory and tools, a timer, a person."""

WITH_PEOPLE_SCRIPT = {
    "turns": {
        "write": [
            {"tool_calls": [{"tool": "notion_search", "input": {"q": 1}}]},
            {"text": "One.", "usage": {"input_tokens": 3, "output_tokens": 1}},
            {"error": "overloaded"},
            {"text": "Two.", "usage": {"input_tokens": 3, "output_tokens": 1}},
        ],
        "approve": [{"data": {"relevance": 0.2}}, {"data": {"relevance": 0.9}}],
    },
    "tools": {"notion_search": [{"output": {"hits": 1}}]},
}


async def convert_to_items(_job: Job, request: Any) -> Any:
    """A conversion that makes a list of the mail's body; as a result it must be an object."""
    return {"results": [{"value": {"items": value["body"]}} for value in request["inputs"]]}


async def answer_memory(_job: Job, request: Any) -> Any:
    return {"messages": [], "context": "tea"} if request.get("operation") == "get_context" else {}


@pytest.mark.parametrize("answers", [["spam", "yes"], []], ids=["answered", "expired"])
def test_a_fan_out_with_an_agent_a_timer_and_a_person_survives_any_death(answers: list[str]) -> None:
    kinds = {"code": convert_to_items, "memory": answer_memory, "channel": answer_memory}
    # The answers name no channel, so unclear ones are classified.
    world = World(answers={"approve#1.1!ask": answers} if answers else {})
    done = check_deaths(WITH_PEOPLE, {"body": ["a", "b"]}, world=world, kinds=kinds, script=WITH_PEOPLE_SCRIPT)
    end = "sent" if answers else "dropped"
    assert done.sequence == ["t", "each", "write", "write", "pause", "approve", end]
    assert [run["output_data"]["result"]["content"] for run in done.runs("write")] == ["One.", "Two."]
    assert done.results["tokens_used"]["total_tokens"] == 8
