"""Budgets with concurrent children: their usage counts while they run, and a held child continues with its parent."""

from typing import Any

import anyio
import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Hold
from callboard.bus.events import Event, decode_event
from callboard.bus.log.port import Entry
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.runtime.run import budget
from callboard.runtime.run.activation import Command
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog, CrashPoint
from callboard.testing.virtual_time import VIRTUAL
from tests.support.families import Hands, family_theatre
from tests.support.run_harness import end_of, types
from tests.support.sample_interpreters import after
from tests.support.simulation import harness_for

ROOT = RunRef("acme", "r1")

TURN = 11
"""Tokens of a turn."""

WIDTH, TURNS = 4, 10


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


@pytest.fixture(autouse=True)
def plain_log(quiet_log: None) -> None:
    """Log entries are not rendered."""


class ResumeWhenIdle:
    """Resumes the root whenever it is paused and no run of its family is active."""

    def __init__(self) -> None:
        self.paused_at: list[int] = []
        """The number of turns of the family at each resume."""

    async def __call__(self, hands: Hands) -> None:
        if not hands.idle:
            return
        root = await hands.harness.events(ROOT)
        messages = [event.type for event in root if event.type in (ev.RunPaused.type, ev.RunResumed.type)]
        if messages and messages[-1] == ev.RunPaused.type:
            self.paused_at.append(len(await model_results(hands)))
            hands.say(ROOT, "resume", by="Ada")


async def model_results(hands: Hands) -> list[Event]:
    events = [await hands.harness.events(ref) for ref in await hands.family(ROOT)]
    return [event for some in events for event in some if event.type == ev.ModelResult.type]


async def perform_family(
    limits: dict[str, Any], play: str = "spenders", *, levels: int = 1, log: CrashingLog | None = None
) -> tuple[Hands, ResumeWhenIdle]:
    harness = family_theatre(log)
    resuming = ResumeWhenIdle()
    hands = Hands(harness, resuming)
    await harness.accept(play, input={"turns": TURNS, "width": WIDTH, "levels": levels}, limits=limits)
    await hands.finish(ROOT)
    for ref in await hands.family(ROOT):
        events = await harness.events(ref)
        check_log(events)
        if end_of(events).status == "completed":
            check_replay(harness.language, ref, events)
    return hands, resuming


@pytest.mark.anyio
@pytest.mark.parametrize("limits", [{"tokens": 15 * TURN}, {"turns": 15}])
async def test_concurrent_children_exceed_a_limit_only_by_their_active_turns(limits: dict[str, int]) -> None:
    hands, resuming = await perform_family(limits)
    root = await hands.harness.events(ROOT)
    assert end_of(root).status == "completed"
    assert len(await model_results(hands)) == WIDTH * TURNS
    first, second = resuming.paused_at[:2]
    assert 15 <= first <= 15 + 2 * WIDTH
    assert first < second <= 30 + 2 * WIDTH
    assert types(root).count(ev.ChildUsage.type) == WIDTH * TURNS
    assert end_of(root).usage.tokens == WIDTH * TURNS * TURN, "nothing counts twice"
    for ref in (await hands.family(ROOT))[1:]:
        events = await hands.harness.events(ref)
        messages = [ev.payload_of(event) for event in events if event.type in (ev.RunPaused.type, ev.RunResumed.type)]
        assert all(isinstance(one, ev.RunPaused | ev.RunResumed) and one.by == "run r1" for one in messages)


@pytest.mark.anyio
@pytest.mark.parametrize("limits", [{"tokens": 10 * TURN}, {"turns": 10}])
async def test_concurrent_branches_exceed_a_limit_only_by_their_active_turns(limits: dict[str, int]) -> None:
    hands, resuming = await perform_family(limits, "chorus")
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await model_results(hands)) == WIDTH * TURNS
    assert len(resuming.paused_at) == 3
    for times, count in enumerate(resuming.paused_at, 1):
        assert 10 * times <= count < 10 * times + WIDTH, "only the active turns exceed the limit"


@pytest.mark.anyio
async def test_a_held_child_begins_no_turn() -> None:
    hands, resuming = await perform_family({"turns": 15}, "choruses")
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await model_results(hands)) == WIDTH * TURNS
    assert 15 <= resuming.paused_at[0] <= 15 + 2 * WIDTH
    for ref in (await hands.family(ROOT))[1:]:
        held = began = False
        for event in await hands.harness.events(ref):
            if event.type in (ev.RunPaused.type, ev.RunResumed.type):
                held, began = event.type == ev.RunPaused.type, False
            assert not (held and began and event.type == ev.ModelResult.type), (
                "the turn was requested while held, and executed"
            )
            began = began or event.type == ev.ModelCall.type


@pytest.mark.anyio
@pytest.mark.parametrize("play", ["chorus", "choruses"])
async def test_held_turns_are_cancelled_with_the_run(play: str) -> None:
    hands, _ = await perform_family({"turns": 10, "then": "cancel"}, play)
    assert {end_of(await hands.harness.events(ref)).status for ref in await hands.family(ROOT)} == {"cancelled"}
    assert 10 <= len(await model_results(hands)) <= 10 + 2 * WIDTH


