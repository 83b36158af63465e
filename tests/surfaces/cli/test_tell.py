"""Telling runs at the command line: cancel, kill, pause, resume, answer, signal, and what runs refuse."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from callboard.surfaces.cli import exits
from tests.support.cli_stage import INPUT, Place
from tests.support.flow_providers import flow_of, ours


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place where `callboard up` stands."""
    place = Place(tmp_path_factory.mktemp("standing"))
    with place.standing():
        yield place


def stopped_at_a_breakpoint(place: Place) -> str:
    """Start a triage and let it come to its breakpoint before `note`."""
    args = ("flows/triage.yaml", "--input", INPUT, "--script", "flows/script.json", "--breakpoint", "note")
    run = place.started(*args)
    assert paused_after(place, run, 0)["payload"]["step"] == "note"
    return run


def paused_after(place: Place, run: str, sequence: int) -> dict[str, Any]:
    """Return the next pause of a run."""
    seen = place.here("watch", run, "--json", "--after", str(sequence), "--until", "run.paused")
    return json.loads(seen.stdout.splitlines()[-1])


def test_a_breakpoint_is_shown_with_what_to_do_and_resumed(standing: Place) -> None:
    run = stopped_at_a_breakpoint(standing)
    assert standing.told("show", run)["status"] == "paused"
    assert f"callboard resume {run}" in standing.here("show", run).stdout
    refused = standing.here("resume", run, "--set", "a=[1]")
    assert "the language of this run has no variables" in refused.stderr
    told = standing.told("resume", run, "--by", "ada")
    assert told["recorded"]
    events = [json.loads(line) for line in standing.here("watch", run, "--json").stdout.splitlines()]
    resumed = next(event for event in events if event["n"] == told["recorded"])
    assert resumed["payload"] == {"by": "ada"}
    assert events[-1]["payload"]["status"] == "completed"


def test_a_run_is_stepped_through(standing: Place) -> None:
    args = ("--input", INPUT, "--script", "flows/script.json", "--break", "gather", "--run-id", "stepped")
    run = standing.started("flows/triage.yaml", *args)
    assert standing.here("watch", run, "--until", "run.paused").exit_code == exits.OK
    assert "resumed for a step by ada" in standing.here("step", run, "--by", "ada").stdout
    first = paused_after(standing, run, 0)
    pauses = [one["payload"] for one in (first, paused_after(standing, run, first["sequence"]))]
    assert [(one["reason"], one["step"]) for one in pauses] == [("breakpoint", "gather"), ("step", "investigate")]
    assert "paused" in standing.here("show", run).stdout
    assert standing.here("resume", run).exit_code == exits.OK
    assert standing.here("watch", run).exit_code == exits.OK


def test_a_breakpoint_that_is_nowhere_is_refused(standing: Place) -> None:
    args = ("--input", INPUT, "--script", "flows/script.json", "--break", "note", "--break", "nowhere")
    done = standing.here("start", "flows/triage.yaml", *args)
    assert done.exit_code == exits.FAILED
    assert "UNKNOWN_BREAKPOINT breakpoints[1]: unknown node 'nowhere'" in done.stderr


@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_cancel_and_kill(standing: Place, verb: str) -> None:
    run = stopped_at_a_breakpoint(standing)
    done = standing.here(verb, run, "--reason", "enough", "--by", "ada")
    assert done.exit_code == exits.OK
    assert f"{verb} requested by ada: enough" in done.stdout
    assert standing.here("watch", run).exit_code == exits.CANCELLED
    late = standing.here(verb, run, "--json")
    assert late.exit_code == exits.FAILED
    assert json.loads(late.stdout)["error"]["code"] == "run.finished"


def test_pause_and_signal_are_recorded(standing: Place) -> None:
    run = stopped_at_a_breakpoint(standing)
    assert "paused (command)" in standing.here("pause", run).stdout
    assert 'signal go: {"x":1}' in standing.here("signal", run, "go", '{"x": 1}').stdout
    assert standing.told("signal", run, "stop", "just text")["recorded"]
    assert standing.here("resume", run).exit_code == exits.OK
    assert standing.here("watch", run).exit_code == exits.OK


def test_what_a_run_refuses_is_an_error(standing: Place) -> None:
    run = stopped_at_a_breakpoint(standing)
    done = standing.here("answer", run, "gather#1.1!ask", "yes", "--data", "{}", "--json")
    assert done.exit_code == exits.FAILED
    assert json.loads(done.stdout)["error"]["code"] == "answer.no_question"
    assert standing.here("cancel", run).exit_code == exits.OK


def asking(place: Place) -> str:
    """Start a flow that asks for a confirmation, and wait until it does; its worker is about to park it."""
    file = place.write("asks.json", flow_of(ours("human"), question="Sure?", type="confirm"))
    run = place.started(file)
    assert place.here("watch", run, "--until", "human.asked").exit_code == exits.OK
    return run


def test_who_answers_is_told_the_verdict(standing: Place) -> None:
    run = asking(standing)
    wrong = standing.here("answer", run, "maybe")
    assert wrong.exit_code == exits.FAILED
    assert "error answer.not_understood: answer 1 is none to this question of type confirm: 'maybe'" in wrong.stderr
    assert "still open" in wrong.stderr
    assert standing.told("show", run)["status"] == "waiting:human"
    assert run in [row["run"] for row in standing.told("runs", "--status", "waiting:human")]
    right = standing.here("answer", run, "yes", "--by", "ada", "--id", "k")
    assert (right.exit_code, right.stdout.partition("  (")[0]) == (
        exits.OK,
        "Sure? (main/a:call#1.1!ask): answer 2 by ada: yes: accepted",
    )
    assert standing.here("watch", run).exit_code == exits.OK
    again = standing.here("answer", run, "yes", "--by", "ada", "--id", "k")
    assert (again.exit_code, again.stdout.partition("  (")[0]) == (exits.OK, right.stdout.partition("  (")[0])
    assert "already sent with this id" in again.stdout
    late = standing.here("answer", run, "yes", "--json")
    assert (late.exit_code, json.loads(late.stdout)["error"]["code"]) == (exits.FAILED, "run.finished")


def test_the_question_can_be_named_and_the_verdict_is_there_for_machines(standing: Place) -> None:
    run = asking(standing)
    [effect] = standing.told("show", run)["open"]
    assert standing.here("answer", run, effect["key"], "two", "words").exit_code == exits.USAGE
    told = standing.told("answer", run, effect["key"], "no")
    assert (told["verb"], told["verdict"]) == ("answer", "accepted")


def test_nobody_can_be_told_anything(standing: Place) -> None:
    done = standing.here("cancel", "nobody")
    assert done.exit_code == exits.FAILED
    assert "run.unknown" in done.stderr
