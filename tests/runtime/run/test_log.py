"""The log of a run: large values, secrets, rival writers, divergence, and many open effects."""

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import structlog

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError, ReplayDiverged, RunLost
from callboard.bus.log.memory import MemoryLog
from callboard.languages.language import End, Expired, Failed, Ok, Stage
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import VIRTUAL
from tests.support.run_harness import RunHarness, end_of, types
from tests.support.sample_interpreters import LOST, after, effect
from tests.support.simulation import World, copied, finish, harness_for

MIB = 1024 * 1024


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


@pytest.fixture(autouse=True)
def plain_log(quiet_log: None) -> None:
    structlog.configure(processors=[])


async def one_effect(stage: Stage) -> End:
    node = stage.enter("a")
    outcome = await node.call("x", "http", {"value": stage.info.input, "after": 1})
    assert isinstance(outcome, Ok)
    node.exit("ok", outcome.value)
    return End("completed", outcome.value)


# -- large values ------------------------------------------------------------------------------------------------------


async def test_large_values_are_stored_beside_their_events() -> None:
    large = "x" * (8 * MIB)

    async def play(stage: Stage) -> End:
        outcome = await stage.root.call("x", "http", {})
        await stage.root.sleep("sleep", after(stage.now(), 60))
        assert isinstance(outcome, Ok)
        return End("completed", len(outcome.value["text"]))

    async def calls(_job: object, _request: object) -> tuple[Any, None]:
        return {"text": large, "small": 1}, None

    harness = harness_for(play)
    harness.calls = calls
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    events = await finish(harness, ref, World())
    assert end_of(events).output == len(large)
    stored = await harness.log.read(ref)
    assert max(len(item.data) for item in stored) < 8 * 1024
    result = next(item for item in stored if item.event.type == ev.EffectResult.type)
    assert len(result.event.blobs) == 1


# -- secrets -----------------------------------------------------------------------------------------------------------


async def test_secrets_are_replaced_in_every_event() -> None:
    secret = 'pa"ss\\wörd\n1'

    async def play(stage: Stage) -> End:
        node = stage.enter("a", input={"token": secret}, instruction=f"Use {secret}.")
        node.progress(f"using {secret}")
        outcome = await node.call("x", "http", {"value": {"echo": [f"<{secret}>"], secret: 1}, "header": secret})
        assert isinstance(outcome, Ok)
        node.exit("ok", {"said": outcome.value, "input": secret})
        return End("failed", outcome.value, error=LOST)

    harness = harness_for(play, secret={"pass": secret, "short": "x"})
    events = await harness.play("p")
    check_log(events)
    for event in events:
        assert secret not in str(ev.payload_of(event)), event.type
    assert end_of(events).output == {"echo": ["<[secret:pass]>"], "[secret:pass]": 1}


async def test_a_secret_inside_another_is_replaced_in_full() -> None:
    harness = harness_for(one_effect, secret={"inner": "abcdef", "outer": "xxabcdefxx"})
    ref = await harness.accept("p", input="xxabcdefxx and abcdef")
    await harness.perform(ref)
    assert end_of(await harness.events(ref)).output == "[secret:outer] and [secret:inner]"


@pytest.mark.parametrize("value", [1234567, [1234567], {"n": 1234567, "text": "1234567"}, 12345678, 91234567.5])
async def test_a_secret_that_is_a_number_does_not_break_the_event(value: Any) -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        outcome = await node.call("x", "http", {})
        assert isinstance(outcome, Ok)
        node.exit("ok", outcome.value)
        return End("completed", outcome.value)

    async def calls(_job: object, _request: object) -> tuple[Any, None]:
        return value, None

    harness = harness_for(play, secret={"pin": "1234567"})
    harness.calls = calls
    events = await harness.play("p")
    check_log(events)
    assert end_of(events).status == "completed"


async def test_a_secret_equal_to_a_word_of_the_event_format_does_not_break_the_log() -> None:
    harness = harness_for(one_effect, secret={"word": "completed"})
    events = await harness.play("p")
    check_log(events)
    assert end_of(events).status == "completed"


# -- rivals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [("w1", "w2"), ("w1", "w1")],
)
async def test_of_two_actors_one_executes_the_run_and_the_other_stops(names: tuple[str, str]) -> None:
    """Also if two workers have the same name."""
    log = MemoryLog()
    rivals = [harness_for(one_effect, log, worker=name) for name in names]
    ref = await rivals[0].accept("p", input=1)
    outcome: list[Any] = []

    async def act(harness: RunHarness) -> None:
        try:
            outcome.append(await harness.perform(ref))
        except CallboardError as error:
            outcome.append(type(error))

    async with anyio.create_task_group() as tasks:
        for rival in rivals:
            tasks.start_soon(act, rival)
    events = await rivals[0].events(ref)
    check_log(events)
    assert sorted(map(str, outcome)) == sorted(["ended", str(RunLost)])
    assert types(events).count("run.claimed") == 1
    assert len(rivals[0].executed + rivals[1].executed) == 1


