"""The engine of graphs: order, inputs, outputs, conversions, fan-out, retries, timeouts, failures and cost."""

import json
from typing import Any

import anyio
import pytest

from callboard.actors.carrier import Job
from callboard.bus import events as ev
from callboard.bus.paths import activation_id
from tests.support.graphs import Performance, answers, condition, fails, flow, graph, node, perform, step, webhook

BODY = {"body": {"n": 2}}

WEBHOOK_OUTPUT: dict[str, Any] = {
    "headers": {},
    "body": None,
    "query_params": {},
    "method": "",
    "path": "",
    "timestamp": "",
    "client_ip": "",
}
"""The members of the output of a webhook."""


def fetch(id: str, **configurations: Any) -> dict[str, Any]:
    """A node with an effect."""
    return node(id, "ACTION", "RUN_CODE", **{"code": f"lambda value: {id!r}", **configurations})


def return_value(value: Any) -> Any:
    """Make a sandbox that returns a value for every input."""

    async def carry(_job: Job, request: Any) -> Any:
        return {"results": [{"value": value} for _ in request["inputs"]]}

    return carry


async def return_inputs(_job: Job, request: Any) -> Any:
    """Perform functions that return their inputs."""
    return {"results": [{"value": value} for value in request["inputs"]]}


# -- order and readiness -----------------------------------------------------------------------------------------------


def test_the_end_of_a_run_has_its_output_and_results() -> None:
    written = graph([webhook(), condition("i", "$json.body.n > 1")], "t -> i")
    done = perform(written, {"body": {"n": 2}, "method": "POST"}, user_id="u")
    data = {**WEBHOOK_OUTPUT, "body": {"n": 2}, "method": "POST"}
    assert done.end.output == {"true": {"data": data, "condition_result": True}, "false": None}
    assert done.results["status"] == "SUCCESS"
    assert done.sequence == ["t", "i"]
    statuses = {name: one["status"] for name, one in done.results["node_executions"].items()}
    assert statuses == {"t": "COMPLETED", "i": "COMPLETED"}
    assert done.results["node_runs"] == {}
    assert done.results["error"] is None


def make_steps(*names: str) -> list[dict[str, Any]]:
    return [webhook(), *(step(name) for name in names)]


def test_nodes_run_first_in_first_out() -> None:
    done = perform(graph(make_steps("a", "b", "c", "d"), "t -> a", "t -> b", "a -> c", "b -> d"), BODY)
    assert done.sequence == ["t", "a", "b", "c", "d"]


def test_successors_are_queued_in_the_order_of_their_connections() -> None:
    done = perform(graph(make_steps("a", "b", "c"), "t -> c", "t -> a", "t -> b"), BODY)
    assert done.sequence == ["t", "c", "a", "b"]


def test_a_join_waits_for_all_its_inputs_and_runs_once() -> None:
    done = perform(graph(make_steps("a", "b", "j"), "t -> j", "t -> a", "a -> b", "b -> j"), BODY)
    assert done.sequence == ["t", "a", "b", "j"]
    assert len(done.took("j")) == 2


def test_a_join_after_a_condition_runs_with_the_selected_branch() -> None:
    nodes = [webhook(), condition("i", "$json.body.n > 1"), step("yes"), step("no"), step("j")]
    done = perform(graph(nodes, "t -> i", "i.true -> yes", "i.false -> no", "yes -> j", "no -> j"), BODY)
    assert done.sequence == ["t", "i", "yes", "j"]
    assert done.took("j")["condition_result"] is True
    assert (done.record("no")["status"], done.record("no")["start_time"]) == ("PENDING", None)


def test_a_join_does_not_wait_for_a_long_branch_that_was_not_selected() -> None:
    nodes = [webhook(), condition("i", "false"), *(step(name) for name in ("a", "b", "c", "j"))]
    done = perform(graph(nodes, "t -> i", "t -> j", "i.true -> a", "a -> b", "b -> c", "c -> j"), BODY)
    assert done.sequence == ["t", "i", "j"]


def test_a_join_below_a_trigger_that_is_not_listed_does_not_wait_for_it() -> None:
    nodes = [webhook("t"), webhook("u"), step("a"), step("j")]
    done = perform(graph(nodes, "t -> j", "u -> a", "a -> j", triggers=["t"]), BODY)
    assert done.sequence == ["t", "j"]
    assert done.record("u")["status"] == "PENDING"