@pytest.mark.anyio
async def test_active_children_are_cancelled_at_the_limit_of_their_parent() -> None:
    hands, _ = await perform_family({"tokens": 15 * TURN, "then": "cancel"})
    assert {end_of(await hands.harness.events(ref)).status for ref in await hands.family(ROOT)} == {"cancelled"}
    assert 15 <= len(await model_results(hands)) <= 15 + 2 * WIDTH


@pytest.mark.anyio
async def test_turns_of_grandchildren_count() -> None:
    hands, resuming = await perform_family({"turns": 40}, levels=2)
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await model_results(hands)) == WIDTH * WIDTH * TURNS
    assert 40 <= resuming.paused_at[0] <= 40 + 3 * WIDTH * WIDTH


@pytest.mark.anyio
async def test_a_run_without_such_a_limit_gets_no_usage_of_its_children() -> None:
    hands, _ = await perform_family({"events": 10_000})
    for ref in await hands.family(ROOT):
        assert ev.ChildUsage.type not in types(await hands.harness.events(ref))
    assert {message.verb for message in hands.messages} == {"start", "wake"}


@pytest.mark.anyio
@pytest.mark.parametrize("point", ["before", "after"])
async def test_usage_of_children_counts_once_despite_crashes(point: CrashPoint) -> None:
    log, appends = CrashingLog(), 0

    def crash(_entry: Entry) -> CrashPoint:
        nonlocal appends
        appends += 1
        return point if appends % 37 == 0 else None

    log.crash = crash
    hands, resuming = await perform_family({"tokens": 15 * TURN}, log=log)
    assert hands.crashes > 5
    root = await hands.harness.events(ROOT)
    assert end_of(root).usage.tokens == WIDTH * TURNS * TURN
    used = [ev.payload_of(event) for event in root if event.type == ev.ChildUsage.type]
    assert sum(one.turns for one in used if isinstance(one, ev.ChildUsage)) == WIDTH * TURNS
    assert 15 <= resuming.paused_at[0] <= 15 + 2 * WIDTH


@pytest.mark.anyio
async def test_a_resume_that_ends_two_pauses_releases_the_held_child() -> None:
    harness = family_theatre()
    hands = Hands(harness, ResumeWhenIdle())
    given = {"turns": TURNS}
    await harness.accept("spender_beside_a_stop", input=given, limits={"turns": 4}, breakpoints=["stop"])
    root = await hands.finish(ROOT)
    assert end_of(root).status == "completed"
    first, second = [event for event in root if event.type == ev.RunResumed.type][:2]
    assert second.n == first.n + 1
    assert (bool(first.key), second.key) == (True, ""), "one resume ended both pauses"


@pytest.mark.anyio
@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("which", [1, 2])
async def test_a_crash_at_the_end_of_either_of_two_pauses_leaves_no_child_held(which: int, point: CrashPoint) -> None:
    log, resumed = CrashingLog(), 0

    def crash(entry: Entry) -> CrashPoint:
        nonlocal resumed
        if entry.type != ev.RunResumed.type or decode_event(entry.data).run != ROOT.run:
            return None
        resumed += 1
        return point if resumed == which else None

    log.crash = crash
    hands = Hands(family_theatre(log), ResumeWhenIdle())
    given, limits = {"turns": TURNS}, {"turns": 4}
    await hands.harness.accept("spender_beside_a_stop", input=given, limits=limits, breakpoints=["stop"])
    root = await hands.finish(ROOT)
    check_log(root)
    assert (hands.crashes, end_of(root).status) == (1, "completed")
    assert len(await model_results(hands)) == TURNS
    messages = [message for message in hands.messages if message.verb in ("hold", "release")]
    assert {message.ref for message in messages} == set((await hands.family(ROOT))[1:])
    assert (messages[0].verb, messages[-1].verb) == ("hold", "release")


@pytest.mark.anyio
@pytest.mark.parametrize(("held_max", "every"), [(1, 0), (2, 61)])
async def test_children_beyond_the_bound_of_a_batch_are_held_by_the_next_batch(
    monkeypatch: pytest.MonkeyPatch, held_max: int, every: int
) -> None:
    monkeypatch.setattr(budget, "HELD_MAX", held_max)
    log, appends = CrashingLog(), 0

    def crash(_entry: Entry) -> CrashPoint:
        nonlocal appends
        appends += 1
        return "after" if every and appends % every == 0 else None

    log.crash = crash
    hands, _ = await perform_family({"turns": 15}, log=log)
    assert bool(every) == bool(hands.crashes)
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await model_results(hands)) == WIDTH * TURNS


async def sleep_then_gate(stage: Stage) -> End:
    node = stage.enter("a")
    await node.sleep("nap", after(stage.now(), 60))
    node.exit("ok")
    await stage.gate(None, "b")
    stage.enter("b").exit("ok")
    return End("completed")


async def test_a_release_does_not_end_a_breakpoint() -> None:
    harness = harness_for(sleep_then_gate)
    ref = await harness.accept("p", breakpoints=["b"])
    by = msgspec.json.encode(Hold("run parent", "used up"))
    assert await harness.perform(ref, Command(100, "hold", by)) == "parked"
    with anyio.move_on_after(120):
        await anyio.sleep_forever()
    assert await harness.perform(ref) == "parked"
    assert await harness.perform(ref, Command(101, "release", by)) == "parked"
    assert await harness.perform(ref, harness.command("resume")) == "ended"
    events = await harness.events(ref)
    check_log(events)
    check_replay(harness.language, ref, events)
