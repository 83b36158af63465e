"""Budgets under concurrent children: what these use counts while they go on; who is held goes on with its parent."""

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
    """Spare the rendering of tracebacks that nobody reads."""


class Resuming:
    """Resumes the root each time that all of its family stands still."""

    def __init__(self) -> None:
        self.paused_at: list[int] = []
        """How many turns the family had made each time."""

    async def __call__(self, hands: Hands) -> None:
        if not hands.idle:
            return
        root = await hands.harness.events(ROOT)
        told = [event.type for event in root if event.type in (ev.RunPaused.type, ev.RunResumed.type)]
        if told and told[-1] == ev.RunPaused.type:
            self.paused_at.append(len(await turns(hands)))
            hands.say(ROOT, "resume", by="Ada")


async def turns(hands: Hands) -> list[Event]:
    events = [await hands.harness.events(ref) for ref in await hands.family(ROOT)]
    return [event for some in events for event in some if event.type == ev.ModelResult.type]


async def family(
    limits: dict[str, Any], play: str = "spenders", *, levels: int = 1, log: CrashingLog | None = None
) -> tuple[Hands, Resuming]:
    harness = family_theatre(log)
    resuming = Resuming()
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
async def test_concurrent_children_pass_a_limit_by_what_is_under_way(limits: dict[str, int]) -> None:
    hands, resuming = await family(limits)
    root = await hands.harness.events(ROOT)
    assert end_of(root).status == "completed"
    assert len(await turns(hands)) == WIDTH * TURNS
    first, second = resuming.paused_at[:2]
    assert 15 <= first <= 15 + 2 * WIDTH
    assert first < second <= 30 + 2 * WIDTH
    assert types(root).count(ev.ChildUsage.type) == WIDTH * TURNS
    assert end_of(root).usage.tokens == WIDTH * TURNS * TURN, "nothing counts twice"
    for ref in (await hands.family(ROOT))[1:]:
        events = await hands.harness.events(ref)
        told = [ev.payload_of(event) for event in events if event.type in (ev.RunPaused.type, ev.RunResumed.type)]
        assert all(isinstance(one, ev.RunPaused | ev.RunResumed) and one.by == "run r1" for one in told)


@pytest.mark.anyio
@pytest.mark.parametrize("limits", [{"tokens": 10 * TURN}, {"turns": 10}])
async def test_no_branch_goes_on_asking_when_the_budget_is_used_up(limits: dict[str, int]) -> None:
    hands, resuming = await family(limits, "chorus")
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await turns(hands)) == WIDTH * TURNS
    assert len(resuming.paused_at) == 3
    for times, made in enumerate(resuming.paused_at, 1):
        assert 10 * times <= made < 10 * times + WIDTH, "what was under way, no more"


@pytest.mark.anyio
async def test_a_child_that_is_held_begins_no_further_turn() -> None:
    hands, resuming = await family({"turns": 15}, "choruses")
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await turns(hands)) == WIDTH * TURNS
    assert 15 <= resuming.paused_at[0] <= 15 + 2 * WIDTH
    for ref in (await hands.family(ROOT))[1:]:
        held = began = False
        for event in await hands.harness.events(ref):
            if event.type in (ev.RunPaused.type, ev.RunResumed.type):
                held, began = event.type == ev.RunPaused.type, False
            assert not (held and began and event.type == ev.ModelResult.type), "announced while held, and begun"
            began = began or event.type == ev.ModelCall.type


@pytest.mark.anyio
@pytest.mark.parametrize("play", ["chorus", "choruses"])
async def test_what_was_held_is_cancelled_with_the_run(play: str) -> None:
    hands, _ = await family({"turns": 10, "then": "cancel"}, play)
    assert {end_of(await hands.harness.events(ref)).status for ref in await hands.family(ROOT)} == {"cancelled"}
    assert 10 <= len(await turns(hands)) <= 10 + 2 * WIDTH


@pytest.mark.anyio
async def test_it_is_cancelled_with_all_that_are_under_way() -> None:
    hands, _ = await family({"tokens": 15 * TURN, "then": "cancel"})
    assert {end_of(await hands.harness.events(ref)).status for ref in await hands.family(ROOT)} == {"cancelled"}
    assert 15 <= len(await turns(hands)) <= 15 + 2 * WIDTH


