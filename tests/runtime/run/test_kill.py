"""Kill of a run that no worker can execute: its log ends as after the kill of another run."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, Kill, StartRun
from callboard.bus.effects import Failure, Message, ModelRequest, Text, Usage
from callboard.bus.errors import RunLost
from callboard.bus.events import Event, Problem
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Beside, Entry
from callboard.bus.subjects import RunRef
from callboard.languages.language import Ask, Continuation, End, Stage
from callboard.languages.plan import STRICT
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.connection import open_connection
from callboard.runtime.interpreter.replay import read_admission
from callboard.runtime.run.activation import Command
from callboard.runtime.run.kill import end_killed
from callboard.runtime.run.log import RunLog, read_run
from callboard.runtime.settings.config import load
from callboard.service.operations.replays import replay_events
from callboard.service.worker.bootstrap import open_worker
from callboard.service.worker.services import Services
from callboard.testing.checks import check_log
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VIRTUAL
from tests.support import sample_interpreters as plays
from tests.support.run_harness import RunHarness, end_of, types
from tests.support.sample_interpreters import after, effect
from tests.support.simulation import copied, harness_for

PATIENCE_S = 30.0
CUTS_MAX = 60


@pytest.fixture
def plain_log(quiet_log: None) -> None:
    structlog.configure(processors=[])


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Virtual time, except with a real server."""
    return "asyncio" if "tmp_path" in request.fixturenames else ("asyncio", VIRTUAL)


def kill(sequence: int = 77, **body: Any) -> Command:
    return Command(sequence, "kill", msgspec.json.encode(body))


async def wait_in_two_nodes(stage: Stage) -> End:
    """Waits in two nodes, one of them in its second attempt, with an effect, a timer and a question open."""
    outer = stage.enter("outer")
    inner = stage.enter("outer/inner")
    await effect(inner, "done")
    inner.retry("once more")
    stage.spawn(effect(inner, "hang", hang=True))
    async with outer.question("ask", Ask("?")) as question:
        stage.spawn(question.answer())
        await inner.sleep("sleep", after(inner.entered_at, 60))
    return End("completed")


async def start_and_park(play: Any) -> tuple[RunHarness, RunRef]:
    """Start a run and execute it until it waits for a person, a timer or an effect that hangs."""
    harness = harness_for(play)
    ref = await harness.accept("p")
    with anyio.move_on_after(30):
        await harness.perform(ref)
    return harness, ref


async def copy_log(harness: RunHarness, ref: RunRef, upto: int | None = None) -> MemoryLog:
    log = MemoryLog()
    await copied((await harness.log.read(ref))[:upto], log)
    return log


def contents_of(events: Sequence[Event]) -> Counter[tuple[Any, ...]]:
    """The contents of events, regardless of time and order."""
    return Counter((e.type, e.path, e.iteration, e.attempt, e.key, e.cause, bytes(e.payload)) for e in events)


async def events_of(log: MemoryLog, ref: RunRef) -> list[Event]:
    return [item.event for item in await read_run(log, ref)]


@pytest.mark.parametrize("play", [wait_in_two_nodes, plays.cancelled, plays.flow, plays.graph, plays.playbook])
async def test_a_kill_without_the_interpreter_states_the_same_as_with_it(play: Any, plain_log: None) -> None:
    harness, ref = await start_and_park(play)
    log = await copy_log(harness, ref)
    assert await harness.perform(ref, kill(reason="enough", by="Ada")) == "ended"
    assert await end_killed(log, harness, ref, kill(reason="enough", by="Ada"))
    events = await events_of(log, ref)
    check_log(events)
    assert contents_of(events) == contents_of(await harness.events(ref))
    replayed = replay_events(ref, events, read_admission(events[0], harness.language), {})
    assert (replayed.ended, replayed.unwritten, replayed.standing.status) == (True, [], "cancelled")


async def test_a_run_can_be_killed_after_any_event(plain_log: None) -> None:
    """The log is cut as by a crash, and the worker does not know the definition."""
    for play in (wait_in_two_nodes, plays.workflow, plays.graph):
        harness, ref = await start_and_park(play)
        other = RunHarness({})
        for upto in range(1, min(CUTS_MAX, len(await harness.log.read(ref)))):
            log = await copy_log(harness, ref, upto)
            if (await events_of(log, ref))[-1].type == ev.RunEnd.type:
                break
            assert await end_killed(log, other, ref, kill())
            events = await events_of(log, ref)
            check_log(events)
            assert types(events[upto:])[:2] == ["run.claimed", "cancel.requested"]
            assert end_of(events).status == "cancelled"


