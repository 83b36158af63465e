"""Stepping through a run node by node, from a breakpoint or a pause command, in every language and after crashes."""

from collections.abc import Sequence
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Event, payload_of
from callboard.languages.graph.language import LANGUAGE
from callboard.languages.language import Cancelled, End, Expired, Stage
from callboard.testing.checks import check_log, check_replay, open_intents
from callboard.testing.virtual_time import VIRTUAL, VirtualClock
from tests.languages.graph.test_deaths import BRANCHES, KINDS, convert_to_items
from tests.support import flows, graphs
from tests.support.graphs import check_deaths, condition, flow, graph, step, webhook
from tests.support.playbook_cases import doc
from tests.support.playbook_cases import says as replies_of
from tests.support.playbook_cases import steps as playbook_steps
from tests.support.playbooks import Play
from tests.support.playbooks import perform as perform_playbook
from tests.support.run_harness import RunHarness, end_of
from tests.support.sample_interpreters import after, effect
from tests.support.simulation import World, harness_for

TOOL = graphs.node("tool", "TOOL", "NOTION_MCP_TOOL")
BODY = {"body": {"n": 2}}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


def pauses_of(events: Sequence[Event]) -> list[tuple[str, str | None]]:
    """Reason and node of each pause of a run."""
    paused = [payload_of(event) for event in events if event.type == ev.RunPaused.type]
    return [(one.reason, one.step) for one in paused if isinstance(one, ev.RunPaused)]


async def send_command(harness: RunHarness, ref: Any, verb: str, **body: Any) -> list[tuple[str, str | None]]:
    """Send a command to a run; return the pauses that are open afterwards."""
    await harness.perform(ref, harness.command(verb, **body))
    events = await harness.events(ref)
    return pauses_of([event for event in open_intents(events) if event.type == ev.RunPaused.type])


async def ring_alarm(harness: RunHarness, ref: Any) -> str:
    """Ring the alarm of a parked run at its deadline."""
    parked = payload_of((await harness.events(ref))[-1])
    assert isinstance(parked, ev.RunParked)
    assert parked.deadline is not None
    assert isinstance(harness.clock, VirtualClock)
    harness.clock.set(parked.deadline)
    return await harness.perform(ref, harness.command("alarm"))


async def perform_nodes(stage: Stage, *names: str) -> list[Any]:
    variables: list[Any] = []
    for name in names:
        resumed = await stage.gate(None, name)
        variables.append(resumed.variables if resumed else None)
        entered = stage.enter(name)
        await effect(entered, "work", 5)
        entered.exit("ok")
    return variables


async def sequential(stage: Stage) -> End:
    return End("completed", await perform_nodes(stage, "one", "two", "three", "four"))


async def concurrent(stage: Stage) -> End:
    tasks = [stage.spawn(perform_nodes(stage, f"{side}1", f"{side}2")) for side in "ab"]
    await stage.join(*tasks)
    return End("completed")


async def test_a_step_pauses_at_the_next_node_and_a_resume_runs_to_the_end() -> None:
    harness = harness_for(sequential)
    ref = await harness.accept("p", breakpoints=["two"])
    assert await harness.perform(ref) == "parked"
    assert await send_command(harness, ref, "resume", step=True, variables={"x": 1}) == [("step", "three")]
    assert await send_command(harness, ref, "resume", step=True) == [("step", "four")]
    assert await send_command(harness, ref, "resume") == []
    events = await harness.events(ref)
    assert end_of(events).output == [None, {"x": 1}, {}, {}]
    resumed = [payload_of(event) for event in events if event.type == ev.RunResumed.type]
    assert [one.step for one in resumed if isinstance(one, ev.RunResumed)] == [True, True, False]
    check_replay(harness.language, ref, events)


async def test_a_resume_stops_at_breakpoints() -> None:
    harness = harness_for(sequential)
    ref = await harness.accept("p", breakpoints=["one", "four"])
    assert await harness.perform(ref) == "parked"
    assert await send_command(harness, ref, "resume", step=True) == [("step", "two")]
    assert await send_command(harness, ref, "resume") == [("breakpoint", "four")]


