"""Cancelling and killing a run: open effects are closed once, and shielded work is finished."""

import gc
from typing import Any

import anyio
import pytest
import structlog

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.languages.language import Ask, Cancelled, End, Ok, Stage, Unwound
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VIRTUAL
from tests.support import sample_interpreters as interpreters
from tests.support.run_harness import end_of, types
from tests.support.sample_interpreters import after, effect
from tests.support.simulation import World, finish, harness_for


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


@pytest.fixture
def frozen() -> None:
    """Let a garbage collection look only at the objects of the test."""
    gc.freeze()


@pytest.fixture(autouse=True)
def plain_log(quiet_log: None) -> None:
    structlog.configure(processors=[])


async def unwinding(stage: Stage) -> End:
    """Wait without end, and clean up by a shielded effect after a cancellation."""
    node = stage.enter("a")
    try:
        tasks = [stage.spawn(effect(node, f"hang.{i}", hang=True)) for i in range(2)]
        await effect(node, "now", 1, tell="cancel")
        await stage.join(*tasks)
    finally:
        async with stage.shield():
            tidied = await effect(node, "tidy", 1)
        node.exit("cancelled", tidied)
    return End("completed")


async def test_a_cancelled_run_closes_its_effects_once_and_cleans_up() -> None:
    harness = harness_for(unwinding)
    events = await harness.play("p")
    check_log(events)
    assert types(events)[-4:] == ["effect.call", "effect.result", "node.exit", "run.end"]
    closed = [event.key for event in events if event.type == ev.EffectCancelled.type]
    assert sorted(closed) == ["a#1.1!hang.0", "a#1.1!hang.1", "a#1.1!now"]
    causes = [ev.payload_of(event) for event in events if event.type == ev.EffectCancelled.type]
    assert {cause.cause.code for cause in causes if isinstance(cause, ev.EffectCancelled)} == {"cancelled"}
    end = end_of(events)
    assert (end.status, end.error and end.error.code) == ("cancelled", "cancelled")
    assert harness.executed[-1] == "a#1.1!tidy"


async def test_a_second_cancellation_is_refused_during_the_clean_up() -> None:
    harness = harness_for(interpreters.cancelled)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    assert await harness.perform(ref, harness.command("cancel", id="again")) == "parked"
    events = await finish(harness, ref, World())
    check_log(events)
    refused = [ev.payload_of(event) for event in events if event.type == ev.CommandRefused.type]
    assert [item.code for item in refused if isinstance(item, ev.CommandRefused)] == ["cancel.already"]
    assert types(events).count("cancel.requested") == 1
    assert types(events).count("timer.fired") == 1
    assert end_of(events).status == "cancelled"


async def test_a_parked_run_is_cancelled() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        try:
            async with node.question("ask", Ask("?")) as question:
                await question.answer()
        finally:
            node.exit("cancelled")
        return End("completed")

    harness = harness_for(play)
    ref = await harness.accept("p")
    await harness.perform(ref)
    cancel = harness.command("cancel", by="Ada", reason="no longer needed", message="Thanks.", details={"x": 1})
    assert await harness.perform(ref, cancel) == "ended"
    events = await harness.events(ref)
    check_log(events)
    requested = next(ev.payload_of(event) for event in events if event.type == ev.CancelRequested.type)
    assert requested == ev.CancelRequested("no longer needed", "Ada", "Thanks.", {"x": 1})
    end = end_of(events)
    assert end.error == Failure("cancelled", "Thanks.", "cancellation")


async def test_an_interpreter_may_decide_how_a_cancelled_run_ends() -> None:
    async def play(stage: Stage) -> End:
        try:
            await effect(stage.root, "now", 1, tell="cancel", hang=True)
        except Cancelled as cancelled:
            return End("failed", None, {"code": "System.Cancelled"}, cancelled.cause)
        return End("completed")

    harness = harness_for(play)
    events = await harness.play("p")
    check_log(events)
    assert types(events)[-2:] == ["run.failed", "run.end"]
    assert end_of(events).results == {"code": "System.Cancelled"}


async def test_a_kill_skips_the_clean_up() -> None:
    harness = harness_for(interpreters.killed)
    events = await harness.play("p")
    check_log(events)
    assert "top#1.1!ask" in [event.key for event in events if event.type == ev.EffectCancelled.type]
    assert not [key for key in harness.executed if key.endswith("tidy")]
    assert end_of(events).error == Failure("cancelled", "killed", "cancellation")


async def test_a_kill_ends_a_run_whose_clean_up_hangs() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        try:
            await effect(node, "now", 1, tell="cancel", hang=True)
        finally:
            async with stage.shield():
                await node.sleep("hang", after(stage.now(), 1e6))
        return End("completed")

    harness = harness_for(play)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    assert await harness.perform(ref, harness.command("kill", by="Ada")) == "ended"
    events = await harness.events(ref)
    check_log(events)
    assert end_of(events).status == "cancelled"