async def test_an_interrupted_kill_is_completed_and_recorded_once(plain_log: None) -> None:
    harness, ref = await start_and_park(wait_in_two_nodes)
    whole = await copy_log(harness, ref)
    at_rest = len(await whole.read(ref))
    assert await end_killed(whole, harness, ref, kill())
    for upto in range(at_rest + 2, len(await whole.read(ref))):
        log = MemoryLog()
        await copied((await whole.read(ref))[:upto], log)
        # The recorded request is enough without the command.
        assert await end_killed(log, harness, ref, None)
        events = await events_of(log, ref)
        check_log(events)
        assert types(events).count("cancel.requested") == 1
        assert end_of(events) == end_of(await events_of(whole, ref))


async def test_a_run_without_a_kill_and_an_unknown_run_do_not_change(plain_log: None) -> None:
    harness, ref = await start_and_park(plays.cancelled)
    before = await harness.events(ref)
    assert "cancel.requested" in types(before)
    assert not await end_killed(harness.log, harness, ref, None)
    assert not await end_killed(harness.log, harness, RunRef("acme", "nobody"), kill())
    assert await harness.events(ref) == before


async def test_a_kill_of_a_run_that_has_ended_adds_nothing(plain_log: None) -> None:
    harness, ref = await start_and_park(wait_in_two_nodes)
    assert await end_killed(harness.log, harness, ref, kill())
    before = await harness.events(ref)
    assert await end_killed(harness.log, harness, ref, kill(78))
    assert await harness.events(ref) == before


async def test_a_kill_stops_when_another_worker_claims_the_run(plain_log: None) -> None:
    """The rival claims the run between two appends of the kill."""
    harness, ref = await start_and_park(wait_in_two_nodes)
    log = harness.log
    assert isinstance(log, CrashingLog)
    rival = RunLog(log, ref, writer="rival", clock=harness.clock)

    class LogWithRival(MemoryLog):
        async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
            for entry in entries:
                if entry.type == ev.EffectCancelled.type and not rival.n:
                    rival.continue_from(await log.read(ref))
                    rival.epoch += 1
                    rival.state(ev.RunClaimed(worker="rival", epoch=rival.epoch))
                    await rival.append_queued()
                after = await log.put(ref, [entry], after, beside)
            return after

    log_with_rival = LogWithRival()
    log_with_rival.read, log_with_rival.last = log.read, log.last
    with pytest.raises(RunLost):
        await end_killed(log_with_rival, harness, ref, kill())
    events = await harness.events(ref)
    assert types(events)[-2:] == ["cancel.requested", "run.claimed"]


async def test_a_kill_needs_no_large_values_and_records_no_secrets(plain_log: None) -> None:
    async def large(stage: Stage) -> End:
        node = stage.enter("a", instruction="x" * 10_000)
        await effect(node, "hang", hang=True, note="y" * 10_000)
        return End("completed")

    harness = harness_for(large, inline_bytes_max=1_000, secret={"TOKEN": "s3cr3t-value"})
    ref = await harness.accept("p")
    with anyio.move_on_after(30):
        await harness.perform(ref)
    # The copy lacks the large values.
    log = await copy_log(harness, ref)
    assert await end_killed(log, harness, ref, kill(reason="it knows s3cr3t-value"))
    events = [item.event for item in await log.read(ref)]
    check_log(events)
    cancelled = next(ev.payload_of(event) for event in events if event.type == "cancel.requested")
    assert isinstance(cancelled, ev.CancelRequested)
    assert cancelled.reason == "it knows [secret:TOKEN]"


