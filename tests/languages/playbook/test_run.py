"""Runs of playbooks: prompts, questions and their timeouts, refused commands, cancellation."""

import datetime as dt
from typing import Any

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource
from callboard.bus.effects import Recall
from callboard.bus.events import Event
from callboard.languages.plan import Plan
from callboard.languages.playbook.context import INLINE_CHARS_MAX
from callboard.languages.playbook.language import LANGUAGE
from callboard.runtime.admission.definitions import Definitions
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import BEGINNING, VirtualClock
from tests.support.playbook_cases import block, declared, doc, says, steps, sub
from tests.support.playbooks import (
    Performance,
    Play,
    PlaybookTheatre,
    definition_of,
    live,
    payloads,
    perform,
    plan_of,
    start_of,
)
from tests.support.simulation import finish

DAY = dt.timedelta(hours=24)
ASKS = doc(steps("a", '@elicit(select, "Which?", "x", "y")\n@output(way)', "{{way}}"))
ASK = "2#1.1!ask"


def find_refusals(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(refused.code, refused.id) for refused in payloads(events, ev.CommandRefused)]


# -- context of a model ------------------------------------------------------------------------------------------------


def test_each_step_sees_the_outputs_of_all_steps_before_it() -> None:
    source = doc(
        "## SYSTEM\n\nBe {{brief}}.",
        declared("- `a` (string)"),
        steps("a", block(('if a == "x"', f"{sub('2a', 'b')}\n\n{sub('2b', 'c')}")), "@tool(s, t)", "d"),
        "## STEP 4: Again\n\ne",
    )
    turns = {**says(s1="A", s4="D|E"), "2a": ["B"], "2b": ["C"]}
    done = perform(Play(source, {"a": "x"}, turns, {"t": [{"output": "T"}]}))
    assert {turn.system for turn in done.harness.turns} == {"Be {{brief}}."}
    assert done.contexts[0] == ""
    outputs = [
        '<step number="1" title="S1">\nA\n</step>',
        '<step number="2a" title="Sub 2a">\nB\n</step>',
        '<step number="2b" title="Sub 2b">\nC\n</step>',
        '<step number="3" title="S3">\nT\n</step>',
        '<step number="4" title="S4">\nD\n</step>',
    ]
    for turn, before in enumerate([1, 2, 4, 5], 1):
        assert done.contexts[turn].count("<step ") == before
        assert "\n\n".join(outputs[:before]) in done.contexts[turn]


def test_a_step_and_its_sub_steps_see_the_answer_to_its_question() -> None:
    asking = '@elicit(input, "How?")\n\n' + block(("else", "")).replace(
        "```else```\n\n", '```if __elicit_step_1 != ""```\n\n' + sub("1a", "a")
    )
    done = perform(Play(doc(steps(asking, "b")), turns={"1a": ["A"], "2": ["B"]}, answers={"1#1.1!ask": ["so"]}))
    assert "<question>\nHow?\n</question>\n<answer>\nso\n</answer>" in done.contexts[0]
    assert "How?" not in done.contexts[1]


def test_a_long_output_is_in_the_log_once() -> None:
    long = "So it is.\n" * INLINE_CHARS_MAX
    done = perform(Play(doc(steps("a", "b", "c")), turns={"1": [long], "2": ["B"], "3": ["C"]}))
    calls = payloads(done.events, ev.ModelCall)
    assert [[part for part in call.messages[0].parts if isinstance(part, Recall)] for call in calls] == [
        [],
        [Recall("1#1", "/result/output", plain=True)],
        [Recall("1#1", "/result/output", plain=True)],
    ]
    assert f'title="S1">\n{long}\n</step>' in done.contexts[2]


def test_options_of_a_start_limit_the_answers_of_a_model() -> None:
    plain = perform(Play(doc(steps("a")), turns=says(s1="A")))
    assert (plain.harness.turns[0].max_output_tokens, plain.harness.turns[0].temperature) == (16_384, None)
    start = {"options": {"max_tokens": 99, "temperature": 0}}
    limited = perform(Play(doc(steps("a")), turns=says(s1="A"), start=start))
    assert (limited.harness.turns[0].max_output_tokens, limited.harness.turns[0].temperature) == (99, 0)
    assert (plain.harness.turns[0].parameters, limited.harness.turns[0].parameters) == ({}, {})


