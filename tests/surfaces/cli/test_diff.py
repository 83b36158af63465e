"""Differences between two runs: of values, of logs, and at the command line."""

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import (
    ChildEnd,
    ChildStart,
    DefinitionRef,
    Environment,
    Event,
    ModelCall,
    ModelResult,
    NodeEnter,
    NodeExit,
    Outline,
    OutlineEdge,
    OutlineNode,
    Payload,
    Route,
    RunAccepted,
    RunClaimed,
    RunEnd,
    RunFailed,
    RunStart,
    SourcesResolved,
    encode_payload,
    payload_of,
)
from callboard.bus.prices import Cost, Price, Prices
from callboard.projections.comparison.diff import Pair, Parting, compare_logs
from callboard.projections.comparison.json_differences import Difference, differences
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.diff_text import LINES_MAX, diff_text
from tests.support.workdir import INPUT, SCRIPT, TRIAGE, Workdir, plain
from tests.surfaces.cli.test_text import events

# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": True}, [Difference("/a", 1, True)]),
        ([0, False], [False, 0], [Difference("/0", 0, False), Difference("/1", False, 0)]),
        ({"a": None}, {}, [Difference("/a", left=None)]),
        ({}, {"a/b": 1, "~": 2}, [Difference("/a~1b", right=1), Difference("/~0", right=2)]),
        ([1, 2, 3], [1, 9, 2, 3], [Difference("/1", right=9)]),
        ([1, 2, 3], [1, 3], [Difference("/1", left=2)]),
        ([1, {"a": [1]}], [1, {"a": [2]}], [Difference("/1/a/0", 1, 2)]),
        ([1, 1], [1, 1, 1], [Difference("/2", right=1)]),
        ("x", ["x"], [Difference("", "x", ["x"])]),
    ],
)
def test_values_differ_at_pointers(left: Any, right: Any, found: list[Difference]) -> None:
    assert [(type(d.left), type(d.right), d) for d in differences(left, right)] == [
        (type(d.left), type(d.right), d) for d in found
    ]
    turned = [Difference(d.pointer, d.right, d.left) for d in found]
    assert differences(right, left) == turned


def test_an_absent_member_is_unset_and_not_null() -> None:
    (found,) = differences({"a": None}, {})
    assert found.right is UNSET
    assert msgspec.to_builtins(found) == {"pointer": "/a", "left": None}


# -- logs -------------------------------------------------------------------------------------------------------------

OUTLINE = Outline(
    [OutlineNode("a", "A"), OutlineNode("b", "B")], [OutlineEdge("a", "a", "bad"), OutlineEdge("a", "b", "good")]
)
REF = DefinitionRef("workflow", "1" * 64, "id: x\nnodes:\n  a: one\n", "x")


def run_events(
    *told: tuple[Payload, str, str],
    ref: DefinitionRef = REF,
    outline: Outline = OUTLINE,
    given: Any = None,
    rules: str = "be brief",
    end: RunEnd | None = None,
) -> list[Event]:
    source = {"content": rules, "kind": "file", "origin": "./rules.md", "hash": f"h-{len(rules)}"}
    return events(
        (RunAccepted(ref, {"input": given, "run_id": "r1", "model": "scripted"}, outline), "", ""),
        (RunClaimed("w1", 1), "", ""),
        (RunStart("x", given, environment=Environment(offline=False)), "", ""),
        (SourcesResolved({"workflow.rules[0]": source}), "", ""),
        *told,
        (end or RunEnd("completed", {"done": True}), "", ""),
    )


def visit_events(
    node: str, data: Any = None, to: str = "", reason: str = "", tokens: int = 0
) -> list[tuple[Payload, str, str]]:
    output: list[tuple[Payload, str, str]] = [
        (NodeEnter(node=node), node, ""),
        (ModelCall("turn", "scripted", "d"), node, f"{node}#1.1!turn.1"),
        (ModelResult(text="well", usage=Usage(tokens, tokens)), node, f"{node}#1.1!turn.1"),
        (NodeExit("ok", {"status": "success", "data": data}), node, ""),
    ]
    return [*output, (Route(node, to, reason), node, "")] if to else output