async def test_a_step_after_a_pause_command_pauses_at_the_next_node() -> None:
    harness = harness_for(sequential)
    ref = await harness.accept("p")
    assert await harness.perform(ref, harness.command("pause")) == "parked"
    assert await send_command(harness, ref, "resume", step=True) == [("step", "three")]


@pytest.mark.parametrize("pause", ["breakpoints", "command"])
async def test_a_step_moves_one_of_several_concurrent_branches(pause: str) -> None:
    harness = harness_for(concurrent)
    ref = await harness.accept("p", breakpoints=["a2", "b2"] if pause == "breakpoints" else [])
    assert await harness.perform(ref, *([harness.command("pause")] if pause == "command" else [])) == "parked"
    reason = "breakpoint" if pause == "breakpoints" else "step"
    assert await send_command(harness, ref, "resume", step=True) == [(reason, "b2")]
    assert not [event for event in await harness.events(ref) if event.type == "node.enter" and event.path == "b2"]
    await send_command(harness, ref, "resume", step=True)
    events = await harness.events(ref)
    assert end_of(events).status == "completed"
    check_replay(harness.language, ref, events)


async def test_a_step_ends_a_pause_command_and_a_breakpoint_together() -> None:
    harness = harness_for(sequential)
    ref = await harness.accept("p", breakpoints=["two"])
    assert await harness.perform(ref, harness.command("pause")) == "parked"
    assert pauses_of(await harness.events(ref)) == [("command", None), ("breakpoint", "two")]
    assert await send_command(harness, ref, "resume", step=True) == [("step", "three")]


async def test_a_node_that_is_cancelled_while_paused_can_pause_again() -> None:
    async def play(stage: Stage) -> End:
        for attempt in range(2):
            due = after(stage.now(), 60)
            raced = await stage.within(due, perform_nodes(stage, "one"), node=stage.root, slot=f"bound.{attempt}")
            if not isinstance(raced, Expired):
                return End("completed", attempt)
        return End("failed")

    harness = harness_for(play)
    ref = await harness.accept("p", breakpoints=["one"])
    assert await harness.perform(ref) == "parked"
    assert await ring_alarm(harness, ref) == "parked"
    assert await ring_alarm(harness, ref) == "ended"
    events = await harness.events(ref)
    check_log(events)
    keys = [event.key for event in events if event.type == ev.RunPaused.type]
    assert keys == ["one#1.1!gate.before", "one#1.1!gate.before.2"]
    assert end_of(events).status == "failed"
    check_replay(harness.language, ref, events)


async def test_a_step_does_not_move_a_cancelled_branch() -> None:
    async def play(stage: Stage) -> End:
        due = after(stage.now(), 60)
        lost = stage.spawn(stage.within(due, perform_nodes(stage, "one", "lost"), node=stage.root, slot="bound"))
        await perform_nodes(stage, "two", "kept")
        await stage.join(lost)
        return End("completed")

    harness = harness_for(play)
    ref = await harness.accept("p")
    assert await harness.perform(ref, harness.command("pause")) == "parked"
    assert await ring_alarm(harness, ref) == "parked"
    assert await send_command(harness, ref, "resume", step=True) == []
    events = await harness.events(ref)
    assert "kept" in {event.path for event in events if event.type == "node.enter"}
    assert end_of(events).status == "completed"


async def test_a_step_does_not_pause_in_clean_up() -> None:
    async def play(stage: Stage) -> End:
        try:
            await perform_nodes(stage, "one", "two")
        except Cancelled as cancelled:
            async with stage.shield():
                await perform_nodes(stage, "tidy", "away")
            return End("cancelled", error=cancelled.cause)
        return End("completed")

    harness = harness_for(play)
    ref = await harness.accept("p", breakpoints=["one"])
    assert await harness.perform(ref) == "parked"
    await send_command(harness, ref, "resume", step=True)
    assert await harness.perform(ref, harness.command("cancel")) == "ended"
    assert pauses_of(await harness.events(ref)) == [("breakpoint", "one"), ("step", "two")]