def test_triggers_run_in_the_order_of_their_list() -> None:
    done = perform(graph([webhook("t"), webhook("u"), step("a")], "t -> a", "u -> a", triggers=["u", "t"]), BODY)
    assert done.sequence == ["u", "t", "a"]


def test_a_graph_without_triggers_begins_with_all_nodes_without_predecessors() -> None:
    done = perform(graph(make_steps("a", "b"), "t -> b", triggers=[]), BODY)
    assert done.sequence == ["t", "a", "b"]
    assert done.record("a")["input_data"] == {}


def test_a_run_from_a_node_does_not_run_its_predecessors() -> None:
    written = graph(make_steps("a", "b", "j"), "t -> a", "t -> b", "a -> j", "b -> j")
    done = perform(written, {"n": 7}, start_from_node="b")
    assert done.sequence == ["b", "j"]
    assert done.record("b")["input_data"] == {"result": {"n": 7}}
    assert done.record("t")["status"] == done.record("a")["status"] == "PENDING"


def test_a_node_has_the_activation_id_of_its_path() -> None:
    done = perform(graph(make_steps("a"), "t -> a"), BODY)
    assert done.record("a")["activation_id"] == activation_id("r1", "a", 1)
    assert done.record("a")["parent_activation_id"] is None


# -- inputs and outputs ------------------------------------------------------------------------------------------------


def test_several_inputs_arrive_as_a_list_and_one_input_as_itself() -> None:
    nodes = [webhook(), *(fetch(name) for name in ("a", "b", "c")), step("one"), step("all")]
    wires = ["t -> a", "t -> b", "t -> c", "c -> all", "b -> all", "a -> all", "a -> one"]
    numbers = iter(range(1, 4))

    async def carry(_job: Job, _request: Any) -> Any:
        return {"results": [{"value": [next(numbers)]}]}

    done = perform(graph(nodes, *wires), BODY, kinds={"code": carry})
    assert done.took("one") == [1]
    assert done.took("all") == [[1], [2], [3]]


def test_a_node_puts_out_only_declared_members() -> None:
    own = node("m", "MEMORY", "KEY_VALUE_STORE", storage_backend="memory")
    answer = {"value": {"x": 1}, "success": True, "odd": 1}
    done = perform(graph([*make_steps("a"), own], "t -> m", "m -> a"), BODY, kinds={"memory": answers(answer)})
    assert "odd" not in done.took("a")
    assert done.took("a")["value"] == {"x": 1}


def test_a_trigger_passes_on_its_input_with_defaults() -> None:
    done = perform(graph(make_steps("a"), "t -> a"), {"body": {"n": 1}, "extra": True, "method": 5})
    assert done.took("a") == {**WEBHOOK_OUTPUT, "extra": True, "body": {"n": 1}, "method": "5"}


def test_a_node_may_declare_its_own_output() -> None:
    own = step("a") | {"output_params": {"body": None, "extra": {"type": "integer", "default": 3}, "plain": "x"}}
    done = perform(graph([webhook(), own], "t -> a"), BODY)
    assert done.out("a") == {"body": {"n": 2}, "extra": 3, "plain": "x"}


@pytest.mark.parametrize("value", [[1, 2], "text", 3, True, None])
def test_lists_and_scalars_are_passed_on_unchanged(value: Any) -> None:
    own = fetch("a") | {"output_params": {"x": 1}}
    done = perform(graph([webhook(), own, step("b")], "t -> a", "a -> b"), BODY, kinds={"code": return_value(value)})
    assert done.out("a") == value
    assert done.sequence == (["t", "a"] if value is None else ["t", "a", "b"])


def test_a_node_without_the_port_result_delivers_all_its_ports() -> None:
    done = perform(graph([webhook(), condition("i", "true"), step("a")], "t -> i", "i -> a"), BODY)
    assert set(done.took("a")) == {"true", "false"}
    assert done.took("a")["false"] is None


# -- conversion functions ----------------------------------------------------------------------------------------------


