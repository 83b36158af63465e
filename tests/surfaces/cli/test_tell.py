"""Commands to runs: cancel, kill, pause, resume, answer and signal; and their refusals."""

import json
from typing import Any

import pytest

from callboard.surfaces.cli import exits
from tests.support.flow_providers import flow_of, ours
from tests.support.workdir import INPUT, Workdir


def start_to_breakpoint(workdir: Workdir) -> str:
    """Start a triage, and wait until it is paused before `note`."""
    args = ("flows/triage.yaml", "--input", INPUT, "--script", "flows/script.json", "--breakpoint", "note")
    run = workdir.start_run(*args)
    assert next_pause(workdir, run, 0)["payload"]["step"] == "note"
    return run


def next_pause(workdir: Workdir, run: str, sequence: int) -> dict[str, Any]:
    """Return the next pause of a run."""
    seen = workdir.run("watch", run, "--json", "--after", str(sequence), "--until", "run.paused")
    return json.loads(seen.stdout.splitlines()[-1])


def test_a_breakpoint_is_shown_with_its_command_and_resumed(running: Workdir) -> None:
    run = start_to_breakpoint(running)
    assert running.run_json("show", run)["status"] == "paused"
    assert f"callboard resume {run}" in running.run("show", run).stdout
    refused = running.run("resume", run, "--set", "a=[1]")
    assert "the language of this run has no variables" in refused.stderr
    output = running.run_json("resume", run, "--by", "ada")
    assert output["recorded"]
    events = [json.loads(line) for line in running.run("watch", run, "--json").stdout.splitlines()]
    resumed = next(event for event in events if event["n"] == output["recorded"])
    assert resumed["payload"] == {"by": "ada"}
    assert events[-1]["payload"]["status"] == "completed"


def test_a_run_is_stepped_through(running: Workdir) -> None:
    args = ("--input", INPUT, "--script", "flows/script.json", "--break", "gather", "--run-id", "stepped")
    run = running.start_run("flows/triage.yaml", *args)
    assert running.run("watch", run, "--until", "run.paused").exit_code == exits.OK
    assert "resumed for a step by ada" in running.run("step", run, "--by", "ada").stdout
    first = next_pause(running, run, 0)
    pauses = [one["payload"] for one in (first, next_pause(running, run, first["sequence"]))]
    assert [(one["reason"], one["step"]) for one in pauses] == [("breakpoint", "gather"), ("step", "investigate")]
    assert "paused" in running.run("show", run).stdout
    assert running.run("resume", run).exit_code == exits.OK
    assert running.run("watch", run).exit_code == exits.OK


def test_a_breakpoint_at_an_unknown_node_is_refused(running: Workdir) -> None:
    args = ("--input", INPUT, "--script", "flows/script.json", "--break", "note", "--break", "nowhere")
    done = running.run("start", "flows/triage.yaml", *args)
    assert done.exit_code == exits.FAILED
    assert "UNKNOWN_BREAKPOINT breakpoints[1]: unknown node 'nowhere'" in done.stderr


@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_cancel_and_kill(running: Workdir, verb: str) -> None:
    run = start_to_breakpoint(running)
    done = running.run(verb, run, "--reason", "enough", "--by", "ada")
    assert done.exit_code == exits.OK
    assert f"{verb} requested by ada: enough" in done.stdout
    assert running.run("watch", run).exit_code == exits.CANCELLED
    assert running.refusal(verb, run) == (exits.FAILED, "run.finished")


def test_pause_and_signal_are_recorded(running: Workdir) -> None:
    run = start_to_breakpoint(running)
    assert "paused (command)" in running.run("pause", run).stdout
    assert 'signal go: {"x":1}' in running.run("signal", run, "go", '{"x": 1}').stdout
    assert running.run_json("signal", run, "stop", "just text")["recorded"]
    assert running.run("resume", run).exit_code == exits.OK
    assert running.run("watch", run).exit_code == exits.OK


def test_a_refused_command_is_an_error(running: Workdir) -> None:
    run = start_to_breakpoint(running)
    assert running.refusal("answer", run, "gather#1.1!ask", "yes", "--data", "{}") == (
        exits.FAILED,
        "answer.no_question",
    )
    assert running.run("cancel", run).exit_code == exits.OK


def start_question(workdir: Workdir) -> str:
    """Start a flow, and wait until it asks for a confirmation; its worker may not have parked it yet."""
    file = workdir.write("asks.json", flow_of(ours("human"), question="Sure?", type="confirm"))
    run = workdir.start_run(file)
    assert workdir.run("watch", run, "--until", "human.asked").exit_code == exits.OK
    return run


def test_an_answer_has_its_verdict(running: Workdir) -> None:
    run = start_question(running)
    wrong = running.run("answer", run, "maybe")
    assert wrong.exit_code == exits.FAILED
    assert "error answer.not_understood: answer 1 is none to this question of type confirm: 'maybe'" in wrong.stderr
    assert "still open" in wrong.stderr
    assert running.run_json("show", run)["status"] == "waiting:human"
    assert run in [row["run"] for row in running.run_json("runs", "--status", "waiting:human")]
    right = running.run("answer", run, "yes", "--by", "ada", "--id", "k")
    assert (right.exit_code, right.stdout.partition("  (")[0]) == (
        exits.OK,
        "Sure? (main/a:call#1.1!ask): answer 2 by ada: yes: accepted",
    )
    assert running.run("watch", run).exit_code == exits.OK
    again = running.run("answer", run, "yes", "--by", "ada", "--id", "k")
    assert (again.exit_code, again.stdout.partition("  (")[0]) == (exits.OK, right.stdout.partition("  (")[0])
    assert "already sent with this id" in again.stdout
    late = running.run("answer", run, "yes", "--json")
    assert (late.exit_code, json.loads(late.stdout)["error"]["code"]) == (exits.FAILED, "run.finished")


def test_a_named_question_is_answered_with_a_json_verdict(running: Workdir) -> None:
    run = start_question(running)
    [effect] = running.run_json("show", run)["open"]
    assert running.run("answer", run, effect["key"], "two", "words").exit_code == exits.USAGE
    output = running.run_json("answer", run, effect["key"], "no")
    assert (output["verb"], output["verdict"]) == ("answer", "accepted")


def test_a_command_to_an_unknown_run_is_refused(running: Workdir) -> None:
    done = running.run("cancel", "nobody")
    assert done.exit_code == exits.FAILED
    assert "run.unknown" in done.stderr