@pytest.mark.anyio
async def test_grandchildren_count_too() -> None:
    hands, resuming = await family({"turns": 40}, levels=2)
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await turns(hands)) == WIDTH * WIDTH * TURNS
    assert 40 <= resuming.paused_at[0] <= 40 + 3 * WIDTH * WIDTH


@pytest.mark.anyio
async def test_who_has_no_limit_hears_nothing() -> None:
    hands, _ = await family({"events": 10_000})
    for ref in await hands.family(ROOT):
        assert ev.ChildUsage.type not in types(await hands.harness.events(ref))
    assert {message.verb for message in hands.messages} == {"start", "wake"}


@pytest.mark.anyio
@pytest.mark.parametrize("point", ["before", "after"])
async def test_whoever_dies_nothing_is_lost_and_nothing_counts_twice(point: CrashPoint) -> None:
    log, appends = CrashingLog(), 0

    def crash(_entry: Entry) -> CrashPoint:
        nonlocal appends
        appends += 1
        return point if appends % 37 == 0 else None

    log.crash = crash
    hands, resuming = await family({"tokens": 15 * TURN}, log=log)
    assert hands.crashes > 5
    root = await hands.harness.events(ROOT)
    assert end_of(root).usage.tokens == WIDTH * TURNS * TURN
    used = [ev.payload_of(event) for event in root if event.type == ev.ChildUsage.type]
    assert sum(one.turns for one in used if isinstance(one, ev.ChildUsage)) == WIDTH * TURNS
    assert 15 <= resuming.paused_at[0] <= 15 + 2 * WIDTH


@pytest.mark.anyio
async def test_a_resume_that_ends_two_pauses_lets_the_held_child_go() -> None:
    harness = family_theatre()
    hands = Hands(harness, Resuming())
    given = {"turns": TURNS}
    await harness.accept("spender_beside_a_stop", input=given, limits={"turns": 4}, breakpoints=["stop"])
    root = await hands.finish(ROOT)
    assert end_of(root).status == "completed"
    first, second = [event for event in root if event.type == ev.RunResumed.type][:2]
    assert second.n == first.n + 1
    assert (bool(first.key), second.key) == (True, ""), "one resume has ended both"


@pytest.mark.anyio
@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("which", [1, 2])
async def test_who_dies_at_the_end_of_either_of_two_pauses_leaves_no_child_held(which: int, point: CrashPoint) -> None:
    log, resumed = CrashingLog(), 0

    def crash(entry: Entry) -> CrashPoint:
        nonlocal resumed
        if entry.type != ev.RunResumed.type or decode_event(entry.data).run != ROOT.run:
            return None
        resumed += 1
        return point if resumed == which else None

    log.crash = crash
    hands = Hands(family_theatre(log), Resuming())
    given, limits = {"turns": TURNS}, {"turns": 4}
    await hands.harness.accept("spender_beside_a_stop", input=given, limits=limits, breakpoints=["stop"])
    root = await hands.finish(ROOT)
    check_log(root)
    assert (hands.crashes, end_of(root).status) == (1, "completed")
    assert len(await turns(hands)) == TURNS
    told = [message for message in hands.messages if message.verb in ("hold", "release")]
    assert {message.ref for message in told} == set((await hands.family(ROOT))[1:])
    assert (told[0].verb, told[-1].verb) == ("hold", "release")


@pytest.mark.anyio
@pytest.mark.parametrize(("held_max", "every"), [(1, 0), (2, 61)])
async def test_children_that_one_batch_does_not_hold_go_with_the_next(
    monkeypatch: pytest.MonkeyPatch, held_max: int, every: int
) -> None:
    monkeypatch.setattr(budget, "HELD_MAX", held_max)
    log, appends = CrashingLog(), 0

    def crash(_entry: Entry) -> CrashPoint:
        nonlocal appends
        appends += 1
        return "after" if every and appends % every == 0 else None

    log.crash = crash
    hands, _ = await family({"turns": 15}, log=log)
    assert bool(every) == bool(hands.crashes)
    assert end_of(await hands.harness.events(ROOT)).status == "completed"
    assert len(await turns(hands)) == WIDTH * TURNS


async def napping(stage: Stage) -> End:
    node = stage.enter("a")
    await node.sleep("nap", after(stage.now(), 60))
    node.exit("ok")
    await stage.gate(None, "b")
    stage.enter("b").exit("ok")
    return End("completed")


async def test_whoever_lets_a_run_go_on_ends_no_breakpoint_that_it_has_come_to() -> None:
    harness = harness_for(napping)
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