def test_a_conversion_function_gets_the_value_by_several_names() -> None:
    written = graph(make_steps("a", "b"), "t -> a | def convert(input_data): return input_data")
    done = perform(written, BODY, kinds={"code": return_inputs})
    [(_kind, request)] = done.harness.asked
    assert (request["language"], request["function"], request["wrap"]) == ("python", "convert", True)
    [given] = request["inputs"]
    assert given["body"] == {"n": 2}
    assert given["value"]["body"] == given["output"]["body"] == given["data"]["result"]["body"] == {"n": 2}
    assert done.took("a")["body"] == {"n": 2}


def test_the_result_of_a_conversion_is_wrapped_unless_it_is_an_object() -> None:
    written = graph(make_steps("a"), "t -> a | lambda d: d['body']['n']")
    done = perform(written, BODY, kinds={"code": return_value(2)})
    assert done.took("a") == {"converted_data": 2}
    assert done.harness.asked[0][1]["function"] is None


@pytest.mark.parametrize(
    "carry", [fails("code.timeout"), answers({"results": [{"error": "no"}]}), answers({"results": []}), answers(None)]
)
def test_a_conversion_that_fails_passes_the_value_on_with_a_warning(carry: Any) -> None:
    done = perform(graph(make_steps("a"), "t -> a | def f(x): return 1/0"), BODY, kinds={"code": carry})
    assert done.sequence == ["t", "a"]
    assert done.took("a")["body"] == {"n": 2}
    assert [one.code for one in done.of_type("node.warning")] == ["graph.conversion_failed"]


def test_values_are_not_converted_without_a_sandbox() -> None:
    assert perform(graph(make_steps("a"), "t -> a | lambda x: x"), BODY).took("a")["body"] == {"n": 2}


def test_a_branch_that_was_not_selected_converts_nothing() -> None:
    nodes = [webhook(), condition("i", "false"), step("a")]
    done = perform(graph(nodes, "t -> i", "i.true -> a | lambda x: x"), BODY, kinds={"code": return_inputs})
    assert done.harness.asked == []


# -- fan-out -----------------------------------------------------------------------------------------------------------


def each(id: str = "each") -> dict[str, Any]:
    return flow(id, "FOR_EACH")


def fan_out(items: Any, *more: dict[str, Any], **names: Any) -> Performance:
    nodes = [each(), step("body"), step("after"), *more]
    return perform(graph(nodes, "each.iteration -> body", "body -> after", triggers=[]), items, **names)


def test_a_list_on_iteration_runs_the_successor_once_for_each_item() -> None:
    done = fan_out([1, 2, 3], start_from_node="each")
    assert done.sequence == ["each", "body", "body", "body", "after"]
    assert [run["input_data"] for run in done.runs("body")] == [{"result": 1}, {"result": 2}, {"result": 3}]
    assert done.took("after") == [1, 2, 3]
    assert done.record("body")["output_data"] == {"result": 3}
    assert done.record("body")["execution_details"]["metrics"] == {"runs": 3}
    assert set(done.results["node_runs"]) == {"body"}


def test_runs_below_a_fan_out_have_their_own_activations() -> None:
    done = fan_out([1, 2], start_from_node="each")
    ids = [run["activation_id"] for run in done.runs("body")]
    assert ids == [activation_id("r1", f"each[{i}]/body", 1) for i in range(2)]
    assert {run["parent_activation_id"] for run in done.runs("body")} == {activation_id("r1", "each", 1)}


def test_an_empty_list_on_iteration_runs_nothing() -> None:
    done = fan_out([], start_from_node="each")
    assert done.sequence == ["each"]
    assert done.record("after")["status"] == "PENDING"


def test_the_output_for_one_item_arrives_as_itself() -> None:
    assert fan_out([5], start_from_node="each").took("after") == 5


def test_a_node_without_fan_out_delivers_its_result_once() -> None:
    nodes = [fetch("a") | {"output_params": {}}, step("body")]
    done = perform(graph(nodes, "a.result -> body", triggers=[]), kinds={"code": return_value({"x": 1})})
    assert done.sequence == ["a", "body"]


