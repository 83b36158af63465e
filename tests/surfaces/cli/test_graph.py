"""Graphs at the command line: node types, diagrams, runs, and problems."""

import json
from pathlib import Path

import pytest

from tests.support.graphs import condition, graph, step, webhook
from tests.support.workdir import Workdir


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    (tmp_path / "g.json").write_text(json.dumps(graph([webhook(), condition("i", "$json.body.n > 1")], "t -> i")))
    return Workdir(tmp_path)


def test_node_types_are_listed(workdir: Workdir) -> None:
    listed = workdir.run("graph", "nodes")
    assert listed.exit_code == 0
    assert "FLOW\n  IF LOOP MERGE FILTER SORT WAIT DELAY (SPLIT)" in listed.stdout
    output = json.loads(workdir.run("graph", "nodes", "flow.wait", "--json").stdout)
    assert output["configurations"]["check_interval_seconds"] == {
        "type": "number",
        "default": 5.0,
        "min": 0.1,
        "max": 300,
    }
    types = json.loads(workdir.run("graph", "nodes", "--json").stdout)["types"]
    assert len(types) == 8
    unknown = workdir.run("graph", "nodes", "FLOW.LOP")
    assert unknown.exit_code == 2
    assert "did you mean 'FLOW.LOOP'" in unknown.stderr


def test_a_graph_is_drawn_and_run(workdir: Workdir) -> None:
    drawn = workdir.run("diagram", "g.json")
    assert "n_t --> n_i" in drawn.stdout
    done = workdir.run("run", "g.json", "--input", '{"body": {"n": 2}}', "--stream")
    assert done.exit_code == 0, done.stderr
    end = json.loads(done.stdout.splitlines()[-1])
    assert end["payload"]["results"]["execution_sequence"] == ["t", "i"]
    assert end["payload"]["output"]["false"] is None


def test_a_graph_is_paused_shown_and_stepped_through(workdir: Workdir) -> None:
    nodes = [webhook(), step("a"), step("b"), condition("i", "variables.go")]
    written = graph(nodes, "t -> a", "a -> b", "b -> i", variables={"go": False})
    (workdir.folder / "g.json").write_text(json.dumps(written))
    with workdir.up():
        workdir.start_run("g.json", "--input", '{"body": {"n": 2}}', "--break", "a", "--break", "i", "--run-id", "s")
        assert workdir.run("watch", "s", "--until", "run.paused").exit_code == 0
        for at, path in (("a", "t"), ("b", "t → a"), ("i", "t → a → b")):
            wait_for_pause(workdir, "s", at)
            shown = workdir.run("show", "s").stdout
            for text in ("status      paused", f"path        {path}\n", f"  ok  {path[-1]}  "):
                assert text in shown
            assert workdir.run("step", "s", "--set", "go=true").exit_code == 0
        assert workdir.run("watch", "s").exit_code == 0
        assert workdir.run_json("show", "s")["output"]["false"] is None


def wait_for_pause(workdir: Workdir, run: str, node: str) -> None:
    """Wait until a run is paused at a node."""
    after = 0
    while True:
        seen = workdir.run("watch", run, "--json", "--after", str(after), "--until", "run.paused")
        *_, paused = [json.loads(line) for line in seen.stdout.splitlines()]
        if paused["payload"]["step"] == node:
            return
        after = paused["sequence"]


def test_problems_of_a_graph_are_reported(workdir: Workdir) -> None:
    broken = graph([webhook(), condition("i", "$json. >")], "t -> i", "i -> t")
    (workdir.folder / "g.json").write_text(json.dumps(broken, indent=1))
    output = workdir.run("validate", "g.json")
    assert output.exit_code == 1
    assert "EXPRESSION" in output.stdout + output.stderr
    assert "CYCLE" in output.stdout + output.stderr