async def test_work_with_a_timeout_inside_a_shield_is_not_cancelled() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")

        async def careful() -> str:
            async with stage.shield():
                bounded = await stage.within(
                    after(stage.now(), 60), effect(node, "careful", 10), node=node, slot="bound"
                )
                assert isinstance(bounded, Ok)
            await effect(node, "never", 1)
            return bounded.value

        task = stage.spawn(careful())
        await effect(node, "soon", 1)
        stage.cancel(task, Failure("stop"))
        settled = await stage.join(task)
        node.exit("ok")
        return End("completed", settled == [Unwound(Failure("stop"), None)])

    harness = harness_for(play)
    ref = await harness.accept("p")
    await harness.perform(ref)
    events = await harness.events(ref)
    check_log(events)
    assert end_of(events).output is True
    assert sorted(harness.executed) == ["a#1.1!careful", "a#1.1!soon"]
    assert "effect.cancelled" not in types(events)
    check_replay(harness.language, ref, events)


async def test_a_cancelled_task_starts_nothing_new_while_its_children_clean_up() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")

        async def slow() -> None:
            try:
                await effect(node, "slow", hang=True)
            finally:
                async with stage.shield():
                    await effect(node, "tidy", 10)

        async def parent() -> None:
            task = stage.spawn(slow())
            await stage.first(task, stage.spawn(effect(node, "quick", hang=True)))
            await effect(node, "next")

        async def waiting_parent() -> None:
            stage.spawn(slow_too())
            await effect(node, "outcome", 5)
            await effect(node, "after outcome")

        async def slow_too() -> None:
            try:
                await effect(node, "slow too", hang=True)
            finally:
                async with stage.shield():
                    await effect(node, "tidy too", 10)

        tasks = [stage.spawn(parent()), stage.spawn(waiting_parent())]
        await effect(node, "soon", 1)
        for task in tasks:
            stage.cancel(task, Failure("stop"))
        await stage.join(*tasks)
        node.exit("ok")
        return End("completed")

    harness = harness_for(play)
    ref = await harness.accept("p")
    await harness.perform(ref)
    events = await harness.events(ref)
    check_log(events)
    assert not {"a#1.1!next", "a#1.1!after outcome"} & set(harness.executed)
    check_replay(harness.language, ref, events)


@pytest.mark.usefixtures("frozen")
async def test_a_cancelled_task_does_not_begin_work_with_a_timeout() -> None:
    begun: list[int] = []

    async def play(stage: Stage) -> End:
        node = stage.enter("a")

        async def bounded() -> None:
            begun.append(1)

        async def one() -> None:
            await effect(node, "one", 1)
            stage.cancel(tasks[0], Failure("stop"))
            await stage.within(after(stage.now(), 10), bounded(), node=node, slot="bound")

        tasks = [stage.spawn(one())]
        await stage.join(*tasks)
        node.exit("ok")
        return End("completed")

    harness = harness_for(play)
    events = await harness.play("p")
    gc.collect()
    check_log(events)
    assert begun == []


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("play", [interpreters.cancelled, interpreters.flow, interpreters.killed, interpreters.broken])
async def test_coroutines_of_an_abandoned_run_do_not_continue(play: Any) -> None:
    """The worker dies while coroutines wait."""
    log = CrashingLog()
    harness = harness_for(play, log)
    ref = await harness.accept("p")
    log.crash = lambda entry: "after" if entry.n == 14 else None
    with pytest.raises(BaseExceptionGroup):
        await harness.perform(ref)
    executed = list(harness.executed)
    events = await harness.events(ref)
    harness.acting = None
    gc.collect()
    assert await harness.events(ref) == events
    assert harness.executed == executed


async def test_a_task_is_cancelled_at_the_end_of_its_parent() -> None:
    async def play(stage: Stage) -> End:
        stage.spawn(effect(stage.root, "forever", hang=True))
        await effect(stage.root, "short", 1)
        return End("completed")

    harness = harness_for(play)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "ended"
    events = await harness.events(ref)
    check_log(events)
    cancelled = next(ev.payload_of(event) for event in events if event.type == ev.EffectCancelled.type)
    assert isinstance(cancelled, ev.EffectCancelled)
    assert cancelled.cause.code == "orphaned"
    check_replay(harness.language, ref, events)


async def test_an_outcome_that_comes_after_the_cancellation_is_dropped() -> None:
    """The effect ignores its cancellation (rule R2)."""

    async def play(stage: Stage) -> End:
        task = stage.spawn(effect(stage.root, "stubborn"))
        await effect(stage.root, "soon")
        stage.cancel(task, Failure("stop"))
        settled = await stage.join(task)
        await effect(stage.root, "last")
        return End("completed", settled == [Unwound(Failure("stop"), None)])

    durations_s = {"stubborn": 5, "soon": 1, "last": 20}
    finished: list[str] = []

    async def calls(_job: object, request: Any) -> tuple[Any, None]:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(durations_s[request["value"]])
        finished.append(request["value"])
        return request["value"], None

    harness = harness_for(play)
    harness.calls = calls
    events = await harness.play("p")
    check_log(events)
    assert finished == ["soon", "stubborn", "last"]
    assert end_of(events).output is True
    assert [event.type for event in events if event.key == "#1.1!stubborn"] == ["effect.call", "effect.cancelled"]
