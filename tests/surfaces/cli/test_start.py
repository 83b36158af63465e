"""Forks at the command line: their traces, views and archives."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir

TURNS = [{"data": {"found": n}, "usage": {"input_tokens": 100, "output_tokens": 10}} for n in range(3)]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Generator[Workdir]:
    """A place with workers, the ended run ``r1``, its fork ``f1`` after the first node, and ``f2``, a fork of ``f1`` at
    an event of ``r1``."""
    workdir = Workdir(tmp_path_factory.mktemp("forks"))
    nodes = {name: {"name": name.upper(), "instruction": f"Do {name}."} for name in "abc"}
    edges = [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}]
    definition = {"id": "steps", "name": "Steps", "entry": "a", "nodes": nodes, "edges": edges}
    script = {"turns": {name: [turn] for name, turn in zip("abc", TURNS, strict=True)}}
    files = workdir.write("steps.json", definition), workdir.write("script.json", script)
    with workdir.serve_triage():
        assert workdir.run("run", files[0], "--script", files[1], "--run-id", "r1").exit_code == exits.OK
        for origin, node, fork in (("r1", "b", "f1"), ("f1", "a", "f2")):
            assert workdir.run("fork", origin, "--from", node, "--run-id", fork).stdout == f"{fork}\n"
            assert workdir.run("watch", fork).exit_code == exits.OK
        yield workdir


def test_a_watched_fork_has_the_events_of_its_origin(workdir: Workdir) -> None:
    events = workdir.events("f2")
    streamed = [json.loads(line) for line in workdir.run("watch", "f2", "--json").stdout.splitlines()]
    sequences = [event.pop("sequence") for event in streamed]
    assert streamed == events
    # Watching continues after any event.
    for n in (2, 3, len(events) - 1):
        rest = workdir.run("watch", "f2", "--json", "--after", str(sequences[n - 1])).stdout.splitlines()
        assert [json.loads(line)["n"] for line in rest] == list(range(n + 1, len(events) + 1))
    lines = workdir.run("watch", "f1").stdout.splitlines()
    assert [line.split()[3] for line in lines if "▶" in line] == ["a:", "b:", "c:"]


def test_rebuilt_views_of_a_fork_are_equal(workdir: Workdir) -> None:
    for output in workdir.run_json("rebuild"):
        assert output["different"] == [], output["run"]


def test_a_fork_names_its_origin_wherever_it_is_shown(workdir: Workdir) -> None:
    output = {run: workdir.run_json("show", run) for run in ("f1", "f2")}
    rows: dict[str, Any] = {row["run"]: row for row in workdir.run_json("runs")}
    for run, origin in (("f1", "r1"), ("f2", "f1")):
        shown = output[run]
        parted_at = shown["parted_at"]
        assert (shown["run"], shown["origin"]) == (run, origin)
        assert (rows[run]["origin"], rows[run]["parted_at"]) == (origin, parted_at)
        assert f"origin      {origin} after event {parted_at}\n" in workdir.run("show", run).stdout
        assert f"forked from {origin} after event {parted_at}\n" in workdir.run("trace", run).stdout
        trace = json.loads(workdir.run("trace", run, "--format", "json").stdout)
        assert (trace["run"], trace["origin"], trace["parted_at"]) == (run, origin, parted_at)
        spans = json.loads(workdir.run("trace", run, "--format", "jaeger").stdout)["data"]
        assert len(spans) == 1
        tags = {tag["key"]: tag["value"] for tag in spans[0]["spans"][0]["tags"]}
        assert (tags["callboard.origin.run.id"], tags["callboard.origin.parted_at"]) == (origin, parted_at)
    # Tokens of the shared events count for the origin.
    assert [rows[run]["tokens"] for run in ("r1", "f1", "f2")] == [330, 220, 330]
    assert [output[run]["usage"]["input_tokens"] for run in ("f1", "f2")] == [200, 300]
    assert output["f1"]["started_at"] == rows["f1"]["started_at"]


def test_a_fork_in_an_archive_has_the_same_traces(workdir: Workdir, tmp_path: Path) -> None:
    file = tmp_path / "f2.callboard"
    assert workdir.run("archive", "f2", "--output", str(file)).exit_code == exits.OK
    for form in ("tree", "json", "events", "jaeger"):
        args = "trace", "--format", form
        assert workdir.run(*args, f"{file}#f2").stdout == workdir.run(*args, "f2").stdout
    assert workdir.run_json("show", f"{file}#f2") == workdir.run_json("show", "f2")
    assert workdir.run_json("rebuild", f"{file}#f2")[0]["digests"] == workdir.run_json("rebuild", "f2")[0]["digests"]
