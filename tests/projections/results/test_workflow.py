"""The SWEny shapes: trace, results and events of the worked example, with a retry, dry run and odd routes."""

from typing import Any

import msgspec
import pytest

from callboard.bus.effects import Failure
from callboard.bus.events import NodeWarning, Outline, OutlineEdge, ToolCall, ToolResult
from callboard.projections.projection import fold
from callboard.projections.results.workflow import WorkflowExecution, execution_event
from tests.support.event_logs import CAKE, Log, cake


def _shape(log: Log) -> dict[str, Any]:
    return msgspec.to_builtins(fold(WorkflowExecution(), log.events))


def test_the_worked_example() -> None:
    shape = _shape(cake())
    assert shape["trace"]["steps"] == [
        {"node": "bake", "status": "success", "iteration": 1},
        {"node": "taste", "status": "success", "iteration": 1},
        {"node": "bake", "status": "success", "iteration": 2},
        {"node": "taste", "status": "success", "iteration": 2},
        {"node": "serve", "status": "success", "iteration": 1},
    ]
    assert shape["trace"]["edges"] == [
        {"from": "bake", "to": "taste", "reason": "only path"},
        {"from": "taste", "to": "bake", "reason": "too raw"},
        {"from": "bake", "to": "taste", "reason": "only path"},
        {"from": "taste", "to": "serve", "reason": "done"},
    ]
    assert shape["trace"]["sources"] == {"nodes.bake.instruction": {"content": "Bake.", "kind": "inline"}}
    assert {node: result["data"] for node, result in shape["results"].items()} == {
        "bake": {"visit": 2},
        "taste": {"visit": 2},
        "serve": {"served": True},
    }


def test_a_retry_is_a_separate_step_of_the_same_iteration() -> None:
    steps = _shape(cake(retry=True))["trace"]["steps"]
    assert steps[2:4] == [
        {"node": "bake", "status": "failed", "iteration": 2, "retryAttempt": 0},
        {"node": "bake", "status": "success", "iteration": 2, "retryAttempt": 1},
    ]
    assert [step for step in steps if "retryAttempt" in step] == steps[2:4]


def test_a_dry_run_ends_without_an_edge() -> None:
    log = Log().started(CAKE)
    log.enter("bake")
    log.node_result("bake", {})
    log.route("bake", "taste", "only path", 0)
    log.enter("taste")
    log.node_result("taste", {})
    log.route("taste", "(end)", "dry run", None)
    trace = _shape(log.ended())["trace"]
    assert [step["node"] for step in trace["steps"]] == ["bake", "taste"]
    assert trace["edges"] == [{"from": "bake", "to": "taste", "reason": "only path"}]


@pytest.mark.parametrize(
    ("edge", "reason"), [(0, "first"), (1, "second"), ("default", "only path"), (None, "first"), (7, "first")]
)
def test_parallel_edges_are_distinguished_by_index_or_default(edge: int | str | None, reason: str) -> None:
    outline = Outline(edges=[OutlineEdge("a", "b", "first"), OutlineEdge("a", "b", "second"), OutlineEdge("a", "b")])
    log = Log().started(outline)
    log.route("a", "b", "None of the above / default path", edge)
    assert _shape(log)["trace"]["edges"] == [{"from": "a", "to": "b", "reason": reason}]


def test_a_node_without_a_result_has_an_empty_one() -> None:
    log = Log().started()
    log.enter("bake")
    log.exit("bake", outcome="failed")
    log.enter("taste")
    log.exit("taste", outcome="skipped")
    assert _shape(log)["results"] == {
        "bake": {"status": "failed", "data": {"error": "bake broke"}, "toolCalls": []},
        "taste": {"status": "skipped", "data": {}, "toolCalls": []},
    }


def test_the_event_stream_of_the_worked_example() -> None:
    stream = [shape for event in cake(retry=True).events if (shape := execution_event(event))]
    assert [_brief(shape) for shape in stream] == [
        "workflow:start",
        "sources:resolved",
        *("node:enter bake", "node:exit bake", "route bake→taste only path"),
        *("node:enter taste", "node:exit taste", "route taste→bake too raw"),
        *("node:enter bake", "node:retry bake", "node:exit bake", "route bake→taste only path"),
        *("node:enter taste", "node:exit taste", "route taste→serve done"),
        *("node:enter serve", "tool:call serve", "tool:result serve", "node:exit serve"),
        "workflow:end",
    ]
    by_type = {shape["type"]: shape for shape in stream}
    assert by_type["workflow:start"] == {"type": "workflow:start", "workflow": "cake"}
    assert by_type["node:enter"] == {"type": "node:enter", "node": "serve", "instruction": "Do serve."}
    assert by_type["tool:call"] == {
        "type": "tool:call",
        "node": "serve",
        "tool": "search",
        "input": {"q": "secret input"},
    }
    assert by_type["tool:result"]["output"] == {"plates": 2}
    assert by_type["node:retry"] == {
        "type": "node:retry",
        "node": "bake",
        "attempt": 1,
        "reason": "golden (value): pale",
        "preamble": "Fix and try again.",
    }
    assert by_type["node:exit"]["result"]["status"] == "success"
    assert by_type["workflow:end"]["results"] == {"serve": {"status": "success"}}


def _brief(shape: dict[str, Any]) -> str:
    if shape["type"] == "route":
        return f"route {shape['from']}→{shape['to']} {shape['reason']}"
    return f"{shape['type']} {shape.get('node', '')}".strip()


def test_failed_tools_and_warnings_are_in_the_event_stream() -> None:
    log = Log()
    log.add(ToolCall("a", "t"), "a", 1, 1, "tool.0.0")
    failed = log.add(ToolResult("a", "t", error=Failure("tool.failed", "rate limited")), "a", 1, 1, "tool.0.0")
    warned = log.add(NodeWarning("a", "missing", "declared keys are missing", ["x"]), "a", 1, 1)
    assert execution_event(failed) == {
        "type": "tool:result",
        "node": "a",
        "tool": "t",
        "output": {"error": "rate limited"},
    }
    assert execution_event(warned) == {
        "type": "node:warning",
        "node": "a",
        "reason": "declared keys are missing",
        "fields": ["x"],
    }
