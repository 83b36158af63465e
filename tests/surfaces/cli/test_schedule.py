"""`callboard schedule`: schedules, their starts, and refusals."""

import json
from typing import Any

import pytest

from callboard.surfaces.cli import exits
from tests.support.cli_stage import INPUT, Place


def cron_graph(cron: str = "30 2 * * *", **configurations: Any) -> dict[str, Any]:
    settings = {"cron_expression": cron, **configurations}
    node = {"id": "t", "name": "Trigger", "type": "TRIGGER", "subtype": "CRON", "configurations": settings}
    return {"metadata": {"id": "nightly", "name": "Nightly"}, "nodes": [node], "connections": [], "triggers": ["t"]}


def test_a_schedule_is_added_listed_paused_resumed_and_removed(place: Place) -> None:
    file = place.triage()
    script = ["--script", "flows/script.json"]
    when = ["--cron", "0 9 * * 1-5", "--timezone", "Europe/Berlin"]
    done = place.here("schedule", "add", file, "--input", INPUT, *script, *when)
    assert done.exit_code == exits.OK, done.output
    assert done.stdout.startswith("triage: 0 9 * * 1-5 Europe/Berlin\n  next ")
    (row,) = place.told("schedule", "list")
    assert (row["name"], row["definition"], row["overlap"]) == ("triage", "triage", "skip")
    assert "triage" in place.here("schedule", "list").stdout
    assert place.here("schedule", "pause", "triage").stdout == "triage paused\n"
    assert "next" not in place.told("schedule", "list")[0]
    assert place.here("schedule", "resume", "triage").stdout.startswith("triage resumed, next ")
    assert place.here("schedule", "remove", "triage").stdout == "triage removed\n"
    assert place.here("schedule", "list").stdout.startswith("No schedules.")


def test_a_graph_with_a_cron_trigger_has_its_own_times(place: Place) -> None:
    file = place.write("nightly.json", cron_graph(timezone="Asia/Tokyo", max_missed_runs=2))
    added = place.told("schedule", "add", file)
    assert (added["name"], added["when"], added["catch_up"]) == ("nightly", "30 2 * * * Asia/Tokyo", 2)
    assert place.told("schedule", "add", file, "--every", "10m")["when"] == "every 600 s"
    assert place.told("schedule", "add", file, "--timezone", "UTC", "--catch-up", "0")["when"] == "30 2 * * * UTC"
    assert len(place.told("schedule", "list")) == 1


def test_a_registered_definition_is_scheduled_by_its_name(place: Place) -> None:
    assert place.here("push", place.write("nightly.json", cron_graph())).exit_code == exits.OK
    assert place.told("schedule", "add", "nightly", "--every", "1h")["definition"] == "nightly"
    assert place.here("schedule", "add", "daily", "--every", "1h").exit_code == exits.FAILED


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
def test_an_invalid_schedule_is_refused(place: Place, words: list[str], code: int, said: str) -> None:
    done = place.here("schedule", "add", *place.one({"text": "x"}), *words)
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_an_unknown_schedule_is_refused_with_a_remedy(place: Place) -> None:
    assert place.here("push", place.write("nightly.json", cron_graph())).exit_code == exits.OK
    done = place.here("schedule", "pause", "nix", "--json")
    error = json.loads(done.output)["error"]
    assert (done.exit_code, error["code"]) == (exits.FAILED, "schedule.unknown")
    assert "`callboard schedule list" in error["remedy"]


def test_a_scheduled_run_has_the_data_of_its_trigger(place: Place) -> None:
    file = place.write("nightly.json", cron_graph())
    with place.up():
        place.told("schedule", "add", file, "--every", "1s", "--name", "often")
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = place.told("runs", "--status", "completed")
        place.told("schedule", "remove", "often")
        (execution,) = place.told("show", rows[0]["run"])["results"]["node_executions"].values()
    data = execution["output_data"]["result"]
    assert (data["trigger_message"], data["timezone"]) == (f"Due at {data['scheduled_time']} by schedule often", "UTC")


def test_a_rejected_scheduled_start_has_its_reason(place: Place) -> None:
    file = place.write("nightly.json", cron_graph())
    assert place.here("push", file).exit_code == exits.OK
    assert "schedule.no_worker" in place.here("schedule", "add", file).stderr
    with place.up():
        added = place.here("schedule", "add", "nightly", "--every", "1s", "--name", "often", "--model", "nix:nix")
        assert (added.exit_code, added.stderr) == (exits.OK, "")
        rows: list[dict[str, Any]] = []
        while not (rows and rows[0].get("last_status") == "rejected"):
            rows = [row for row in place.told("schedule", "list") if row["name"] == "often"]
        last = rows[0]["last"]
        assert [one["code"] for one in rows[0]["last_problems"]] == ["model.unknown"]
        # The next start may be due at any moment; it has no verdict at first.
        while "error model.unknown model: " not in place.here("schedule", "list").stdout:
            pass
        while "rejected" not in (shown := place.here("schedule", "show", "often").stdout):
            pass
        assert "error model.unknown model: " in shown
        unknown = place.here("show", last)
    assert unknown.exit_code == exits.FAILED
    assert f"there is no run '{last}': its start was rejected: model.unknown: " in unknown.stderr
