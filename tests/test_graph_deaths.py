"""Graphs whose worker dies after any event, or forgets everything after each: they end as if nothing had happened."""

from typing import Any

import pytest

from callboard.actors.carrier import Job
from tests.graphs import check_deaths, condition, flow, graph, node, step, webhook
from tests.simulation import World


async def sandbox(job: Job, request: Any) -> Any:
    """Functions that return their input, and fail at the first attempt of a node called ``flaky``."""
    import anyio

    await anyio.sleep(0.5)
    if job.event.path.endswith("flaky") and job.event.attempt == 1:
        return {"results": [{"error": "not yet"} for _ in request["inputs"]]}
    return {"results": [{"value": value} for value in request["inputs"]]}


CODE = {"code": "lambda value: value"}
KINDS = {"code": sandbox}

WAYS = graph(
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
def test_a_graph_with_everything_but_people(parallel: bool) -> None:
    done = check_deaths(
        WAYS, {"body": {"n": 2}}, world=World(signals={"wait": {"x": 1}}), kinds=KINDS, parallel=parallel
    )
    assert done.results["status"] == "SUCCESS"
    assert done.sequence == ["t", "i", "pause", "wait", "each", "late", "flaky", "all"]
    assert done.record("never")["status"] == "PENDING"


def test_a_graph_that_fails() -> None:
    done = check_deaths(FAILING, {"body": 1}, kinds=KINDS)
    assert done.results["status"] == "ERROR"
    assert done.record("slow")["retry_count"] == 1


def test_a_cancelled_graph() -> None:
    from tests.graphs import perform

    done = perform(WAYS, {"body": {"n": 2}}, kinds=KINDS, commands=[("cancel", {})], parallel=True)
    assert done.results["status"] == "CANCELED"
    assert {name for name, one in done.results["node_executions"].items() if one["error"]} == {"pause", "wait"}