async def test_a_run_whose_cancellation_has_a_large_message_can_be_killed(plain_log: None) -> None:
    """The message is stored beside the event, which has a marker instead."""
    harness = harness_for(plays.cancelled, inline_bytes_max=1_000)
    ref = await harness.accept("p")
    with anyio.move_on_after(1):
        await harness.perform(ref)
    with anyio.move_on_after(1):
        await harness.perform(ref, harness.command("cancel", reason="enough", message="m" * 10_000))
    assert "cancel.requested" in types(await harness.events(ref))
    assert "run.end" not in types(await harness.events(ref))
    assert await end_killed(harness.log, harness, ref, kill())
    events = [item.event for item in await harness.log.read(ref)]
    check_log(events)
    assert end_of(events).error == Failure("cancelled", "killed", type="cancellation")


async def test_the_end_of_a_killed_run_has_its_large_warnings(plain_log: None) -> None:
    """The warnings are stored beside the events, which have markers instead."""

    async def warns(stage: Stage) -> End:
        node = stage.enter("a")
        node.warn("odd", "w" * 10_000, [])
        await effect(node, "hang", hang=True)
        return End("completed")

    harness = harness_for(warns, inline_bytes_max=1_000)
    warnings = [Problem("strange", f"{place}" * 5_000, severity="warning") for place in range(3)]
    ref = await harness.accept("p", warnings=warnings, options={STRICT: False})
    with anyio.move_on_after(30):
        await harness.perform(ref)
    assert [event.type for event in await harness.events(ref) if event.blobs] == ["run.accepted", "node.warning"]
    # The copy lacks the large values.
    for log in (harness.log, await copy_log(harness, ref)):
        assert await end_killed(log, harness, ref, kill())
        check_log([item.event for item in await log.read(ref)])
    replayed = end_of(await harness.events(ref)).warnings
    assert [(one.code, one.reason[:1], len(one.reason)) for one in replayed] == [
        *(("strange", str(place), 5_000) for place in range(3)),
        ("odd", "w", 10_000),
    ]


async def start_child(stage: Stage) -> End:
    node = stage.enter("a")
    await node.child("c", {"language": "play", "source": "child"}, 1)
    return End("completed")


async def test_a_kill_notifies_the_parent_and_the_children(plain_log: None) -> None:
    harness = harness_for(start_child)
    harness.plays = {**harness.plays, "child": wait_in_two_nodes}
    ref = await harness.accept("p")
    with anyio.move_on_after(30):
        await harness.perform(ref)
    (child,) = harness.children.called
    with anyio.move_on_after(30):
        await harness.perform(child)
    # The worker that kills does not know the definitions.
    other = RunHarness({}, log=harness.log)
    other.children = harness.children
    assert await end_killed(harness.log, other, ref, kill(reason="enough"))
    (stop,) = harness.children.run_messages
    assert (stop.to, stop.verb) == (child, "kill")
    assert await end_killed(harness.log, other, child, Command(5, stop.verb, stop.body))
    wake = harness.children.run_messages[-1]
    assert (wake.to, wake.verb) == (ref, "wake")
    for run in (ref, child):
        check_log(await harness.events(run))


async def continue_at_once(stage: Stage) -> End:
    return End("completed", continuation=Continuation(None))


async def test_a_kill_reaches_the_run_that_continues_a_child(plain_log: None) -> None:
    harness = harness_for(start_child)
    harness.plays = {**harness.plays, "child": continue_at_once}
    ref = await harness.accept("p")
    with anyio.move_on_after(30):
        await harness.perform(ref)
    (child,) = harness.children.called
    assert await harness.perform(child) == "ended"
    other = RunHarness({}, log=harness.log)
    other.children = harness.children
    assert await end_killed(harness.log, other, ref, kill())
    end = ev.payload_of((await harness.events(child))[-1])
    assert isinstance(end, ev.RunEnd)
    assert end.successor is not None
    stops = [one for one in harness.children.run_messages if getattr(one, "verb", "") == "kill"]
    assert [stop.to.run for stop in stops] == [end.successor.run]


async def one_model_turn(stage: Stage) -> End:
    node = stage.enter("m")
    await node.turn("turn.1", ModelRequest(messages=[Message("user", [Text("Count.")])]))
    return End("completed")


async def wait_after_child(stage: Stage) -> End:
    """Waits for a child, and then for an effect that hangs."""
    node = stage.enter("a")
    await node.child("c", {"language": "play", "source": "costly"}, 1)
    await effect(node, "hang", hang=True)
    return End("completed")


