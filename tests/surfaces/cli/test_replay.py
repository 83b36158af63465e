"""Replays: divergences are found, failures and kills replay, and nothing is written."""

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from callboard.bus.errors import CallboardError, ReplayDiverged
from callboard.bus.events import Event, RunAccepted, encode_payload, payload_of
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.languages.registry import language
from callboard.runtime.interpreter.replay import read_admission
from callboard.service.operations.replays import Replayed, replay_events
from tests.languages.test_run import one_turn
from tests.support.run_harness import Interpreter, RunHarness, types


async def fail(stage: Stage) -> End:
    stage.enter("a")
    raise ZeroDivisionError("division by zero")


async def wait_for_signal(stage: Stage) -> End:
    node = stage.enter("a")
    await node.signal("wait", "go")
    node.exit("ok")
    return End("completed")


async def perform(play: Interpreter, *verbs: str) -> tuple[RunHarness, list[Event]]:
    """Perform a run until it waits, and again after each command."""
    harness = RunHarness({"p": play}, script={"turns": {"a": [{"data": {"found": 3}}]}})
    ref = await harness.accept("p")
    await harness.perform(ref)
    for verb in verbs:
        await harness.perform(ref, harness.command(verb))
    return harness, await harness.events(ref)


def replay(harness: RunHarness, events: list[Event], at: int | None = None) -> Replayed:
    return replay_events(RunRef("acme", "r1"), events, read_admission(events[0], harness.language), {}, at)


async def test_a_replay_stops_at_any_event_and_writes_nothing() -> None:
    harness, events = await perform(one_turn)
    for n in range(1, len(events) + 1):
        output = replay(harness, events, n)
        assert (output.at, output.events, output.unwritten) == (n, len(events), [])
    assert await harness.events(RunRef("acme", "r1")) == events


async def test_a_replay_of_a_cut_log_lists_the_next_events() -> None:
    harness, events = await perform(one_turn)
    for n in range(3, len(events)):
        output = replay(harness, events[:n])
        assert not output.ended
        next_types = [event.type for event in output.unwritten]
        assert [*types(events[:n]), *next_types] == types(events)[: n + len(next_types)]
        # Before the answer of the model, the turn is next; after it, everything to the end.
        answered = "model.result" in types(events[:n])
        assert next_types[-1:] == (["run.end"] if answered else ["model.call"] if n < 5 else [])


async def test_another_payload_is_a_divergence() -> None:
    harness, events = await perform(one_turn)
    changed = bytes(events[3].payload).replace(b'"node":"a"', b'"node":"b"')
    assert changed != bytes(events[3].payload)
    events[3] = msgspec.structs.replace(events[3], payload=Raw(changed))
    with pytest.raises(ReplayDiverged) as diverged:
        replay(harness, events)
    assert diverged.value.n == 4
    assert '"node":"b"' in diverged.value.difference.recorded
    assert '"node":"a"' in diverged.value.difference.requested


async def test_an_effect_that_is_not_requested_is_a_divergence() -> None:
    harness, events = await perform(one_turn)
    strange = msgspec.structs.replace(events[4], key="b#1.1!turn.1", path="b")
    with pytest.raises(ReplayDiverged):
        replay(harness, [*events[:5], strange, *events[5:]])


async def test_an_early_end_is_a_divergence() -> None:
    harness, events = await perform(one_turn)
    early = [event for event in events if event.type not in ("model.result", "node.exit")]
    with pytest.raises(ReplayDiverged):
        replay(harness, early)


async def test_an_error_of_the_interpreter_replays_as_the_same_failure() -> None:
    harness, events = await perform(fail)
    assert types(events)[-2:] == ["run.failed", "run.end"]
    output = replay(harness, events)
    assert (output.ended, output.unwritten, output.standing.status) == (True, [], "failed")


async def test_a_parked_run_replays_to_its_open_effect() -> None:
    harness, events = await perform(wait_for_signal)
    output = replay(harness, events)
    assert [effect.key for effect in output.open] == ["a#1.1!wait"]
    assert (output.ended, output.unwritten) == (False, [])


@pytest.mark.parametrize("verb", ["kill", "cancel"])
async def test_killed_and_cancelled_runs_replay(verb: str) -> None:
    harness, events = await perform(wait_for_signal, verb)
    output = replay(harness, events)
    assert (output.ended, output.unwritten, output.standing.status) == (True, [], "cancelled")
    assert (output.open, output.questions, output.deadlines) == ([], [], [])


async def test_a_run_without_a_start_cannot_be_replayed() -> None:
    harness, events = await perform(one_turn)
    with pytest.raises(CallboardError) as refused:
        replay(harness, events[:2])
    assert refused.value.code == "replay.not_started"


async def test_a_replay_of_an_unknown_start_is_refused() -> None:
    _, events = await perform(one_turn)
    accepted = payload_of(events[0])
    assert isinstance(accepted, RunAccepted)
    elsewhere = replace(accepted.definition, language="dialect")
    for changed, why in (
        (replace(accepted, start={"definition": 1}), r"Expected `object`, got `int` - at `\$.definition`"),
        (replace(accepted, definition=elsewhere), "the language 'dialect' is not installed here"),
    ):
        first = replace(events[0], payload=Raw(encode_payload(changed)))
        with pytest.raises(CallboardError, match=why) as caught:
            read_admission(first, language)
        assert (caught.value.code, caught.value.where) == ("replay.not_admitted", "r1")