def repeat_visit(found: list[Event]) -> list[Event]:
    """The same events as a second visit."""
    return [msgspec.structs.replace(event, iteration=2) for event in found]


def test_runs_that_differ_in_measures_only_are_equal() -> None:
    found = compare_logs(
        run_events(*visit_events("a", 1, "b", tokens=5), *visit_events("b")),
        run_events(*visit_events("a", 1, "b", tokens=7), *visit_events("b")),
    )
    assert found.equal
    assert (found.measures.run.left.input_tokens, found.measures.run.right.input_tokens) == (5, 7)
    assert found.measures.executions["a"].left.duration_s == 1.5
    assert "equal" in diff_text(found)


def rehearsal_events(
    stand_in: str, default: str, model: str = "", *told: tuple[Payload, str, str], **start: Any
) -> list[Event]:
    """A run with a replacement of its models; ``model`` is the model of its turn, else the default one."""
    provider = stand_in or default.partition(":")[0]
    environment = Environment(default_model=default, stand_in=stand_in, models={} if stand_in else {"x": "x:1"})
    return events(
        (RunAccepted(DefinitionRef("workflow", "1", "", "x"), {"model": default, **start}, Outline()), "", ""),
        (RunStart("x", environment=environment), "", ""),
        (NodeEnter(node="a"), "a", ""),
        (ModelCall("turn", model or default, "d", provider=provider), "a", "a#1.1!turn.1"),
        (ModelResult(text="well"), "a", "a#1.1!turn.1"),
        (NodeExit("ok", "well"), "a", ""),
        (RunEnd("completed", "well"), "", ""),
    )


@pytest.mark.parametrize("named", ["", "anthropic:claude-1"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("", "anthropic:claude-2"), ("recorded", "recorded:r1")),
        (("scripted", "scripted"), ("recorded", "recorded:r1")),
        (("recorded", "recorded:r1"), ("recorded", "recorded:r2")),
    ],
)
def test_a_replacement_of_models_is_reported_once_and_makes_no_difference(
    left: tuple[str, str], right: tuple[str, str], named: str
) -> None:
    found = compare_logs(rehearsal_events(*left, named, script={"turns": {}}), rehearsal_events(*right, named))
    [output] = found.start
    assert output.pointer == "/environment/stand_in"
    assert output.right == right[1]
    assert (found.nodes, found.models, found.sight) == ([], {}, None)
    assert found.equal


def test_another_named_model_is_a_difference_of_a_rehearsal_too() -> None:
    found = compare_logs(rehearsal_events("", "a:1", "a:2"), rehearsal_events("recorded", "recorded:r1", "a:3"))
    assert set(found.models) == {"a:2", "a:3"}
    assert found.sight is not None
    assert not found.equal


def test_another_script_is_a_difference() -> None:
    found = compare_logs(
        rehearsal_events("scripted", "scripted", script={"a": 1}),
        rehearsal_events("scripted", "scripted", script={"a": 2}),
    )
    assert [one.pointer for one in found.start] == ["/script/a"]
    assert not found.equal


def test_costs_are_reported_and_make_no_difference() -> None:
    prices = Prices({"scripted": [Price(Decimal(1), Decimal(2))]})
    left, right = (
        run_events(*visit_events("a", 1, "b", tokens=tokens), *visit_events("b")) for tokens in (10_000, 20_000)
    )
    found = compare_logs(list(map(add_model, left)), list(map(add_model, right)), prices)
    assert found.equal
    assert (found.measures.run.left.cost, found.measures.run.right.cost) == (Cost(0.03), Cost(0.06))
    assert found.measures.executions["a"].right.cost == Cost(0.06)
    assert found.measures.executions["b"].right.cost is None
    assert "10000/10000  $0.0300" in plain(diff_text(found))