async def test_the_end_of_a_killed_run_has_the_usage_of_its_children(plain_log: None) -> None:
    harness = harness_for(wait_after_child)
    harness.plays = {**harness.plays, "costly": one_model_turn}
    harness.script = {"default": {"text": "3", "usage": {"input_tokens": 5, "output_tokens": 2}}}
    ref = await harness.accept("p")
    await harness.perform(ref)
    (child,) = harness.children.called
    await harness.perform(child)
    wake = harness.children.run_messages[-1]
    with anyio.move_on_after(30):
        await harness.perform(ref, Command(6, wake.verb, wake.body))
    other = RunHarness({}, log=harness.log)
    assert await end_killed(harness.log, other, ref, kill())
    events = await harness.events(ref)
    check_log(events)
    assert end_of(events).usage == Usage(5, 2)
    verified = replay_events(ref, events, read_admission(events[0], harness.language), {})
    assert verified.ended


# -- at a worker -------------------------------------------------------------------------------------------------------

SOURCE = json.dumps(
    {
        "id": "w",
        "name": "W",
        "entry": "a",
        "nodes": {"a": {"name": "A", "instruction": "Count."}},
        "edges": [],
    }
)


async def record_diverged_run(log: Any, ref: RunRef, source: str) -> None:
    """Record a run like another version: in a node that this version does not know, with an open turn."""
    definition = Definitions().language("workflow").parse(SOURCE)
    assert not isinstance(definition, list)
    runlog = RunLog(log, ref, writer="ghost")
    runlog.definition = definition.name
    start = StartRun(DefinitionSource(language="workflow", source=source), run_id=ref.run, model="scripted", script={})
    named = ev.DefinitionRef("workflow", definition.hash, source, definition.name)
    runlog.state(ev.RunAccepted(named, msgspec.to_builtins(start), seed="seed"))
    runlog.epoch = 1
    runlog.state(ev.RunClaimed(worker="ghost", epoch=1))
    plan = Definitions().plan(DefinitionSource(language="workflow", source=SOURCE), start)
    assert not isinstance(plan, list)
    begun = ev.RunStart(definition.name, plan.input, arguments=plan.arguments, options=plan.options)
    runlog.state(begun)
    node = ("strange", 1, 1)
    runlog.state(ev.NodeEnter(kind_="node", node="strange"), node=node)
    turn = ev.ModelCall(purpose="turn", model="scripted", digest="0")
    runlog.state(turn, key="strange#1.1!turn.1", node=node)
    result = ev.ModelResult(text="?", usage=Usage(input_tokens=5, output_tokens=2))
    runlog.state(result, key="strange#1.1!turn.1", node=node)
    runlog.state(turn, key="strange#1.1!turn.2", node=node)
    while runlog.queue:
        await runlog.append_queued()


def break_carrier(_self: Any, _ref: RunRef, _admission: Any) -> Any:
    raise TypeError("our fault")


@pytest.mark.parametrize("why", ["diverges", "is not admitted", "fails"])
async def test_a_worker_can_kill_a_run_that_it_cannot_execute(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "fails":
        monkeypatch.setattr(Services, "carrier", break_carrier)
    flags = {"data_dir": tmp_path, "sync": "100ms", "tenant": "acme", "allow_scripts": True}
    ref = RunRef("acme", "r")
    async with (
        open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection,
        open_worker(connection, env={}),
    ):
        await record_diverged_run(connection.log, ref, "no workflow" if why == "is not admitted" else SOURCE)
        verdict = await connection.client.tell("r", "kill", Kill(reason="stuck"))
        assert verdict.status == "accepted"
        with anyio.fail_after(PATIENCE_S):
            async with connection.client.follow("r") as feed:
                async for recorded in feed:
                    if recorded.event.type == ev.RunEnd.type:
                        break
        events = await connection.client.events("r")
        check_log(events)
        assert types(events)[-6:] == [
            "run.claimed",  # of the actor that could not execute it
            "run.claimed",
            "cancel.requested",
            "effect.cancelled",
            "node.exit",
            "run.end",
        ]
        assert end_of(events).usage == Usage(input_tokens=5, output_tokens=2)
        assert end_of(events).error == Failure("cancelled", "killed", type="cancellation")