def test_nested_fan_out_multiplies() -> None:
    nodes = [each("outer"), each("inner"), step("body"), step("after"), step("beside")]
    wires = ["outer.iteration -> inner", "inner.iteration -> body", "body -> after", "inner -> beside"]
    done = perform(graph(nodes, *wires, triggers=[]), [[1, 2], [3]], start_from_node="outer")
    assert done.sequence == ["outer", "inner", "inner", "body", "body", "body", "beside", "after"]
    assert done.took("after") == [1, 2, 3]
    assert done.took("beside") == [[1, 2], [3]]
    assert [run["activation_id"] for run in done.runs("body")] == [
        activation_id("r1", path, 1)
        for path in ("outer[0]/inner[0]/body", "outer[0]/inner[1]/body", "outer[1]/inner[0]/body")
    ]
    assert done.runs("body")[2]["parent_activation_id"] == activation_id("r1", "outer[1]/inner", 1)


def test_a_join_after_a_fan_out_waits_for_all_its_runs() -> None:
    nodes = [each(), step("body"), step("beside"), step("j")]
    wires = ["each.iteration -> body", "each -> beside", "beside -> j", "body -> j"]
    done = perform(graph(nodes, *wires, triggers=[]), [1, 2], start_from_node="each")
    assert done.sequence == ["each", "body", "body", "beside", "j"]
    assert done.took("j") == [1, 2, [1, 2]]


def test_a_conversion_function_is_applied_to_each_item_in_one_effect() -> None:
    nodes = [each(), step("body")]
    written = graph(nodes, "each.iteration -> body | lambda x: {'twice': x}", triggers=[])
    done = perform(written, [1, 2], kinds={"code": return_inputs}, start_from_node="each")
    assert [run["input_data"]["result"] for run in done.runs("body")] == [{"converted_data": 1}, {"converted_data": 2}]
    assert len(done.harness.asked) == 1


def test_a_failing_run_stops_everything() -> None:
    nodes = [each(), fetch("body"), step("after")]
    written = graph(nodes, "each.iteration -> body", "body -> after", triggers=[])
    carry = answers({"results": [{"value": 1}]}, {"results": [{"value": {"success": False, "error_message": "no"}}]})
    done = perform(written, [1, 2, 3], kinds={"code": carry}, start_from_node="each")
    assert done.sequence == ["each", "body"]
    assert [run["status"] for run in done.runs("body")] == ["COMPLETED", "FAILED"]
    assert done.record("after")["status"] == "PENDING"


def test_a_fan_out_runs_two_thousand_items() -> None:
    done = fan_out(list(range(2_000)), start_from_node="each", park_linger_s=1.0)
    assert len(done.sequence) == 2_002
    assert done.took("after") == list(range(2_000))


# -- retries and timeouts ----------------------------------------------------------------------------------------------


def test_a_node_that_fails_is_tried_again_after_growing_delays() -> None:
    carry = answers({"results": [{"error": "one"}]}, {"results": [{"error": "two"}]}, {"results": [{"value": 3}]})
    own = fetch("a", retry_attempts=2, retry_backoff_seconds=2, retry_backoff_factor=3)
    done = perform(graph([webhook(), own], "t -> a"), BODY, kinds={"code": carry})
    assert done.out("a") == 3
    assert [(one.attempt, one.delay) for one in done.of_type("node.retry")] == [(1, 2), (2, 6)]
    assert (done.record("a")["retry_count"], done.record("a")["duration_ms"]) == (2, 8_000)


def test_jitter_adds_to_the_delay_of_a_retry() -> None:
    carry = answers({"results": [{"error": "one"}]}, {"results": [{"value": 3}]})
    own = fetch("a", retry_attempts=1, retry_backoff_seconds=1, retry_jitter_seconds=4)
    done = perform(graph([webhook(), own], "t -> a"), BODY, kinds={"code": carry})
    [retry] = done.of_type("node.retry")
    assert 1 <= retry.delay < 5


