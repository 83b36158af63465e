"""Reading at the command line without a running server: list, show, trace, replay, rebuild."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.nats.server.data_directory import running_url
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.show import FORMATS
from tests.support.otlp_receiver import otlp_receiver
from tests.support.workdir import INPUT, Workdir


@pytest.fixture(scope="module")
def performed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workdir, list[dict[str, Any]]]:
    """A working directory whose store has one ended run, ``r1``; and the events of the run."""
    workdir = Workdir(tmp_path_factory.mktemp("performed"))
    args = ("--input", INPUT, "--script", "flows/script.json", "--run-id", "r1", "--stream")
    done = workdir.run("run", workdir.write_triage(), *args)
    assert done.exit_code == exits.OK, done.stderr
    return workdir, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_stream_has_the_events_of_the_log(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, events = performed
    assert [event["n"] for event in events] == list(range(1, len(events) + 1))
    assert [events[0]["type"], events[-1]["type"]] == ["run.accepted", "run.end"]
    sequences = [event.pop("sequence") for event in events]
    assert sequences == sorted(sequences)
    assert workdir.events("r1") == events


def test_files_skills_and_tools_beside_the_definition_are_found(
    performed: tuple[Workdir, list[dict[str, Any]]],
) -> None:
    _workdir, events = performed
    sources = next(event for event in events if event["type"] == "sources.resolved")["payload"]["sources"]
    assert sources["workflow.rules[0]"]["content"] == "Be brief.\n"
    results = [event["payload"] for event in events if event["type"] == "tool.result"]
    assert [result["output"] for result in results] == [{"hits": 7, "worked_in": "flows"}]


def test_runs_are_listed(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, _events = performed
    (row,) = workdir.run_json("runs")
    assert (row["run"], row["status"], row["definition"]) == ("r1", "completed", "triage")
    assert workdir.run_json("runs", "--status", "failed") == []
    assert "r1" in workdir.run("runs").stdout
    assert workdir.run("runs", "--status", "failed").stdout == "No runs.\n"
    assert running_url(workdir.folder / ".callboard") is None


def test_a_run_is_shown(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, events = performed
    output = workdir.run_json("show", "r1")
    assert (output["status"], output["last_n"], output["path"]) == (
        "completed",
        len(events),
        ["gather", "investigate", "note"],
    )
    text = workdir.run("show", "r1").stdout
    assert "status      completed" in text
    assert '  ok  gather  {"found":3}' in text


def test_an_unknown_run_is_an_error(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    place, _events = performed
    for command in ("show", "trace", "replay", "rebuild"):
        assert place.refusal(command, "nobody") == (exits.FAILED, "run.unknown")


@pytest.mark.parametrize("form", FORMATS)
def test_a_trace_has_every_form(performed: tuple[Workdir, list[dict[str, Any]]], form: str) -> None:
    workdir, events = performed
    done = workdir.run("trace", "r1", "--format", form)
    assert done.exit_code == exits.OK
    match form:
        case "result":
            steps = json.loads(done.stdout)["trace"]["steps"]
            assert [step["node"] for step in steps] == ["gather", "investigate", "note"]
        case "json":
            assert [node["path"] for node in json.loads(done.stdout)["root"]["children"]] == [
                "gather",
                "investigate",
                "note",
            ]
        case "jaeger":
            (trace,) = json.loads(done.stdout)["data"]
            assert len([span for span in trace["spans"] if not span["references"]]) == 1
        case "events":
            assert len(done.stdout.splitlines()) == len(events)
        case "mermaid":
            assert "class n_gather,n_investigate,n_note success" in done.stdout
        case _:
            assert "gather" in done.stdout
            output = json.loads(workdir.run("trace", "r1", "--format", form, "--json").stdout)
            assert output[0]["path"] == "gather" if form == "table" else output["text"].strip() == done.stdout.strip()


def test_a_replay_verifies_the_log(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, events = performed
    output = workdir.run_json("replay", "r1")
    assert (output["at"], output["ended"], output["open"], output["unwritten"]) == (len(events), True, [], [])
    assert output["standing"]["status"] == "completed"
    assert "exactly what the log holds" in workdir.run("replay", "r1").stdout


def test_a_replay_to_an_event_shows_the_open_effects(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, events = performed
    call = next(event for event in events if event["type"] == "tool.call")
    output = workdir.run_json("replay", "r1", "--at", str(call["n"]))
    assert [effect["key"] for effect in output["open"]] == [call["key"]]
    assert output["standing"]["nodes"]["gather"].get("outcome") is None
    assert call["key"] in workdir.run("replay", "r1", "--at", str(call["n"])).stdout
    before = workdir.run_json("replay", "r1", "--at", "1")
    assert before["standing"]["status"] == "accepted"
    beyond = workdir.run("replay", "r1", "--at", "9999", "--json")
    assert json.loads(beyond.stdout)["error"]["code"] == "replay.no_event"
    assert beyond.exit_code == exits.FAILED


def test_rebuilt_views_are_equal(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, events = performed
    (output,) = workdir.run_json("rebuild")
    assert (output["run"], output["events"], output["different"]) == ("r1", len(events), [])
    assert set(output["digests"]) == {"results", "trace", "diagram", "runs", "spans", "workflow result"}
    assert all(digest in workdir.run("rebuild", "r1").stdout for digest in output["digests"].values())


def test_an_unreachable_backend_of_spans_is_reported(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, _ = performed
    with socket.socket() as bound:
        # The port is bound, and no program listens.
        bound.bind(("127.0.0.1", 0))
        endpoint = f"http://me:hush@127.0.0.1:{bound.getsockname()[1]}"
        done = workdir.run("rebuild", "r1", "--spans", "--json", env={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    assert done.exit_code == 1
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["where"]) == ("spans.unreachable", endpoint.replace("me:hush@", ""))
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in error["remedy"]


def test_spans_are_sent_again_on_demand(performed: tuple[Workdir, list[dict[str, Any]]]) -> None:
    workdir, _events = performed
    with otlp_receiver() as receiver:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        for count in (1, 2):
            (output,) = workdir.run_json("rebuild", "r1", "--spans", env=env)
            assert len(receiver.spans()) == count * output["spans_sent"]
        assert len({span.span_id for span in receiver.spans()}) == output["spans_sent"] > 3


def test_invalid_names_and_numbers_are_refused_with_a_message(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    assert workdir.run("run", *workdir.write_one({"text": "x"}), "--run-id", "r-1", "--no-ask").exit_code == exits.OK
    workdir.run("archive", "r-1", "--output", "r.callboard")
    long = "x" * 10_000
    assert workdir.run("start", long).exit_code == exits.UNUSABLE, "there is no worker"
    assert workdir.run("watch", "r-1", "--until", "").exit_code == exits.FAILED
    for words in (("show", long), ("rebuild", long), ("diagram", long)):
        result = workdir.run(*words)
        assert result.exit_code == exits.FAILED, words
        assert result.stderr.startswith("error subject.unusable: name too long for a subject token (10000 bytes"), words
        assert len(result.stderr) < 400
    for other in (long, "r.callboard#nix"):
        assert workdir.run("diff", "r.callboard", other).exit_code == exits.USAGE, "1 means that they differ"
    assert workdir.run("archive", long, "--output", "x.callboard").exit_code == exits.FAILED
    assert workdir.run("rebuild", "").exit_code == exits.FAILED
    for words in (
        ("runs", "--limit", "9" * 30),
        ("inbox", "--limit", "9" * 30),
        ("up", "--workers", "9" * 30),
        ("worker", "--workers", "1001"),
        ("up", "--drain-wait", "nan"),
        ("start", ""),
        ("runs", "--data-dir", ""),
        ("import", "r.callboard", "--as", ""),
        ("diagram", ""),
    ):
        assert workdir.run(*words).exit_code == exits.USAGE, words