def test_parameters_of_a_start_reach_the_model() -> None:
    given = {"top_p": 0.9, "stop_sequences": ["END"], "safety_settings": {"harassment": "BLOCK_NONE"}}
    done = perform(Play(doc(steps("a")), turns=says(s1="A"), start={"options": given}))
    assert done.harness.turns[0].parameters == given


def test_arguments_of_a_tool_may_have_quoted_and_unquoted_placeholders() -> None:
    arguments = '{"q": "say {{a}}", "n": {{n}}, "w": {{a}}, "o": {{o}}, "x": "{{x}}", "y": {{y}}, "d": {{z:number:7}}}'
    given = {"a": 'a "b"\n\\', "n": 5, "o": {"k": [1]}}
    done = perform(Play(doc(steps(f"@tool(My.Server, t-1, {arguments})")), given, tools={"t-1": [{"output": "T"}]}))
    [call] = payloads(done.events, ev.ToolCall)
    assert call.input == {
        "q": 'say a "b"\n\\', "n": 5, "w": 'a "b"\n\\', "o": {"k": [1]}, "x": "{{x}}", "y": "{{y}}", "d": 7,
    }  # fmt: skip
    assert (call.tool, call.server, call.via) == ("t-1", "My.Server", "worker")
    assert done.warnings == ["UNRESOLVED_PLACEHOLDER"]
    assert payloads(done.events, ev.NodeWarning)[0].fields == ["x", "y"]


# -- questions and commands --------------------------------------------------------------------------------------------


async def park(play: Play) -> tuple[PlaybookTheatre, Any]:
    """Perform a playbook until it has to wait."""
    harness, ref = await play.begun()
    assert await harness.perform(ref) == "parked"
    return harness, ref


def question_playbook(**start: Any) -> Play:
    return Play(ASKS, turns=says(s1="A", s3="C"), start=start)


def test_a_question_has_its_type_options_and_deadline() -> None:
    async def body() -> None:
        harness, ref = await park(question_playbook())
        events = await harness.events(ref)
        [asked] = payloads(events, ev.HumanAsked)
        assert (asked.question, asked.interaction_type, asked.options) == ("Which?", "select", ["x", "y"])
        assert asked.request_data == {"step": 2, "label": "2", "title": "S2"}
        assert (asked.timeout_at, asked.timeout_action) == (BEGINNING + DAY, "expire")
        [waits] = payloads(events, ev.RunParked)
        assert waits.deadline == BEGINNING + DAY

    live(body)


def test_an_answer_that_does_not_fit_is_refused() -> None:
    async def body() -> None:
        harness, ref = await park(question_playbook())

        def answer(**fields: Any) -> Any:
            body: dict[str, Any] = {"interaction": ASK, **fields}
            return harness.command("answer", **body)

        wrong = [
            answer(user_response="z", id="outside"),
            answer(user_response="X", id="case"),
            answer(user_response=None, id="nothing"),
            answer(user_response=["x"], id="list"),
            answer(interaction="3#1.1!ask", user_response="x", id="step"),
            harness.command("resume", id="resume"),
        ]
        await harness.perform(ref, *wrong)
        events = await harness.events(ref)
        assert find_refusals(events) == [
            *(("answer.not_understood", name) for name in ("outside", "case", "nothing", "list")),
            ("answer.no_question", "step"),
            ("resume.not_paused", "resume"),
        ]
        for refused in payloads(events, ev.CommandRefused):
            assert (
                f"{ASK}, 'Which?', since 2026-11-20T11:00:00+00:00, until 2026-11-21T11:00:00+00:00" in refused.message
            )
        assert payloads(events, ev.HumanAnswered) == []
        right, second = answer(user_response="x", by="ada"), answer(user_response="y", id="second")
        await harness.perform(ref, right, second)
        done = Performance(harness, ref, await harness.events(ref))
        assert find_refusals(done.events)[-1] == ("answer.late", "second")
        assert done.named == {"__elicit_step_2": "x", "way": "x"}
        assert [(answered.k, answered.by) for answered in payloads(done.events, ev.HumanAnswered)] == [(1, "ada")]
        check_log(done.events)
        check_replay(harness.language, ref, done.events)

    live(body)