def test_the_failure_of_a_node_without_retries_ends_the_run() -> None:
    done = perform(graph([webhook(), fetch("a"), step("b")], "t -> a", "a -> b"), BODY, kinds={"code": fails()})
    assert done.end.status == "failed"
    assert done.results["status"] == "ERROR"
    assert done.sequence == ["t"]
    record, error = done.record("a"), done.results["error"]
    assert record["status"] == "FAILED"
    assert (record["error"]["error_code"], record["error"]["error_message"]) == ("NODE_EXEC_ERROR", "http.down!")
    assert (record["error"]["is_retryable"], error["is_retryable"]) == (True, False)
    assert (error["error_code"], error["error_message"]) == ("EXECUTION_FAILED", "Node a failed: http.down!")
    assert (error["error_node_id"], error["stack_trace"]) == ("a", None)
    assert done.record("b")["status"] == "PENDING"


def test_a_node_fails_after_its_last_retry() -> None:
    own = fetch("a", retry_attempts=2)
    done = perform(graph([webhook(), own], "t -> a"), BODY, kinds={"code": fails()})
    assert len(done.harness.asked) == 3
    assert done.record("a")["retry_count"] == 2
    assert done.record("a")["status"] == "FAILED"


def test_a_node_that_returns_success_false_fails_without_retry_and_keeps_its_output() -> None:
    own = fetch("a", retry_attempts=3) | {"output_params": {"success": False, "error_message": ""}}
    carry = return_value({"success": False, "error_message": "full", "more": 1})
    done = perform(graph([webhook(), own, step("b")], "t -> a", "a -> b"), BODY, kinds={"code": carry})
    assert len(done.harness.asked) == 1
    record = done.record("a")
    assert record["status"] == "FAILED"
    assert record["output_data"] == {"result": {"success": False, "error_message": "full"}}
    assert (record["error"]["error_code"], record["error"]["error_message"]) == ("NODE_EXECUTION_FAILED", "full")
    assert done.results["error"]["error_message"] == "Node a failed: full"
    assert done.sequence == ["t"]


def test_a_missing_success_does_not_fail_a_node() -> None:
    own = fetch("a") | {"output_params": {"success": False}}
    done = perform(graph([webhook(), own], "t -> a"), BODY, kinds={"code": return_value({"x": 1})})
    assert done.results["status"] == "SUCCESS"
    assert done.out("a") == {"success": False}


async def hang(_job: Job, _request: Any) -> Any:
    await anyio.sleep(3600)


@pytest.mark.parametrize("bound", [{"timeout_seconds": 5}, {"timeout": 5}, {"timeout_seconds": 5, "timeout": 999}])
def test_a_timeout_ends_each_attempt(bound: dict[str, Any]) -> None:
    own = fetch("a", retry_attempts=1, **bound)
    done = perform(graph([webhook(), own], "t -> a"), BODY, kinds={"code": hang})
    record = done.record("a")
    assert (record["status"], record["duration_ms"]) == ("FAILED", 10_000)
    assert record["error"]["error_message"] == "no result within 5 seconds"


def test_a_failure_drops_the_queued_nodes() -> None:
    nodes = [webhook(), fetch("a"), step("b")]
    done = perform(graph(nodes, "t -> a", "t -> b"), BODY, kinds={"code": fails()})
    assert done.sequence == ["t"]
    assert done.record("b")["status"] == "PENDING"


# -- parallel branches -------------------------------------------------------------------------------------------------


def answer_after(seconds: dict[str, float]) -> Any:
    async def carry(job: Job, _request: Any) -> Any:
        await anyio.sleep(seconds[job.event.path])
        return {"results": [{"value": job.event.path}]}

    return carry


DIAMOND = [webhook(), *(fetch(name) for name in ("a", "b", "a2", "b2")), step("j")]
WIRES = ["t -> a", "t -> b", "a -> a2", "b -> b2", "b2 -> j", "a2 -> j"]


def test_parallel_branches_overlap_and_have_the_sequence_of_serial_ones() -> None:
    took = {"a": 10.0, "b": 1.0, "a2": 1.0, "b2": 1.0}
    alone = perform(graph(DIAMOND, *WIRES), BODY, kinds={"code": answer_after(took)})
    beside = perform(graph(DIAMOND, *WIRES), BODY, kinds={"code": answer_after(took)}, parallel=True)
    assert alone.sequence == beside.sequence == ["t", "a", "b", "a2", "b2", "j"]
    assert alone.took("j") == beside.took("j") == ["a2", "b2"]
    assert alone.results["duration_ms"] == 13_000
    assert beside.results["duration_ms"] == 11_000


