"""Commands to runs: cancel, kill, pause, resume, answer and signal; and their refusals."""

import json
from typing import Any

import pytest

from callboard.surfaces.cli import exits
from tests.support.cli_stage import INPUT, Place
from tests.support.flow_providers import flow_of, ours


def start_to_breakpoint(place: Place) -> str:
    """Start a triage, and wait until it is paused before `note`."""
    args = ("flows/triage.yaml", "--input", INPUT, "--script", "flows/script.json", "--breakpoint", "note")
    run = place.started(*args)
    assert next_pause(place, run, 0)["payload"]["step"] == "note"
    return run


def next_pause(place: Place, run: str, sequence: int) -> dict[str, Any]:
    """Return the next pause of a run."""
    seen = place.here("watch", run, "--json", "--after", str(sequence), "--until", "run.paused")
    return json.loads(seen.stdout.splitlines()[-1])


def test_a_breakpoint_is_shown_with_its_command_and_resumed(running: Place) -> None:
    run = start_to_breakpoint(running)
    assert running.told("show", run)["status"] == "paused"
    assert f"callboard resume {run}" in running.here("show", run).stdout
    refused = running.here("resume", run, "--set", "a=[1]")
    assert "the language of this run has no variables" in refused.stderr
    output = running.told("resume", run, "--by", "ada")
    assert output["recorded"]
    events = [json.loads(line) for line in running.here("watch", run, "--json").stdout.splitlines()]
    resumed = next(event for event in events if event["n"] == output["recorded"])
    assert resumed["payload"] == {"by": "ada"}
    assert events[-1]["payload"]["status"] == "completed"


def test_a_run_is_stepped_through(running: Place) -> None:
    args = ("--input", INPUT, "--script", "flows/script.json", "--break", "gather", "--run-id", "stepped")
    run = running.started("flows/triage.yaml", *args)
    assert running.here("watch", run, "--until", "run.paused").exit_code == exits.OK
    assert "resumed for a step by ada" in running.here("step", run, "--by", "ada").stdout
    first = next_pause(running, run, 0)
    pauses = [one["payload"] for one in (first, next_pause(running, run, first["sequence"]))]
    assert [(one["reason"], one["step"]) for one in pauses] == [("breakpoint", "gather"), ("step", "investigate")]
    assert "paused" in running.here("show", run).stdout
    assert running.here("resume", run).exit_code == exits.OK
    assert running.here("watch", run).exit_code == exits.OK


def test_a_breakpoint_at_an_unknown_node_is_refused(running: Place) -> None:
    args = ("--input", INPUT, "--script", "flows/script.json", "--break", "note", "--break", "nowhere")
    done = running.here("start", "flows/triage.yaml", *args)
    assert done.exit_code == exits.FAILED
    assert "UNKNOWN_BREAKPOINT breakpoints[1]: unknown node 'nowhere'" in done.stderr


@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_cancel_and_kill(running: Place, verb: str) -> None:
    run = start_to_breakpoint(running)
    done = running.here(verb, run, "--reason", "enough", "--by", "ada")
    assert done.exit_code == exits.OK
    assert f"{verb} requested by ada: enough" in done.stdout
    assert running.here("watch", run).exit_code == exits.CANCELLED
    assert running.refusal(verb, run) == (exits.FAILED, "run.finished")


def test_pause_and_signal_are_recorded(running: Place) -> None:
    run = start_to_breakpoint(running)
    assert "paused (command)" in running.here("pause", run).stdout
    assert 'signal go: {"x":1}' in running.here("signal", run, "go", '{"x": 1}').stdout
    assert running.told("signal", run, "stop", "just text")["recorded"]
    assert running.here("resume", run).exit_code == exits.OK
    assert running.here("watch", run).exit_code == exits.OK


def test_a_refused_command_is_an_error(running: Place) -> None:
    run = start_to_breakpoint(running)
    assert running.refusal("answer", run, "gather#1.1!ask", "yes", "--data", "{}") == (
        exits.FAILED,
        "answer.no_question",
    )
    assert running.here("cancel", run).exit_code == exits.OK


def start_question(place: Place) -> str:
    """Start a flow, and wait until it asks for a confirmation; its worker may not have parked it yet."""
    file = place.write("asks.json", flow_of(ours("human"), question="Sure?", type="confirm"))
    run = place.started(file)
    assert place.here("watch", run, "--until", "human.asked").exit_code == exits.OK
    return run


def test_an_answer_has_its_verdict(running: Place) -> None:
    run = start_question(running)
    wrong = running.here("answer", run, "maybe")
    assert wrong.exit_code == exits.FAILED
    assert "error answer.not_understood: answer 1 is none to this question of type confirm: 'maybe'" in wrong.stderr
    assert "still open" in wrong.stderr
    assert running.told("show", run)["status"] == "waiting:human"
    assert run in [row["run"] for row in running.told("runs", "--status", "waiting:human")]
    right = running.here("answer", run, "yes", "--by", "ada", "--id", "k")
    assert (right.exit_code, right.stdout.partition("  (")[0]) == (
        exits.OK,
        "Sure? (main/a:call#1.1!ask): answer 2 by ada: yes: accepted",
    )
    assert running.here("watch", run).exit_code == exits.OK
    again = running.here("answer", run, "yes", "--by", "ada", "--id", "k")
    assert (again.exit_code, again.stdout.partition("  (")[0]) == (exits.OK, right.stdout.partition("  (")[0])
    assert "already sent with this id" in again.stdout
    late = running.here("answer", run, "yes", "--json")
    assert (late.exit_code, json.loads(late.stdout)["error"]["code"]) == (exits.FAILED, "run.finished")


def test_a_named_question_is_answered_with_a_json_verdict(running: Place) -> None:
    run = start_question(running)
    [effect] = running.told("show", run)["open"]
    assert running.here("answer", run, effect["key"], "two", "words").exit_code == exits.USAGE
    output = running.told("answer", run, effect["key"], "no")
    assert (output["verb"], output["verdict"]) == ("answer", "accepted")


def test_a_command_to_an_unknown_run_is_refused(running: Place) -> None:
    done = running.here("cancel", "nobody")
    assert done.exit_code == exits.FAILED
    assert "run.unknown" in done.stderr