def test_an_answer_to_the_previous_question_is_late() -> None:
    async def body() -> None:
        harness, ref = await park(Play(doc(steps('@elicit(input, "a")', '@elicit(input, "b")'))))
        for said in ("A", "B"):
            await harness.perform(ref, harness.command("answer", interaction="1#1.1!ask", user_response=said, id=said))
        events = await harness.events(ref)
        assert find_refusals(events) == [("answer.late", "B")]
        assert "2#1.1!ask" in payloads(events, ev.CommandRefused)[0].message

    live(body)


EXPIRING = {
    "at a question": (question_playbook(options={"expires_after": 90}), "awaiting_input", 2),
    "at a question with a duration": (question_playbook(options={"expires_after": "PT1M30S"}), "awaiting_input", 2),
    "at a breakpoint": (
        Play(doc(steps("a", "b")), turns=says(s1="A"), start={"breakpoints": ["1"], "options": {"expires_after": 90}}),
        "paused",
        1,
    ),
    "at a caller's tool": (
        Play(
            doc(steps("a", "@tool(s, t)")),
            turns=says(s1="A"),
            start={"options": {"connections": {"s": "caller"}, "expires_after": 90}},
        ),
        "running",
        2,
    ),
    "in a branch": (
        Play(
            doc(steps("a\n@output(o)", block(('if o == "A"', sub("2a", '@elicit(input, "?")'))))),
            turns=says(s1="A"),
            start={"options": {"expires_after": 90}},
        ),
        "running",
        2,
    ),
}


@pytest.mark.parametrize("name", EXPIRING)
def test_a_run_that_waits_too_long_expires(name: str) -> None:
    play, status, number = EXPIRING[name]

    async def body() -> None:
        harness, ref = await park(play)
        clock = harness.clock
        assert isinstance(clock, VirtualClock)
        clock.set(BEGINNING + dt.timedelta(seconds=91))
        assert await harness.perform(ref, harness.command("alarm")) == "ended"
        done = Performance(harness, ref, await harness.events(ref))
        check_log(done.events)
        check_replay(harness.language, ref, done.events)
        assert (done.end.status, done.end.output) == ("expired", "A")
        assert done.error.code == "playbook.expired"
        assert done.statuses[str(number)] == status
        assert done.results["step_outputs"] == {"1": "A"}
        [fired] = payloads(done.events, ev.TimerFired)
        assert fired.due == BEGINNING + dt.timedelta(seconds=90)

    live(body)


def test_a_pause_by_command_begins_at_the_next_step_and_expires() -> None:
    async def body() -> None:
        harness, ref = await park(question_playbook(options={"expires_after": 60}))
        await harness.perform(ref, harness.command("pause", by="ada"))
        answer = harness.command("answer", interaction=ASK, user_response="y")
        assert await harness.perform(ref, answer) == "parked"
        again = harness.command("pause", id="again")
        await harness.perform(ref, again)
        assert find_refusals(await harness.events(ref)) == [("pause.already", "again")]
        assert isinstance(harness.clock, VirtualClock)
        harness.clock.set(BEGINNING + dt.timedelta(seconds=61))
        assert await harness.perform(ref, harness.command("alarm")) == "ended"
        done = Performance(harness, ref, await harness.events(ref))
        assert (done.end.status, done.end.output) == ("expired", "y")
        assert done.statuses == {"1": "completed", "2": "completed", "3": "pending"}

    live(body)