def test_a_failure_stops_parallel_branches() -> None:
    async def carry(job: Job, _request: Any) -> Any:
        await anyio.sleep(1 if job.event.path == "b" else 10)
        return {"results": [{"error": "no"}]}

    done = perform(graph(DIAMOND, *WIRES), BODY, kinds={"code": carry}, parallel=True)
    assert (done.record("a")["status"], done.record("b")["status"]) == ("FAILED", "FAILED")
    assert done.record("a")["error"]["error_code"] == "CANCELED"
    assert done.results["error"]["error_node_id"] == "b"
    assert done.results["duration_ms"] == 1_000


# -- results, routes and warnings --------------------------------------------------------------------------------------


def test_the_credits_of_all_runs_are_summed() -> None:
    nodes = [each(), step("body", credit_cost=3), step("after", credit_cost="2")]
    written = graph(nodes, "each.iteration -> body", "body -> after", triggers=[])
    done = perform(written, [1, 2], start_from_node="each")
    assert done.results["credits_consumed"] == 8
    assert done.record("body")["credits_consumed"] == 3


def test_a_cancellation_ends_the_node_that_waits() -> None:
    nodes = [webhook(), flow("d", "DELAY", duration_seconds=3600), step("b")]
    done = perform(graph(nodes, "t -> d", "d -> b"), BODY, commands=[("cancel", {"reason": "enough"})])
    assert done.end.status == "cancelled"
    assert done.results["status"] == "CANCELED"
    assert done.sequence == ["t"]
    assert done.record("d")["error"]["error_code"] == "CANCELED"


def test_the_results_name_the_trigger() -> None:
    trigger = {"trigger_type": "CRON", "external_request_id": "x", "timestamp": 5}
    done = perform(graph(make_steps()), {"a": 1}, trigger=trigger, user_id="ada")
    assert done.results["trigger_info"] == {
        "trigger_type": "CRON",
        "trigger_data": {"a": 1},
        "user_id": "ada",
        "external_request_id": "x",
        "timestamp": 5,
    }


def test_a_route_is_logged_for_each_connection_that_delivers() -> None:
    nodes = [webhook(), condition("i", "true"), step("a"), step("b"), each(), step("body")]
    wires = ["t -> i", "i.true -> a", "i.false -> b", "a -> each", "each.iteration -> body"]
    done = perform(graph(nodes, *wires), BODY)
    routes = [(one.source, one.target, one.edge, one.output_key, one.count) for one in done.of_type("route")]
    assert routes == [
        ("t", "i", 0, "result", None),
        ("i", "a", 1, "true", None),
        ("a", "each", 3, "result", None),
        ("each", "body", 4, "iteration", 1),
    ]


def test_a_breakpoint_pauses_before_a_node_that_reads_variables() -> None:
    nodes = [webhook(), condition("i", "variables.go")]
    done = perform(graph(nodes, "t -> i", variables={"go": False}), BODY, breakpoints=["i"])
    assert done.out("i", "false") is not None
    assert len(done.of_type("run.paused")) == 1


def test_nodes_of_unknown_types_pass_their_input_on() -> None:
    nodes = [webhook(), node("a", "ACTION", "TELEPORT"), node("b", "ODD", "X", anything=1), step("c")]
    done = perform(graph(nodes, "t -> a", "a -> b", "b -> c"), BODY)
    assert done.took("c")["body"] == {"n": 2}
    assert [(one.code, one.node) for one in done.of_type("node.warning")] == [
        ("graph.passed_through", "a"),
        ("graph.passed_through", "b"),
    ]


def test_a_long_run_of_pure_nodes_pauses_for_commands() -> None:
    names = [f"s{i}" for i in range(450)]
    wires = [f"{a} -> {b}" for a, b in zip(["t", *names], names, strict=False)]
    done = perform(graph(make_steps(*names), *wires), BODY)
    assert len(done.sequence) == 451
    timers = [event.key for event in done.events if event.type == ev.TimerSet.type]
    assert timers == ["#1.1!breath.1", "#1.1!breath.2"]


def test_the_results_are_valid_json() -> None:
    done = perform(graph(make_steps("a"), "t -> a"), BODY)
    assert json.loads(json.dumps(done.results)) == done.results
