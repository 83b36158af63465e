"""The run actor from claim to end: parking, alarms, timers, deadlines, effects and their failures, model turns."""

import datetime as dt
from typing import Any

import pytest
import structlog

from callboard.bus import events as ev
from callboard.bus.effects import ModelReply, ModelRequest, Recall, ToolOutput, Usage, user
from callboard.bus.log.memory import MemoryLog
from callboard.bus.subjects import RunRef, partition_of
from callboard.languages.language import End, Expired, Failed, Ok, Stage
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import BEGINNING, VIRTUAL, VirtualClock
from tests.support import sample_interpreters as plays
from tests.support.run_harness import RunHarness, end_of, types
from tests.support.sample_interpreters import after, effect, value
from tests.support.simulation import World, finish, harness_for


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


@pytest.fixture(autouse=True)
def plain_log(quiet_log: None) -> None:
    structlog.configure(processors=[])


def clock_of(harness: RunHarness) -> VirtualClock:
    assert isinstance(harness.clock, VirtualClock)
    return harness.clock


async def sleep_a_minute(stage: Stage) -> End:
    node = stage.enter("a")
    await node.sleep("sleep", after(node.entered_at, 60))
    woken = stage.now()
    node.exit("ok")
    return End("completed", (woken - node.entered_at).total_seconds())


async def test_a_run_parks_with_an_alarm_that_activates_it() -> None:
    harness = harness_for(sleep_a_minute)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    events = await harness.events(ref)
    parked = ev.payload_of(events[-1])
    due = after(BEGINNING, 60)
    assert parked == ev.RunParked(awaits=["a#1.1!sleep"], deadline=due, status="waiting:timer")
    assert isinstance(harness.log, MemoryLog)
    alarm = harness.log.alarms[ref]
    assert (alarm.due, alarm.partition) == (due, partition_of(ref, harness.partitions))
    clock_of(harness).set(due)
    assert await harness.perform(ref, harness.command("alarm")) == "ended"
    events = await harness.events(ref)
    check_log(events)
    assert types(events)[-5:] == ["run.parked", "run.claimed", "timer.fired", "node.exit", "run.end"]
    assert end_of(events).output == 60
    assert events[-1].epoch == 2
    check_replay(harness.language, ref, events)


async def test_a_spurious_alarm_is_harmless() -> None:
    harness = harness_for(sleep_a_minute)
    ref = await harness.accept("p")
    await harness.perform(ref)
    assert await harness.perform(ref, harness.command("alarm")) == "parked"
    events = await finish(harness, ref, World())
    check_log(events)
    assert types(events).count("timer.fired") == 1
    assert end_of(events).output == 60


async def test_a_run_with_a_near_deadline_does_not_park() -> None:
    harness = harness_for(sleep_a_minute, park_linger_s=100.0)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "ended"
    assert "run.parked" not in types(await harness.events(ref))


async def test_a_run_lingers_before_it_parks() -> None:
    harness = harness_for(sleep_a_minute, park_linger_s=10.0)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    events = await harness.events(ref)
    assert events[-1].time - events[-2].time == dt.timedelta(seconds=10)


async def test_a_sleep_until_a_past_time_ends_at_once() -> None:
    async def play(stage: Stage) -> End:
        await stage.root.sleep("sleep", after(stage.now(), -1))
        return End("completed")

    harness = harness_for(play)
    assert types(await harness.play("p")) == ["run.accepted", "run.claimed", "run.start", "run.end"]


async def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    async def play(stage: Stage) -> End:
        order: list[int] = []

        async def nap(seconds: int) -> None:
            await stage.root.sleep(f"nap.{seconds}", after(stage.now(), seconds))
            order.append(seconds)

        await stage.join(*[stage.spawn(nap(seconds)) for seconds in (30, 10, 20)])
        return End("completed", order)

    harness = harness_for(play)
    ref = await harness.accept("p")
    await harness.perform(ref)
    clock_of(harness).set(after(BEGINNING, 3600))
    assert await harness.perform(ref, harness.command("alarm")) == "ended"
    assert end_of(await harness.events(ref)).output == [10, 20, 30]


@pytest.mark.parametrize(("wait_s", "expected"), [(5, "x"), (50, "expired")])
async def test_a_deadline_races_a_result(wait_s: int, expected: str) -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        bounded = await stage.within(after(stage.now(), 10), effect(node, "x", wait_s), node=node, slot="timeout")
        node.exit("ok")
        return End("completed", value(bounded.settled) if isinstance(bounded, Expired) else bounded.value)

    harness = harness_for(play)
    events = await harness.play("p")
    check_log(events)
    assert end_of(events).output == expected
    assert types(events)[5:-2] == (["effect.result"] if expected == "x" else ["timer.fired", "effect.cancelled"])
    check_replay(harness.language, RunRef("acme", "r1"), events)


async def test_a_recorded_result_beats_a_deadline_that_passed_before_the_activation() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        call = node.tool("call", "caller_tool", {}, via="caller")
        bounded = await stage.within(after(stage.now(), 10), call, node=node, slot="timeout")
        node.exit("ok")
        return End("completed", isinstance(bounded, Ok))

    harness = harness_for(play)
    ref = await harness.accept("p")
    await harness.perform(ref)
    clock_of(harness).set(after(BEGINNING, 60))
    answer = harness.command("answer", interaction="a#1.1!call", user_response=1)
    await harness.perform(ref, answer)
    assert end_of(await harness.events(ref)).output is True

    late = harness_for(play)
    ref = await late.accept("p")
    await late.perform(ref)
    clock_of(late).set(after(BEGINNING, 60))
    await late.perform(ref, late.command("alarm"))
    assert end_of(await late.events(ref)).output is False