def test_a_resume_sets_variables_also_while_a_question_is_open() -> None:
    async def body() -> None:
        harness, ref = await park(question_playbook())
        await harness.perform(ref, harness.command("pause"))
        await harness.perform(ref, harness.command("resume", variables={"way": "no", "later": "L"}))
        await harness.perform(ref, harness.command("answer", interaction=ASK, user_response="y"))
        done = Performance(harness, ref, await harness.events(ref))
        # A value that a resume sets during a step holds from the next step on, even if the step sets another one.
        assert done.prompts[-1] == "no"
        assert done.named["later"] == "L"

    live(body)


# -- cancellation and failure ------------------------------------------------------------------------------------------

WAITING = {
    "at a question": (question_playbook(), "awaiting_input"),
    "at a breakpoint": (Play(doc(steps("a", "b")), turns=says(s1="A"), start={"breakpoints": ["1"]}), "paused"),
    "at a caller's tool": (
        Play(doc(steps("@tool(s, t)")), start={"options": {"connections": {"s": "caller"}}}),
        "running",
    ),
    "in a branch": (Play(doc(steps(block(('if o == ""', sub("1a", '@elicit(input, "?")')))))), "awaiting_input"),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_run_that_waits_is_cancelled(name: str) -> None:
    play, status = WAITING[name]

    async def body() -> None:
        harness, ref = await park(play)
        assert await harness.perform(ref, harness.command("cancel", message="enough")) == "ended"
        done = Performance(harness, ref, await harness.events(ref))
        check_log(done.events)
        check_replay(harness.language, ref, done.events)
        assert done.end.status == "cancelled"
        assert done.error.message == "enough"
        assert status in done.statuses.values()

    live(body)


def test_a_cancellation_ends_a_turn_of_a_model() -> None:
    async def body() -> None:
        play = Play(doc(steps("a", "b")), turns={"1": ["A"], "2": [{"text": "B", "delay_ms": 5000}]})
        harness, ref = await play.begun()
        actor = harness.actor(ref)

        async def later() -> None:
            await anyio.sleep(1)
            actor.tell(harness.command("cancel"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(later)
            assert await actor.run() == "ended"
        done = Performance(harness, ref, await harness.events(ref))
        check_log(done.events)
        assert (done.end.status, done.end.output) == ("cancelled", "A")
        assert done.statuses == {"1": "completed", "2": "running"}

    live(body)


def test_an_error_of_the_callers_tool_fails_the_step() -> None:
    async def body() -> None:
        play = Play(doc(steps("@tool(s, t)")), start={"options": {"connections": {"s": "caller"}}})
        harness, ref = await park(play)
        failing = harness.command("answer", interaction="1#1.1!tool.0.0", response_data={"error": "no such table"})
        await harness.perform(ref, failing)
        done = Performance(harness, ref, await harness.events(ref))
        error = done.error
        assert error.previous is not None
        assert (error.code, error.path, error.details) == ("playbook.step_failed", "1", {"step": "1"})
        assert (error.previous.code, error.previous.message) == ("tool.failed", "no such table")
        assert error.message == "step 1 failed: no such table"

    live(body)


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_events_of_a_step_have_one_order() -> None:
    source = doc(steps('Text {{x}}.\n@elicit(confirm, "Go?")\n@prompt(library:p)\n@output(e: enum, "a")', "b"))
    play = Play(source, turns=says(s1="z", s2="B"), answers={"1#1.1!ask": ["yes"]}, prompts={"library:p": "P"})
    play.start["breakpoints"] = ["1"]
    done = perform(play)
    assert [event.type for event in done.events if event.path == "1"] == [
        "node.enter",
        "human.asked",
        "human.closed",
        "effect.call",
        "effect.result",
        "node.warning",
        "model.call",
        "model.result",
        "node.warning",
        "node.exit",
        "run.paused",
        "run.resumed",
    ]
    [exit_of_1, _] = payloads(done.events, ev.NodeExit)
    assert exit_of_1.result == {"output": "z", "named": {"__elicit_step_1": "yes", "e": "z"}}
    [asked] = payloads(done.events, ev.EffectCall)
    assert (asked.kind_, asked.request) == ("prompt", {"scheme": "library", "identifier": "p"})
    [paused] = payloads(done.events, ev.RunPaused)
    assert (paused.step, paused.timeout_at) == ("1", BEGINNING + DAY)


def test_repeated_numbers_are_iterations_and_sub_steps_have_paths() -> None:
    source = doc("## STEP 1: A\n\na", "## STEP 1: B\n\n" + block(('if x == "y"', ""), ("else", sub("1a", "b"))))
    done = perform(Play(source, turns={"1": ["A"], "1a": ["B"]}))
    entered = [(event.path, event.iteration) for event in done.events if event.type == "node.enter"]
    assert entered == [("1", 1), ("1", 2), ("1/1a", 1)]
    [route] = payloads(done.events, ev.Route)
    assert (route.source, route.target, route.reason, route.edge) == ("1", "1a", "else", "branch.1")


def test_an_answer_in_advance_is_logged_as_progress() -> None:
    play = Play(doc(steps('@elicit(confirm, "Go?")')), start={"options": {"autonomous": True}})
    [progress] = payloads(perform(play).events, ev.NodeProgress)
    assert progress.data == {"question": "Go?", "response": "yes"}


def test_a_finished_step_is_not_performed_again() -> None:
    async def body() -> None:
        play = Play(doc(steps("a", "b")), turns=says(s1="A", s2="B"), start={"breakpoints": ["1", "2"]})
        harness, ref = await play.begun(always_replay=True)
        await finish(harness, ref, play.world)
        assert sorted(harness.executed) == ["1#1.1!turn.1", "2#1.1!turn.1"]

    live(body)


# -- variables and states ----------------------------------------------------------------------------------------------

TYPED = doc(
    declared("- `n` (number: 5)", "- `way` (enum: left, right)", "- `a` (string)"), steps("One {{n}}.", "Two {{n}}.")
)


def test_variables_of_a_resume_are_validated_like_inputs() -> None:
    async def body() -> None:
        start = {"breakpoints": ["1"]}
        given = {"way": "left", "a": "x"}
        harness, ref = await park(Play(TYPED, given, turns=says(s1="A", s2="B"), start=start))
        wrong = harness.command("resume", id="wrong", variables={"n": "many", "way": "up", "a": None, "other": 1})
        await harness.perform(ref, wrong)
        events = await harness.events(ref)
        [refused] = payloads(events, ev.CommandRefused)
        assert (refused.code, refused.id) == ("resume.variables", "wrong")
        assert "INPUT variables.n: 'many' does not fit; expected a number" in refused.message
        assert "INPUT variables.way: 'up' does not fit; expected one of left, right" in refused.message
        assert "INPUT variables.a: is null" in refused.message
        assert payloads(events, ev.RunResumed) == []
        await harness.perform(ref, harness.command("resume", variables={"n": 7, "way": "right"}))
        done = Performance(harness, ref, await harness.events(ref))
        assert "Two 7." in done.prompts[1]
        check_replay(harness.language, ref, done.events)

    live(body)


def test_a_variable_of_a_fork_that_does_not_fit_is_refused() -> None:
    plan = plan_of(TYPED, input={"way": "left", "a": "x"})
    assert [one.where for one in plan.check_variables({"way": "up", "n": 1})] == ["variables.way"]


def test_a_saved_state_of_another_playbook_is_refused() -> None:
    mine, other = (definition_of(source).hash for source in (ASKS, TYPED))

    def make_plan(**state: Any) -> Any:
        return Definitions().plan(DefinitionSource("playbook", ASKS), start_of(state=state))

    assert not isinstance(make_plan(playbook_id=mine), list)
    assert not isinstance(make_plan(playbook_id="a-name-of-another-implementation"), list)
    [problem] = make_plan(playbook_id=other)
    assert (problem.code, problem.where) == ("STATE", "state.playbook_id")
    [problem] = make_plan(named_outputs={"__elicit_step_2": "banana"})
    assert (problem.code, problem.where) == ("ELICIT", "state.named_outputs.__elicit_step_2")
    # A run of an earlier version continues with such options.
    assert isinstance(LANGUAGE.admit(definition_of(ASKS), start_of(state={"playbook_id": other})), Plan)
