"""Workflows on the real stage: on an in-memory log, cut after every event, cancelled, stopped at breakpoints."""

from typing import Any

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.memory import MemoryLog
from callboard.languages.language import End, Stage
from callboard.projections.projection import fold
from callboard.projections.results.workflow import WorkflowExecution
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import VIRTUAL, VirtualClock
from tests.simulation import World, copied, finish, theatre_for
from tests.theatre import Theatre, end_of, types
from tests.workflows import WORKFLOW, admitted, document, scripted_skill

NEEDS_URL = {"name": "url_there", "kind": "value", "rule": {"output_required": ["url"]}}
JUDGE = {"name": "good", "kind": "judge", "rubric": "Is it good?"}
OUTPUT = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
LONG = {"notes": "word " * 60}

BUSY = document(
    {
        "gather": {"skills": ["s"], "eval": [NEEDS_URL, JUDGE], "retry": {"max": 1, "instruction": {"auto": True}}},
        "think": {"output": OUTPUT},
        "act": {"skills": ["s"], "requires": {"output_required": ["gather.url"]}},
        "rest": {"requires": {"output_required": ["input.never"], "on_fail": "skip"}},
    },
    [
        ("gather", "think"),
        {"from": "think", "to": "gather", "when": "not sure", "max_iterations": 1},
        ("think", "act", "sure"),
        ("act", "rest"),
    ],
    rules=["Be kind."],
)


def wish(*inputs: int) -> dict[str, Any]:
    return {"tool_calls": [{"tool": "look", "input": {"i": i}} for i in inputs]}


SCRIPT: dict[str, Any] = {
    "turns": {
        "gather": [wish(1, 2), {"data": LONG}, {"data": {"url": "u"}}, wish(3), {"data": {"url": "v", **LONG}}],
        "think": [{"data": {"sure": False}}, {"data": {"sure": True}}],
        "act": [wish(4), {"data": {"done": True}}],
    },
    "asks": {"gather": ["Look at the URL."]},
    "judges": {"gather/good": ["yes", "yes", "yes"]},
    "routes": {"think": ["gather", "act"]},
    "tools": {"look": [{"output": {"hit": 1}}, {"error": "slow"}, {"output": {"hit": 3}}, {"output": {"hit": 4}}]},
}
OPTIONS = {"skills": [scripted_skill("s", "look")]}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


def theatre_of(raw: dict[str, Any], log: MemoryLog | None = None, script: dict[str, Any] | None = None) -> Theatre:
    plan = admitted(raw, options=OPTIONS)

    async def play(stage: Stage) -> End:
        return await WORKFLOW.interpret(plan, stage)

    return theatre_for(play, log, script=script or SCRIPT)


def steps(events: list[ev.Event]) -> list[tuple[str, str, int, int | None]]:
    trace = fold(WorkflowExecution(), events).trace
    return [(step.node, step.status, step.iteration, step.retry_attempt) for step in trace.steps]


async def test_a_run_and_its_trace() -> None:
    """Checklist 63 and 76: every attempt is a step; results and trace are those of the specification."""
    theatre = theatre_of(BUSY)
    ref = await theatre.accept("p")
    events = await finish(theatre, ref, World())
    check_log(events)
    end = end_of(events)
    assert (end.status, end.error) == ("completed", None)
    assert steps(events) == [
        ("gather", "failed", 1, 0),
        ("gather", "success", 1, 1),
        ("think", "success", 1, None),
        ("gather", "success", 2, None),
        ("think", "success", 2, None),
        ("act", "success", 1, None),
        ("rest", "skipped", 1, None),
    ]
    execution = fold(WorkflowExecution(), events)
    assert execution.results == end.results
    assert next(iter(execution.trace.sources)) == "workflow.rules[0]"
    assert end.output["skipped_reason"].startswith("requires not met:")
    assert end.results["act"] == {
        "status": "success",
        "data": {"done": True},
        "toolCalls": [{"tool": "look", "input": {"i": 4}, "output": {"hit": 4}}],
        "evals": [],
    }


async def test_what_was_said_before_stands_in_the_log_once() -> None:
    theatre = theatre_of(BUSY)
    ref = await theatre.accept("p")
    events = await finish(theatre, ref, World())
    calls = [event for event in events if event.type == "model.call" and event.path == "act"]
    assert calls
    assert all(LONG["notes"].encode() not in bytes(event.payload) for event in calls)


async def test_cut_after_every_event_the_run_comes_to_the_same_end() -> None:
    theatre = theatre_of(BUSY)
    ref = await theatre.accept("p")
    events = await finish(theatre, ref, World())
    check_replay(theatre.language, ref, events)
    recorded = await theatre.log.read(ref)
    for k in range(1, len(recorded)):
        log = MemoryLog()
        await copied(recorded[:k], log)
        other = theatre_of(BUSY, log)
        assert isinstance(other.clock, VirtualClock)
        other.clock.set(recorded[k - 1].event.time)
        finished = await finish(other, ref, World())
        check_log(finished)
        assert end_of(finished) == end_of(events), f"cut after event {k}"
        assert steps(finished) == steps(events)


async def test_a_cancelled_workflow_closes_what_is_open_and_ends_cancelled() -> None:
    script = {"turns": {"a": [{"text": "a"}], "b": [{"text": "b", "delay_ms": 60_000}]}}
    theatre = theatre_of(document({"a": {}, "b": {}}, [("a", "b")]), script=script)
    ref = await theatre.accept("p")
    actor = theatre.actor(ref)

    async def cancel_once_b_thinks() -> None:
        async with theatre.log.follow("cb.run.>", 0) as entries:
            async for entry in entries:
                if entry.event.type == "model.call" and entry.event.path == "b":
                    actor.tell(theatre.command("cancel", reason="enough"))
                    return

    async with anyio.create_task_group() as group:
        group.start_soon(cancel_once_b_thinks)
        await actor.run()
    events = await theatre.events(ref)
    check_log(events)
    end = end_of(events)
    assert end.status == "cancelled"
    assert end.results == {"a": {"status": "success", "data": {"summary": "a"}, "toolCalls": [], "evals": []}}
    left = [ev.payload_of(event) for event in events if event.type == "node.exit" and event.path == "b"]
    assert [exit.outcome for exit in left if isinstance(exit, ev.NodeExit)] == ["cancelled"]


async def test_a_breakpoint_holds_the_run_before_its_node() -> None:
    theatre = theatre_of(BUSY)
    ref = await theatre.accept("p", breakpoints=["think"])
    await theatre.perform(ref)
    before = types(await theatre.events(ref))
    assert "run.paused" in before
    assert before.count("node.enter") == 1
    events = await finish(theatre, ref, World(variables={"think": {}}))
    assert end_of(events).status == "completed"
    assert types(events).count("run.resumed") == 2