def add_model(event: Event) -> Event:
    """The event, with a model if it is the result of a turn."""
    payload = payload_of(event)
    if not isinstance(payload, ModelResult):
        return event
    return msgspec.structs.replace(event, payload=msgspec.Raw(encode_payload(replace(payload, model="scripted"))))


def test_ids_of_child_runs_make_no_difference() -> None:
    left, right = (
        run_events(
            (NodeEnter(node="a"), "a", ""),
            (ChildStart({"name": "inner"}, child), "a", "a#1.1!call"),
            (ChildEnd("completed"), "a", "a#1.1!call"),
            (NodeExit("ok"), "a", ""),
        )
        for child in ("child-1", "child-2")
    )
    assert compare_logs(left, right).equal


def test_a_changed_definition_lists_nodes_edges_and_lines() -> None:
    outline = Outline(
        [OutlineNode("a", "Other"), OutlineNode("c", "C")], [OutlineEdge("a", "a", "worse"), OutlineEdge("a", "c")]
    )
    ref = DefinitionRef("workflow", "2" * 64, "id: x\nnodes:\n  a: two\n", "x")
    change = compare_logs(run_events(), run_events(ref=ref, outline=outline)).definition
    assert change is not None
    assert [node.id for node in change.nodes_removed] == ["b"]
    assert [node.id for node in change.nodes_added] == ["c"]
    assert [(pair.left.name, pair.right.name) for pair in change.nodes_changed] == [("A", "Other")]
    assert [(edge.target, edge.when) for edge in change.edges_removed] == [("a", "bad"), ("b", "good")]
    assert [(edge.target, edge.when) for edge in change.edges_added] == [("a", "worse"), ("c", None)]
    assert change.text[1:] == [" nodes:", "-  a: one", "+  a: two"]


def test_differences_of_inputs_and_sources_are_reported() -> None:
    found = compare_logs(run_events(given={"x": 1}), run_events(given={"x": 2}, rules="be kind!!"))
    assert found.start == [Difference("/input/x", 1, 2)]
    (drift,) = found.sources
    assert (drift.field, drift.hash, drift.origin.left) == ("workflow.rules[0]", Pair("h-8", "h-9"), "./rules.md")
    assert drift.text[1:] == ["-be brief", "+be kind!!"]
    assert not found.equal
    assert found.definition is None


def test_paths_diverge_where_a_node_routed_differently() -> None:
    left = run_events(*visit_events("a", 1, "a", "bad"), *visit_events("a", 2, "b", "good"), *visit_events("b"))
    # The second visit of ``a`` is events 10 to 14.
    left[9:14] = repeat_visit(left[9:14])
    found = compare_logs(left, run_events(*visit_events("a", 1, "b", "good"), *visit_events("b")))
    assert found.path == Pair(["a", "a#2", "b"], ["a", "b"])
    assert found.parting == Parting("a", ["a"], ["b"], Pair(["bad"], ["good"]))
    assert found.visits == {"a": Pair(2, 1)}
    (gone,) = found.nodes
    assert (gone.path, gone.iteration, gone.outcome) == ("a", 2, Pair("ok", None))
    assert found.models == {"scripted": Pair(3, 2)}
    assert "They diverge after a: a (bad) on the left, b (good) on the right." in diff_text(found)


def test_paths_that_begin_differently_diverge_at_the_beginning() -> None:
    found = compare_logs(run_events(*visit_events("a")), run_events(*visit_events("b")))
    assert found.parting == Parting("", ["a"], ["b"], Pair([], []))


