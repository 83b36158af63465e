"""Graphs at the command line: node types, diagrams, runs, and problems."""

import json
from pathlib import Path

import pytest

from tests.support.cli_stage import Place
from tests.support.graphs import condition, graph, step, webhook


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "g.json").write_text(json.dumps(graph([webhook(), condition("i", "$json.body.n > 1")], "t -> i")))
    return Place(tmp_path)


def test_node_types_are_listed(place: Place) -> None:
    listed = place.here("graph", "nodes")
    assert listed.exit_code == 0
    assert "FLOW\n  IF LOOP MERGE FILTER SORT WAIT DELAY (SPLIT)" in listed.stdout
    output = json.loads(place.here("graph", "nodes", "flow.wait", "--json").stdout)
    assert output["configurations"]["check_interval_seconds"] == {
        "type": "number",
        "default": 5.0,
        "min": 0.1,
        "max": 300,
    }
    types = json.loads(place.here("graph", "nodes", "--json").stdout)["types"]
    assert len(types) == 8
    unknown = place.here("graph", "nodes", "FLOW.LOP")
    assert unknown.exit_code == 2
    assert "did you mean 'FLOW.LOOP'" in unknown.stderr


def test_a_graph_is_drawn_and_run(place: Place) -> None:
    drawn = place.here("diagram", "g.json")
    assert "n_t --> n_i" in drawn.stdout
    done = place.here("run", "g.json", "--input", '{"body": {"n": 2}}', "--stream")
    assert done.exit_code == 0, done.stderr
    end = json.loads(done.stdout.splitlines()[-1])
    assert end["payload"]["results"]["execution_sequence"] == ["t", "i"]
    assert end["payload"]["output"]["false"] is None


def test_a_graph_is_paused_shown_and_stepped_through(place: Place) -> None:
    nodes = [webhook(), step("a"), step("b"), condition("i", "variables.go")]
    written = graph(nodes, "t -> a", "a -> b", "b -> i", variables={"go": False})
    (place.folder / "g.json").write_text(json.dumps(written))
    with place.up():
        place.started("g.json", "--input", '{"body": {"n": 2}}', "--break", "a", "--break", "i", "--run-id", "s")
        assert place.here("watch", "s", "--until", "run.paused").exit_code == 0
        for at, path in (("a", "t"), ("b", "t → a"), ("i", "t → a → b")):
            wait_for_pause(place, "s", at)
            shown = place.here("show", "s").stdout
            for text in ("status      paused", f"path        {path}\n", f"  ok  {path[-1]}  "):
                assert text in shown
            assert place.here("step", "s", "--set", "go=true").exit_code == 0
        assert place.here("watch", "s").exit_code == 0
        assert place.told("show", "s")["output"]["false"] is None


def wait_for_pause(place: Place, run: str, node: str) -> None:
    """Wait until a run is paused at a node."""
    after = 0
    while True:
        seen = place.here("watch", run, "--json", "--after", str(after), "--until", "run.paused")
        *_, paused = [json.loads(line) for line in seen.stdout.splitlines()]
        if paused["payload"]["step"] == node:
            return
        after = paused["sequence"]


def test_problems_of_a_graph_are_reported(place: Place) -> None:
    broken = graph([webhook(), condition("i", "$json. >")], "t -> i", "i -> t")
    (place.folder / "g.json").write_text(json.dumps(broken, indent=1))
    output = place.here("validate", "g.json")
    assert output.exit_code == 1
    assert "EXPRESSION" in output.stdout + output.stderr
    assert "CYCLE" in output.stdout + output.stderr
