"""Commands to a run: answers, signals, pause and resume, and the refusal of wrong ones."""

from collections.abc import Sequence
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.languages.language import Ask, End, Expired, Ok, Stage
from callboard.runtime.run.activation import Command
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog, never
from callboard.testing.virtual_time import VIRTUAL
from tests.support.run_harness import RunHarness, end_of, types
from tests.support.sample_interpreters import after, effect, value
from tests.support.simulation import World, finish, harness_for

ASK = "a#1.1!ask"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


def payloads(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [ev.payload_of(event) for event in events if ev.TYPES[event.type] is kind]


def find_refusals(events: Sequence[Event]) -> list[str]:
    return [refused.code for refused in payloads(events, ev.CommandRefused)]


async def ask_for_number(stage: Stage) -> End:
    """Take the first answer that is a number."""
    node = stage.enter("a")
    async with node.question("ask", Ask("How many?")) as question:
        while True:
            answered = await question.answer()
            if isinstance(answered.user_response, int):
                question.close("answered", answered.k, None)
                break
    await node.sleep("sleep", after(stage.now(), 60))
    node.exit("ok")
    return End("completed", [answered.k, answered.user_response, answered.by])


def noting_command(harness: RunHarness, done: list[int], verb: str, sequence: int, **body: Any) -> Command:
    """Make a command that notes when it is acknowledged."""
    plain = harness.command(verb, sequence, **body)
    return Command(plain.sequence, verb, plain.body, lambda: done.append(sequence))


async def test_a_run_is_parked_at_a_question_until_its_answer() -> None:
    harness = harness_for(ask_for_number)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    parked = payloads(await harness.events(ref), ev.RunParked)[-1]
    assert parked == ev.RunParked(awaits=[ASK], status="waiting:human")
    await harness.perform(ref, harness.command("answer", interaction=ASK, user_response="many", by="Bob"))
    assert await harness.perform(ref, harness.command("answer", interaction=ASK, user_response=3, by="Ada")) == "parked"
    events = await finish(harness, ref, World())
    check_log(events)
    assert [(answer.k, answer.by) for answer in payloads(events, ev.HumanAnswered)] == [(1, "Bob"), (2, "Ada")]
    assert payloads(events, ev.HumanClosed) == [ev.HumanClosed(outcome="answered", k=2)]
    assert end_of(events).output == [2, 3, "Ada"]
    check_replay(harness.language, ref, events)


async def test_late_answers_and_answers_without_a_question_are_refused() -> None:
    harness = harness_for(ask_for_number)
    ref = await harness.accept("p")
    right = harness.command("answer", interaction=ASK, user_response=3)
    wrong = harness.command("answer", interaction="b#1.1!ask", user_response=3)
    late = harness.command("answer", interaction=ASK, user_response=4, id="m7")
    nameless = harness.command("answer", user_response=5)
    await harness.perform(ref, wrong, right, late, nameless)
    events = await harness.events(ref)
    assert find_refusals(events) == ["answer.no_question", "answer.late", "answer.no_question"]
    first, second, third = payloads(events, ev.CommandRefused)
    assert ASK in first.message
    assert (second.verb, second.id, second.message) == ("answer", "m7", f"{ASK} has been answered already")
    assert third.message == "no question is open"
    assert len(payloads(events, ev.HumanAnswered)) == 1


async def test_an_answer_without_a_question_id_needs_exactly_one_open_question() -> None:
    async def play(stage: Stage) -> End:
        async def asked(path: str) -> Any:
            node = stage.enter(path)
            async with node.question("ask", Ask(path)) as question:
                answered = await question.answer()
                question.close("answered", answered.k, None)
            node.exit("ok")
            return answered.user_response

        tasks = [stage.spawn(asked(path)) for path in "ab"]
        return End("completed", [value(settled) for settled in await stage.join(*tasks)])

    harness = harness_for(play)
    ref = await harness.accept("p")
    await harness.perform(ref, harness.command("answer", user_response=1))
    [refused] = payloads(await harness.events(ref), ev.CommandRefused)
    assert refused.code == "answer.ambiguous"
    assert f"open: {ASK}, 'a', since " in refused.message
    assert "; b#1.1!ask, 'b', since " in refused.message
    await harness.perform(ref, harness.command("answer", interaction=ASK, user_response=2))
    assert await harness.perform(ref, harness.command("answer", user_response=3)) == "ended"
    events = await harness.events(ref)
    assert [answer.interaction for answer in payloads(events, ev.HumanAnswered)] == [ASK, "b#1.1!ask"]
    assert end_of(events).output == [2, 3]
    check_replay(harness.language, ref, events)


async def test_answers_are_queued_until_the_interpreter_takes_them() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        async with node.question("ask", Ask("?")) as question:
            first = await question.answer()
            await effect(node, "classify", 30)
            second = await question.answer()
            question.close("answered", second.k, None)
        node.exit("ok")
        return End("completed", [first.user_response, second.user_response])

    harness = harness_for(play)
    ref = await harness.accept("p")
    commands = [harness.command("answer", interaction=ASK, user_response=text) for text in "xy"]
    assert await harness.perform(ref, *commands) == "ended"
    assert end_of(await harness.events(ref)).output == ["x", "y"]


async def test_a_question_is_closed_at_its_deadline() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")

        async def answered() -> object:
            async with node.question("ask", Ask("?", timeout_at=after(stage.now(), 60))) as question:
                return (await question.answer()).user_response

        bounded = await stage.within(after(stage.now(), 60), answered(), node=node, slot="timeout")
        node.exit("ok")
        return End("completed", "nobody" if isinstance(bounded, Expired) else bounded.value)

    harness = harness_for(play)
    ref = await harness.accept("p")
    events = await finish(harness, ref, World())
    check_log(events)
    assert payloads(events, ev.HumanClosed) == [ev.HumanClosed(outcome="cancelled")]
    assert end_of(events).output == "nobody"

    harness = harness_for(play)
    ref = await harness.accept("p")
    events = await finish(harness, ref, World(answers={ASK: ["me"]}))
    check_log(events)
    assert end_of(events).output == "me"
    assert "timer.fired" not in types(events)


async def test_a_call_is_answered_by_its_caller() -> None:
    async def play(stage: Stage) -> End:
        result = await stage.root.tool("tool", "lookup", {"x": 1}, via="caller")
        return End("completed", result.value if isinstance(result, Ok) else None)

    harness = harness_for(play)
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    answers = [harness.command("answer", interaction="#1.1!tool", user_response={"y": k}) for k in (1, 2)]
    assert await harness.perform(ref, *answers) == "ended"
    events = await harness.events(ref)
    check_log(events)
    assert end_of(events).output == {"y": 1}


async def take_signals(stage: Stage) -> End:
    node = stage.enter("a")
    await effect(node, "before", 5)
    arrived = [await node.signal(f"signal.{k}", "go") for k in range(2)]
    node.exit("ok")
    return End("completed", [signal.data for signal in arrived])


async def test_signals_are_kept_until_the_run_awaits_them() -> None:
    harness = harness_for(take_signals)
    ref = await harness.accept("p")
    early = [harness.command("signal", name="go", data=1), harness.command("signal", name="other", data=9)]
    assert await harness.perform(ref, *early) == "parked"
    assert await harness.perform(ref, harness.command("signal", name="go", data=2)) == "ended"
    events = await harness.events(ref)
    check_log(events)
    assert end_of(events).output == [1, 2]
    keys = [event.key for event in events if event.type == "signal.received"]
    assert keys == ["", "", "a#1.1!signal.0", "a#1.1!signal.1"]
    check_replay(harness.language, ref, events)


async def pass_breakpoints(stage: Stage) -> End:
    seen: list[Any] = []
    for step in ("one", "two"):
        node = stage.enter(step)
        resumed = await stage.gate(node, step)
        seen.append(resumed.variables if resumed else None)
        await effect(node, "work", 5)
        node.exit("ok")
    return End("completed", seen)


async def test_a_command_pauses_a_run_and_another_resumes_it() -> None:
    harness = harness_for(pass_breakpoints)
    ref = await harness.accept("p")
    pause, again = harness.command("pause", by="Ada"), harness.command("pause", by="Bob")
    assert await harness.perform(ref, pause, again) == "parked"
    events = await harness.events(ref)
    assert payloads(events, ev.RunParked)[-1].awaits == ["pause"]
    assert find_refusals(events) == ["pause.already"]
    assert len([event for event in events if event.type == "node.enter"]) == 2
    assert await harness.perform(ref, harness.command("resume", variables={"x": 1}, by="Bob")) == "ended"
    events = await harness.events(ref)
    check_log(events)
    assert end_of(events).output == [None, {"x": 1}]
    check_replay(harness.language, ref, events)


async def test_a_resume_of_a_run_that_is_not_paused_is_refused() -> None:
    harness = harness_for(pass_breakpoints)
    ref = await harness.accept("p")
    await harness.perform(ref, harness.command("resume"))
    assert find_refusals(await harness.events(ref)) == ["resume.not_paused"]


async def test_a_breakpoint_pauses_the_run_and_a_resume_sets_variables() -> None:
    harness = harness_for(pass_breakpoints)
    ref = await harness.accept("p", breakpoints=["two"])
    assert await harness.perform(ref) == "parked"
    paused = payloads(await harness.events(ref), ev.RunPaused)
    assert paused == [ev.RunPaused(reason="breakpoint", step="two")]
    assert await harness.perform(ref, harness.command("resume", variables={"y": 2})) == "ended"
    events = await harness.events(ref)
    check_log(events)
    assert end_of(events).output == [None, {"y": 2}]
    check_replay(harness.language, ref, events)


async def test_a_repeated_command_has_one_effect() -> None:
    harness = harness_for(ask_for_number)
    ref = await harness.accept("p")
    done: list[int] = []
    first = [noting_command(harness, done, "answer", 7, interaction=ASK, user_response="many") for _ in range(2)]
    await harness.perform(ref, *first)
    assert done == [7, 7]
    await harness.perform(ref, noting_command(harness, done, "answer", 7, interaction=ASK, user_response="many"))
    assert done == [7, 7, 7]
    events = await harness.events(ref)
    assert [event.cause for event in events if event.type == "human.answered"] == [7]
    assert find_refusals(events) == []


async def test_a_command_is_acknowledged_after_its_event_is_in_the_log() -> None:
    harness = harness_for(ask_for_number)
    ref = await harness.accept("p")
    assert isinstance(harness.log, CrashingLog)
    harness.log.crash = lambda entry: "before" if entry.type == ev.HumanAnswered.type else None
    done: list[int] = []
    with pytest.raises(BaseExceptionGroup):
        await harness.perform(ref, noting_command(harness, done, "answer", 7, interaction=ASK, user_response=1))
    assert done == []
    harness.log.crash = never
    await harness.perform(ref, noting_command(harness, done, "answer", 7, interaction=ASK, user_response=1))
    assert done == [7]
    assert len(payloads(await harness.events(ref), ev.HumanAnswered)) == 1


async def test_a_start_or_an_alarm_leaves_no_event() -> None:
    harness = harness_for(ask_for_number)
    ref = await harness.accept("p")
    done: list[int] = []
    await harness.perform(ref, noting_command(harness, done, "start", 1), noting_command(harness, done, "alarm", 2))
    assert done == [1, 2]
    assert {event.cause for event in await harness.events(ref)} == {0}