def test_results_outcomes_errors_and_status_differ() -> None:
    failure = Failure("model.overloaded", "later")
    failed: list[tuple[Payload, str, str]] = [
        (NodeEnter(node="a"), "a", ""),
        (NodeExit("failed", {"status": "failed", "data": {"n": 2}}, failure), "a", ""),
        (RunFailed(failure), "", ""),
    ]
    found = compare_logs(
        run_events(*visit_events("a", {"n": 1})), run_events(*failed, end=RunEnd("failed", error=failure))
    )
    (node,) = found.nodes
    assert node.outcome == Pair("ok", "failed")
    assert node.error == Pair(None, failure)
    assert node.result == [Difference("/status", "success", "failed"), Difference("/data/n", 1, 2)]
    assert node.effects == {"model scripted · turn": Pair(1, 0)}
    assert (found.status, found.error) == (Pair("completed", "failed"), Pair(None, failure))
    assert found.output == [Difference("", {"done": True}, None)]
    text = plain(diff_text(found))
    assert "~ a  ok → failed" in text
    assert "+ model.overloaded: later" in text


def test_only_the_text_is_cut() -> None:
    left, right = ({str(i): i + more for i in range(50)} for more in (0, 1))
    found = compare_logs(run_events(given=left), run_events(given=right))
    assert len(found.start) == 50
    lines = plain(diff_text(found)).splitlines()
    assert sum("/input/" in line for line in lines) == LINES_MAX
    assert any(f"… {50 - LINES_MAX} more differences (--json has all)" in line for line in lines)


def test_a_long_text_is_quoted_from_where_it_differs() -> None:
    found = compare_logs(run_events(given="same " * 60 + "left"), run_events(given="same " * 60 + "right"))
    assert "same left” → “…" in diff_text(found)


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Workdir:
    """A place with the equal runs ``one`` and ``same``, and the run ``other``."""
    workdir = Workdir(tmp_path_factory.mktemp("diff"))
    file = workdir.write_triage()
    script: dict[str, Any] = {
        **SCRIPT,
        "turns": {**SCRIPT["turns"], "gather": [{"data": {"found": 0}}]},
        "routes": {"gather": ["note"]},
    }
    workdir.write("flows/other.json", script)
    for run_id, given in (("one", "script.json"), ("same", "script.json"), ("other", "other.json")):
        if run_id == "other":
            workdir.write(file, TRIAGE.replace("Write it down.", "Write nothing down."))
        done = workdir.run("run", file, "--input", INPUT, "--script", f"flows/{given}", "--run-id", run_id)
        assert done.exit_code == exits.OK, done.output
    return workdir


def test_equal_runs_exit_with_0(workdir: Workdir) -> None:
    result = workdir.run("diff", "one", "same")
    assert result.exit_code == exits.OK
    assert result.stdout.startswith("one and same: equal\n")
    output = workdir.run_json("diff", "one", "same")
    assert (output["left"], output["right"], output["equal"], output["nodes"]) == ("one", "same", True, [])


def test_different_runs_exit_with_1(workdir: Workdir) -> None:
    result = workdir.run("diff", "one", "other")
    assert result.exit_code == exits.FAILED
    for line in (
        "    +  note: {name: Note, instruction: Write nothing down.}",
        "  - gather → investigate → note",
        "  + gather → note",
        "    ~ /data/found  3 → 0",
        "  - investigate  ok",
        "  ~ tool search: 1× → 0×",
    ):
        assert line in result.stdout.splitlines()
    output = json.loads(workdir.run("diff", "one", "other", "--json").stdout)
    assert output["parting"]["after"] == "gather"
    assert output["tools"] == {"search": {"left": 1, "right": 0}}


@pytest.mark.parametrize("runs", [("one", "nobody"), ("nobody", "one")])
def test_an_unknown_run_is_wrong_usage(workdir: Workdir, runs: tuple[str, str]) -> None:
    assert workdir.refusal("diff", *runs) == (exits.USAGE, "run.unknown")
    assert "there is no run 'nobody'" in workdir.run("diff", *runs).stderr