async def test_a_step_of_a_run_that_is_not_paused_is_refused() -> None:
    harness = harness_for(sequential)
    ref = await harness.accept("p")
    await harness.perform(ref, harness.command("resume", step=True))
    events = await harness.events(ref)
    refused = [payload_of(event) for event in events if event.type == ev.CommandRefused.type]
    assert [one.code for one in refused if isinstance(one, ev.CommandRefused)] == ["resume.not_paused"]


# -- graphs -----------------------------------------------------------------------------------------------------------


def test_a_stepped_graph_survives_a_crash_after_every_event() -> None:
    world = World(signals={"wait": {"x": 1}}, step=True)
    done = check_deaths(BRANCHES, BODY, world=world, kinds=KINDS, breakpoints=["i"], parallel=True)
    assert done.results["status"] == "SUCCESS"
    found = pauses_of(done.events)
    assert found[0] == ("breakpoint", "i")
    assert sorted(name or "" for _, name in found) == sorted(name for name in done.sequence if name != "t")


def test_a_breakpoint_in_a_fan_out_pauses_each_item() -> None:
    nodes = [webhook(), flow("each", "FOR_EACH"), step("body")]
    written = graph(nodes, "t -> each | lambda value: value", "each.iteration -> body")
    done = graphs.perform(written, {"body": ["a", "b"]}, kinds={"code": convert_to_items}, breakpoints=["body"])
    assert [event.path for event in done.events if event.type == ev.RunPaused.type] == ["each[0]/body", "each[1]/body"]


def test_a_breakpoint_at_a_tool_of_an_agent_is_refused() -> None:
    written = graph(
        [webhook(), graphs.node("ai", "AI_AGENT", "ANTHROPIC_CLAUDE", ["tool"], model="claude"), TOOL], "t -> ai"
    )
    start = StartRun(DefinitionSource("graph"), breakpoints=["ai", "tool", "gone"])
    found = LANGUAGE.admit(graphs.parsed(written), start)
    assert isinstance(found, list)
    assert [(problem.code, problem.where, problem.message) for problem in found] == [
        ("UNKNOWN_BREAKPOINT", "breakpoints[1]", "'tool' is attached to an agent and is never executed as a node"),
        ("UNKNOWN_BREAKPOINT", "breakpoints[2]", "unknown node 'gone'"),
    ]


def test_a_step_can_set_variables() -> None:
    nodes = [webhook(), step("a"), condition("i", "variables.go")]
    written = graph(nodes, "t -> a", "a -> i", variables={"go": False})
    world = World(variables={"i": {"go": True}}, step=True)
    done = graphs.perform(written, BODY, world=world, breakpoints=["a"])
    assert done.out("i", "true") is not None
    assert pauses_of(done.events) == [("breakpoint", "a"), ("step", "i")]


# -- other languages --------------------------------------------------------------------------------------------------


def test_a_flow_pauses_at_each_step() -> None:
    steps = {"a": {"action": "Pass", "next": "b"}, "b": {"action": "Pass", "next": "c"}, "c": flows.returned()}
    written = flows.flow(steps)
    done = flows.perform(written, breakpoints=["a"], world=World(step=True))
    assert pauses_of(done.events) == [("breakpoint", "a"), ("step", "b"), ("step", "c")]


def test_a_playbook_pauses_after_each_step() -> None:
    source = doc(playbook_steps("a", "b", "c"))
    play = Play(source, turns=replies_of(s1="A", s2="B", s3="C"), start={"breakpoints": ["1"]}, step=True)
    done = perform_playbook(play)
    assert pauses_of(done.events) == [("breakpoint", "1"), ("step", "2"), ("step", "3")]
    exits = [event.n for event in done.events if event.type == ev.NodeExit.type]
    assert exits < [event.n for event in done.events if event.type == ev.RunPaused.type]
    assert done.end.status == "completed"