async def test_failures_of_effects_are_returned_to_the_interpreter() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        failed = await node.call("one", "http", {"fail": "http.503"})
        unknown = await node.call("two", "provider", {})
        tool = await node.tool("three", "nothing", {})
        turn = await node.turn("four", ModelRequest(messages=[user("?")]))
        codes = [outcome.error.code for outcome in (failed, unknown, tool, turn) if isinstance(outcome, Failed)]
        node.exit("failed")
        return End("completed", codes)

    harness = harness_for(play)
    events = await harness.play("p")
    check_log(events)
    assert end_of(events).output == ["http.503", "effect.unsupported", "tool.unknown", "model.unscripted"]


async def test_an_unexpected_exception_in_an_effect_fails_it_as_internal() -> None:
    async def play(stage: Stage) -> End:
        return End("completed", await effect(stage.root, "x"))

    async def calls(_job: object, _request: object) -> Any:
        raise ZeroDivisionError("inside")

    harness = harness_for(play)
    harness.calls = calls
    events = await harness.play("p")
    assert end_of(events).output == "internal"
    assert b"Traceback" not in b"".join(bytes(event.payload) for event in events)


async def test_an_outcome_that_cannot_be_encoded_fails_its_effect_as_internal() -> None:
    async def play(stage: Stage) -> End:
        return End("completed", await effect(stage.root, "x"))

    async def calls(_job: object, _request: object) -> Any:
        return object(), None

    harness = harness_for(play)
    harness.calls = calls
    events = await harness.play("p")
    check_log(events)
    assert end_of(events).output == "internal"


async def test_an_exception_of_the_interpreter_ends_the_run_as_internal() -> None:
    harness = harness_for(plays.broken)
    events = await harness.play("p")
    check_log(events)
    assert types(events)[-2:] == ["run.failed", "run.end"]
    end = end_of(events)
    assert (end.status, end.error and end.error.code) == ("failed", "internal")
    assert end.error is not None
    assert end.error.message == "LookupError: no such edge"
    exits = [ev.payload_of(event) for event in events if event.type == ev.NodeExit.type]
    assert all(isinstance(left, ev.NodeExit) and left.outcome == "failed" for left in exits)


async def test_a_deadlock_of_tasks_fails_the_run() -> None:
    async def play(stage: Stage) -> End:
        stage.enter("a")
        tasks: list[Any] = []

        async def other(mine: int) -> None:
            await stage.join(tasks[1 - mine])

        tasks.extend(stage.spawn(other(index)) for index in range(2))
        await stage.join(*tasks)
        return End("completed")

    harness = harness_for(play)
    events = await harness.play("p")
    check_log(events)
    end = end_of(events)
    assert (end.status, end.error and end.error.code) == ("failed", "internal")


async def test_an_unknown_and_an_ended_run_are_not_executed() -> None:
    harness = harness_for(sleep_a_minute)
    assert await harness.perform(RunRef("acme", "r1")) == "not_found"
    ref = await harness.accept("p")
    events = await finish(harness, ref, World())
    assert await harness.perform(ref) == "finished_before"
    assert await harness.events(ref) == events


async def test_each_model_call_records_only_the_new_messages_of_its_conversation() -> None:
    harness = harness_for(plays.workflow, script=plays.AGENT_SCRIPT)
    events = await harness.play("p")
    calls = {event.key: ev.payload_of(event) for event in events if event.type == ev.ModelCall.type}
    second = calls["gather#1.1!turn.2"]
    assert isinstance(second, ev.ModelCall)
    assert second.base == "gather#1.1!turn.1"
    assert [part.of for part in second.messages[0].parts if isinstance(part, ToolOutput)] == [
        f"gather#1.1!tool.1.{i}" for i in range(3)
    ]
    assert second.system == ""
    report = calls["report#1.1!turn.1"]
    assert isinstance(report, ev.ModelCall)
    assert report.messages[0].parts == [Recall(of="gather#1", at="/result/data")]
    assert len({call.digest for call in calls.values() if isinstance(call, ev.ModelCall)}) == len(calls)


async def test_usage_counts_turns_that_nothing_waits_for() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        turns = [stage.spawn(node.turn(f"turn.{i}", ModelRequest(messages=[user(str(i))]))) for i in range(2)]
        first = await stage.first(*turns)
        assert isinstance(first.settled, Ok)
        reply = first.settled.value
        assert isinstance(reply, Ok)
        assert isinstance(reply.value, ModelReply)
        node.exit("ok")
        return End("completed")

    entry = {"text": "x", "usage": {"input_tokens": 5, "output_tokens": 1}}
    harness = harness_for(play, script={"turns": {"a": [entry, entry]}})
    events = await harness.play("p")
    check_log(events)
    paid = Usage()
    for event in events:
        result = ev.payload_of(event)
        if isinstance(result, ev.ModelResult):
            paid += result.usage
    assert end_of(events).usage == paid
