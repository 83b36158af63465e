"""`callboard schedule`: schedules, their starts, and refusals."""

import json
from typing import Any

import pytest

from callboard.surfaces.cli import exits
from tests.support.workdir import INPUT, Workdir


def cron_graph(cron: str = "30 2 * * *", **configurations: Any) -> dict[str, Any]:
    settings = {"cron_expression": cron, **configurations}
    node = {"id": "t", "name": "Trigger", "type": "TRIGGER", "subtype": "CRON", "configurations": settings}
    return {"metadata": {"id": "nightly", "name": "Nightly"}, "nodes": [node], "connections": [], "triggers": ["t"]}


def test_a_schedule_is_added_listed_paused_resumed_and_removed(workdir: Workdir) -> None:
    file = workdir.write_triage()
    script = ["--script", "flows/script.json"]
    when = ["--cron", "0 9 * * 1-5", "--timezone", "Europe/Berlin"]
    done = workdir.run("schedule", "add", file, "--input", INPUT, *script, *when)
    assert done.exit_code == exits.OK, done.output
    assert done.stdout.startswith("triage: 0 9 * * 1-5 Europe/Berlin\n  next ")
    (row,) = workdir.run_json("schedule", "list")
    assert (row["name"], row["definition"], row["overlap"]) == ("triage", "triage", "skip")
    assert "triage" in workdir.run("schedule", "list").stdout
    assert workdir.run("schedule", "pause", "triage").stdout == "triage paused\n"
    assert "next" not in workdir.run_json("schedule", "list")[0]
    assert workdir.run("schedule", "resume", "triage").stdout.startswith("triage resumed, next ")
    assert workdir.run("schedule", "remove", "triage").stdout == "triage removed\n"
    assert workdir.run("schedule", "list").stdout.startswith("No schedules.")


def test_a_graph_with_a_cron_trigger_has_its_own_times(workdir: Workdir) -> None:
    file = workdir.write("nightly.json", cron_graph(timezone="Asia/Tokyo", max_missed_runs=2))
    added = workdir.run_json("schedule", "add", file)
    assert (added["name"], added["when"], added["catch_up"]) == ("nightly", "30 2 * * * Asia/Tokyo", 2)
    assert workdir.run_json("schedule", "add", file, "--every", "10m")["when"] == "every 600 s"
    assert workdir.run_json("schedule", "add", file, "--timezone", "UTC", "--catch-up", "0")["when"] == "30 2 * * * UTC"
    assert len(workdir.run_json("schedule", "list")) == 1


def test_a_registered_definition_is_scheduled_by_its_name(workdir: Workdir) -> None:
    assert workdir.run("push", workdir.write("nightly.json", cron_graph())).exit_code == exits.OK
    assert workdir.run_json("schedule", "add", "nightly", "--every", "1h")["definition"] == "nightly"
    assert workdir.run("schedule", "add", "daily", "--every", "1h").exit_code == exits.FAILED


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--cron", "x"], exits.FAILED, "schedule.cron"),
        ([], exits.FAILED, "schedule.when"),
        (["--every", "10"], exits.USAGE, "not a duration"),
        (["--every", "1h", "--run-id", "r"], exits.USAGE, "--run-id"),
        (["--every", "1h", "--overlap", "wait"], exits.USAGE, "--overlap"),
    ],
)
def test_an_invalid_schedule_is_refused(workdir: Workdir, words: list[str], code: int, said: str) -> None:
    done = workdir.run("schedule", "add", *workdir.write_one({"text": "x"}), *words)
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_an_unknown_schedule_is_refused_with_a_remedy(workdir: Workdir) -> None:
    assert workdir.run("push", workdir.write("nightly.json", cron_graph())).exit_code == exits.OK
    done = workdir.run("schedule", "pause", "nix", "--json")
    error = json.loads(done.output)["error"]
    assert (done.exit_code, error["code"]) == (exits.FAILED, "schedule.unknown")
    assert "`callboard schedule list" in error["remedy"]


def test_a_scheduled_run_has_the_data_of_its_trigger(workdir: Workdir) -> None:
    file = workdir.write("nightly.json", cron_graph())
    with workdir.up():
        workdir.run_json("schedule", "add", file, "--every", "1s", "--name", "often")
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = workdir.run_json("runs", "--status", "completed")
        workdir.run_json("schedule", "remove", "often")
        (execution,) = workdir.run_json("show", rows[0]["run"])["results"]["node_executions"].values()
    data = execution["output_data"]["result"]
    assert (data["trigger_message"], data["timezone"]) == (f"Due at {data['scheduled_time']} by schedule often", "UTC")


def test_a_rejected_scheduled_start_has_its_reason(workdir: Workdir) -> None:
    file = workdir.write("nightly.json", cron_graph())
    assert workdir.run("push", file).exit_code == exits.OK
    assert "schedule.no_worker" in workdir.run("schedule", "add", file).stderr
    with workdir.up():
        added = workdir.run("schedule", "add", "nightly", "--every", "1s", "--name", "often", "--model", "nix:nix")
        assert (added.exit_code, added.stderr) == (exits.OK, "")
        rows: list[dict[str, Any]] = []
        while not (rows and rows[0].get("last_status") == "rejected"):
            rows = [row for row in workdir.run_json("schedule", "list") if row["name"] == "often"]
        last = rows[0]["last"]
        assert [one["code"] for one in rows[0]["last_problems"]] == ["model.unknown"]
        # The next start may be due at any moment; it has no verdict at first.
        while "error model.unknown model: " not in workdir.run("schedule", "list").stdout:
            pass
        while "rejected" not in (shown := workdir.run("schedule", "show", "often").stdout):
            pass
        assert "error model.unknown model: " in shown
        unknown = workdir.run("show", last)
    assert unknown.exit_code == exits.FAILED
    assert f"there is no run '{last}': its start was rejected: model.unknown: " in unknown.stderr
