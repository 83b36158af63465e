"""The state document of a playbook after every event, and runs that start from it."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.projections.projection import fold
from callboard.projections.results.playbook import PlaybookState, StateDocument
from callboard.runtime.run.log import read_run
from callboard.testing.virtual_time import BEGINNING
from tests.support.playbook_cases import CASES, block, declared, doc, says, steps, sub
from tests.support.playbooks import Play, live, perform, performed, plain

SOURCE = doc(
    "## SYSTEM\n\nBe brief.",
    declared("- `a` (string)", "- `n` (number: 5)"),
    steps(
        "One {{a}}.\n@output(first)",
        '@elicit(select, "Which?", "x", "y")',
        block(('if __elicit_step_2 == "x"', f"{sub('3a', 'A.')}\n\n{sub('3b', '@tool(s, t)')}")) + "\n\n@output(third)",
        "Four {{a}} {{third}}.",
    ),
)


def make_play(**start: Any) -> Play:
    return Play(
        SOURCE,
        {"a": "in"},
        turns={
            "1": [{"text": "1", "usage": {"input_tokens": 10, "output_tokens": 2}, "delay_ms": 1500}],
            "3a": ["A"],
            "4": ["end"],
        },
        answers={"2#1.1!ask": ["x"], "3/3b#1.1!tool.0.0": [{"k": 1}]},
        variables={"3": {"a": "over", "third": "T"}},
        start={"breakpoints": ["3"], "options": {"connections": {"s": "caller"}}, **start},
    )


def state_of(events: list[Event]) -> StateDocument:
    return fold(PlaybookState(), events)


def state_after(events: list[Event], kind: type[ev.Payload], k: int = 1) -> StateDocument:
    """Return the state after the k-th event of a type."""
    n = [event.n for event in events if event.type == kind.type][k - 1]
    return state_of([event for event in events if event.n <= n])


def test_the_state_follows_a_run_to_its_end() -> None:
    events = perform(make_play()).events
    pending = state_of(events[:1])
    assert (pending.status, pending.paused_at_step, pending.breakpoints) == ("pending", None, {"3": True})
    assert [(step.label, step.status) for step in pending.steps] == [(n, "pending") for n in "1234"]

    asking = state_after(events, ev.HumanAsked)
    assert (asking.status, asking.paused_at_step, asking.next_step) == ("awaiting_input", 2, 1)
    assert (asking.step_outputs, asking.named_outputs) == ({"1": "1"}, {"first": "1"})
    assert asking.input_values == {"a": "in", "n": "5"}
    assert (asking.system_prompt, asking.model_id) == ("Be brief.", "scripted")
    [awaited] = asking.awaiting
    assert (awaited.key, awaited.step, awaited.kind) == ("2#1.1!ask", "2", "select")
    assert (awaited.prompt, awaited.options) == ("Which?", ["x", "y"])
    assert awaited.until == asking.expires_at
    assert asking.expires_at == BEGINNING + dt.timedelta(hours=24, seconds=1.5)
    assert [step.status for step in asking.steps] == ["completed", "awaiting_input", "pending", "pending"]
    assert (asking.steps[0].input_tokens, asking.steps[0].output_tokens, asking.steps[0].latency_ms) == (10, 2, 1500)

    calling = state_after(events, ev.ToolCall)
    assert (calling.status, calling.paused_at_step) == ("tool_call", 3)
    assert [(one.key, one.kind, one.tool) for one in calling.awaiting] == [("3/3b#1.1!tool.0.0", "tool", "t")]
    assert [(step.label, step.status) for step in calling.steps[2:5]] == [
        ("3", "running"),
        ("3a", "completed"),
        ("3b", "running"),
    ]

    paused = state_after(events, ev.RunPaused)
    assert (paused.status, paused.paused_at_step, paused.next_step) == ("paused", 3, 3)
    assert paused.step_outputs == {"1": "1", "2": "x", "3": '{"k":1}'}
    assert paused.named_outputs == {"first": "1", "__elicit_step_2": "x", "third": '{"k":1}'}
    assert paused.steps[2].status == "paused"
    assert (paused.awaiting, paused.expires_at) == ([], BEGINNING + dt.timedelta(hours=24, seconds=1.5))

    resumed = state_after(events, ev.RunResumed)
    assert (resumed.status, resumed.input_values["a"], resumed.named_outputs["third"]) == ("running", "over", "T")

    ended = state_of(events)
    assert (ended.status, ended.paused_at_step, ended.next_step, ended.expires_at) == ("completed", None, 4, None)
    assert ended.step_outputs["4"] == "end"
    assert {step.status for step in ended.steps} == {"completed"}


def test_the_state_has_the_members_of_the_specification() -> None:
    members = plain(state_after(perform(make_play()).events, ev.RunPaused))
    example = ("execution_id", "playbook_id", "model_id", "system_prompt", "input_values", "step_outputs",
               "named_outputs", "breakpoints", "status", "paused_at_step")  # fmt: skip
    assert list(members)[: len(example)] == list(example)
    assert members["execution_id"] == "r1"


def test_the_state_has_the_error_of_a_failed_run_and_step() -> None:
    events = perform(Play(doc(steps("a", "b")), turns={"1": ["A"], "2": [{"error": "overloaded"}]})).events
    failed = state_of(events)
    assert (failed.status, failed.paused_at_step, failed.next_step) == ("failed", 2, 1)
    assert failed.error is not None
    assert failed.steps[1].error is not None
    assert (failed.error.code, failed.steps[1].error.code) == ("playbook.step_failed", "model.overloaded")


@pytest.mark.parametrize("name", CASES)
def test_the_state_at_the_end_of_every_case_agrees_with_its_results(name: str) -> None:
    play, _expected = CASES[name]
    done = perform(play)
    ended = state_of(done.events)
    assert ended.status == done.end.status
    assert (ended.step_outputs, ended.named_outputs) == (done.results["step_outputs"], done.results["named_outputs"])
    live_fold = PlaybookState()
    for count, event in enumerate(done.events, 1):
        live_fold.apply(event)
        assert live_fold.view() == state_of(done.events[:count])


CONTINUED = {
    "a plain run": (make_play(), "end"),
    "a run of repeated numbers": (
        Play(doc("## STEP 1: A\n\na", "## STEP 1: B\n\nb", "## STEP 1: C\n\nc"), turns=says(s1="A|B|C")),
        "C",
    ),
}


@pytest.mark.parametrize("name", CONTINUED)
def test_a_run_from_any_state_repeats_no_finished_step_and_ends_alike(name: str) -> None:
    play, output = CONTINUED[name]

    async def body() -> None:
        done = await performed(play)
        recorded = [item.event for item in await read_run(done.harness.log, done.ref)]
        for boundary in range(1, len(recorded) + 1):
            state = state_of(recorded[:boundary])
            repeated = "repeated" in name
            turns = {"1": play.turns["1"][state.next_step :]} if repeated else play.turns
            again = Play(
                play.source,
                None if state.input_values else play.input,
                turns,
                answers=play.answers,
                variables=play.variables,
                start={**play.start, "state": plain(state), "breakpoints": []},
            )
            other = await performed(again)
            assert (other.end.status, other.end.output) == ("completed", output), f"after {boundary} events"
            assert set(other.results["step_outputs"]) == set(done.results["step_outputs"])
            redone = [event.path for event in other.events if event.type == "node.enter" and "/" not in event.path]
            assert len(redone) == play.source.count("## STEP ") - play.source.count("### STEP ") - state.next_step

    live(body)


def test_a_state_survives_a_conversion_to_json() -> None:
    state = state_after(perform(make_play()).events, ev.RunPaused)
    assert msgspec.convert(plain(state), StateDocument) == state