async def test_an_actor_that_loses_its_run_stops_and_appends_nothing() -> None:
    log = MemoryLog()
    first, second = (harness_for(one_effect, log, worker=name) for name in ("w1", "w2"))
    ref = await first.accept("p", input=1)
    lost: list[RunLost] = []

    async def perform_and_lose() -> None:
        try:
            await first.perform(ref)
        except RunLost as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(perform_and_lose)
        await anyio.sleep(0.5)
        await second.perform(ref)
    events = await first.events(ref)
    check_log(events)
    assert [event.epoch for event in events if event.type == "effect.result"] == [2]
    assert len(lost) == 1
    assert lost[0].found is not None
    assert lost[0].found.epoch == 2


# -- divergence --------------------------------------------------------------------------------------------------------

Version = Callable[[Stage], Awaitable[End]]


async def replay_with(recorded: Version, now: Version, upto: str | None = None) -> ReplayDiverged:
    """Record a run until it parks, cut its log before an event of a type, and replay it with another version."""
    harness = harness_for(recorded)
    ref = await harness.accept("p")
    await harness.perform(ref)
    stored = await harness.log.read(ref)
    cut = next((i for i, item in enumerate(stored) if item.event.type == upto), len(stored))
    log = MemoryLog()
    await copied(stored[:cut], log)
    other = harness_for(now, log)
    with pytest.raises(ReplayDiverged) as caught:
        await other.perform(ref)
    events = await other.events(ref)
    assert len(events) == cut + 1, "a run that diverged has appended more than its claim"
    return caught.value


def make_version(request: Any, name: str = "x", path: str = "a", careless: bool = False) -> Version:
    async def play(stage: Stage) -> End:
        node = stage.enter(path)
        try:
            await node.call(name, "http", request)
        except Exception:
            if not careless:
                raise
        await node.sleep("sleep", after(node.entered_at, 60))
        return End("completed")

    return play


async def test_a_divergence_shows_the_recorded_and_the_new_request() -> None:
    error = await replay_with(make_version({"n": 1}), make_version({"n": 2}))
    assert error.n == 5
    assert '{"n":1}' in error.difference.recorded
    assert '{"n":2}' in error.difference.requested


async def test_another_fact_and_another_address_are_divergences() -> None:
    error = await replay_with(make_version({}), make_version({}, path="b"))
    assert "node.enter" in error.difference.recorded
    assert "node.enter at b" in error.difference.requested
    error = await replay_with(make_version({}), make_version({}, name="y"))
    assert "effect.call" in error.difference.recorded


async def test_a_divergence_cannot_be_caught_by_an_interpreter() -> None:
    error = await replay_with(make_version({"n": 1}), make_version({"n": 2}, careless=True))
    assert error.n == 5


def make_race(cancels: bool) -> Version:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        fast, slow = (stage.spawn(effect(node, name, wait_s)) for name, wait_s in (("fast", 1), ("slow", 9)))
        await stage.first(fast, slow)
        if cancels:
            stage.cancel(slow, LOST)
        await stage.join(fast, slow)
        await node.sleep("sleep", after(stage.now(), 60))
        return End("completed")

    return play


async def test_a_recorded_cancellation_that_is_not_repeated_is_a_divergence() -> None:
    error = await replay_with(make_race(True), make_race(False), upto="timer.set")
    assert "effect.cancelled" in error.difference.recorded


def make_bounded(seconds: float) -> Version:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        work = effect(node, "long", hang=True)
        outcome = await stage.within(after(node.entered_at, seconds), work, node=node, slot="bound")
        assert isinstance(outcome, Expired)
        await node.sleep("sleep", node.entered_at + dt.timedelta(days=1))
        return End("completed")

    return play


async def test_another_deadline_is_a_divergence() -> None:
    error = await replay_with(make_bounded(10), make_bounded(20))
    assert "timer.fired" in error.difference.recorded


async def test_a_slot_that_is_used_twice_is_refused() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        await effect(node, "x")
        await effect(node, "x")
        return End("completed")

    events = await harness_for(play).play("p")
    check_log(events)
    end = end_of(events)
    assert end.error is not None
    assert "a#1.1!x" in end.error.message


# -- many open effects -------------------------------------------------------------------------------------------------


async def test_more_than_a_thousand_open_effects_survive_a_crash() -> None:
    wide = 1100

    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        calls = [node.call(f"x.{i}", "http", {"after": 60, "value": i}) for i in range(wide)]
        settled = await stage.join(*[stage.spawn(call) for call in calls])
        node.exit("ok")
        return End(
            "completed", sum(not isinstance(outcome.value, Failed) for outcome in settled if isinstance(outcome, Ok))
        )

    harness = harness_for(play)
    ref = await harness.accept("p")
    with anyio.move_on_after(30):
        await harness.perform(ref)
    assert types(await harness.events(ref)).count("effect.call") == wide
    events = await finish(harness, ref, World())
    check_log(events)
    assert end_of(events).output == wide
    check_replay(harness.language, ref, events)
