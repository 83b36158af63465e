"""FLOW nodes: the outputs of each of their ports."""

from typing import Any

import pytest

from callboard.actors.carrier import Job
from callboard.testing.virtual_time import BEGINNING
from tests.support.graphs import (
    answers,
    check_deaths,
    condition,
    flow,
    graph,
    node,
    perform,
    perform_node,
    step,
    webhook,
    where,
)
from tests.support.simulation import World


def find_output(own: dict[str, Any], input: Any, port: str = "result", **names: Any) -> Any:
    return perform_node(own, input, **names).out(own["id"], port)


def find_ports(own: dict[str, Any], input: Any, **names: Any) -> set[str]:
    found = perform_node(own, input, **names).record(own["id"])["output_data"]
    return {name for name, value in found.items() if value is not None}


# -- IF and SPLIT ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "port"), [("$json.n > 1", "true"), ("$json.n > 2", "false"), ("", "false"), ("!$json.x", "true")]
)
def test_if_puts_its_data_on_the_port_of_its_condition(expression: str, port: str) -> None:
    own = condition("i", expression)
    assert find_ports(own, {"n": 2}) == {port}
    assert find_output(own, {"n": 2}, port) == {"data": {"n": 2}, "condition_result": port == "true"}
    assert perform_node(own, {"n": 2}).record("i")["execution_details"] == {
        "condition_result": port == "true",
        "branch_taken": port,
    }


def test_if_reads_trigger_nodes_configuration_and_input() -> None:
    text = '$trigger.type == "WEBHOOK" && $node["t"].result.body.n == 2 && $config.threshold < $input.result.body.n'
    own: dict[str, Any] = {**condition("i", text), "name": "check"}
    own["configurations"]["threshold"] = 1
    done = perform(
        graph([webhook(), own, condition("j", '$node["check"].true.condition_result')], "t -> i", "i -> j"),
        {"body": {"n": 2}},
    )
    assert done.out("j", "true") is not None


def test_split_delivers_to_each_port_whose_predicate_holds() -> None:
    own = flow("s", "SPLIT", predicate_paths={"big": "n > 10", "named": "$json.name", "odd": "gone"})
    assert find_ports(own, {"n": 11, "name": "x"}) == {"big", "named"}
    assert find_output(own, {"n": 11, "name": "x"}, "big") == {"n": 11, "name": "x"}
    assert find_ports(own, {"n": 1}) == {"result"}


def test_split_delivers_to_each_port_whose_key_has_a_value() -> None:
    own = flow("s", "SPLIT", by_key=["a", "b", "c"])
    assert find_ports(own, {"a": 1, "b": None, "d": 2}) == {"a"}
    assert find_ports(own, {"d": 2}) == {"result"}
    assert find_output(own, {"d": 2}) == {"d": 2}


# -- MERGE -------------------------------------------------------------------------------------------------------------


def merge(*values: Any, **configurations: Any) -> Any:
    """Return the output of MERGE for values that arrive one after the other."""
    left = [{"results": [{"value": value}]} for value in values]
    names = [f"s{i}" for i in range(len(values))]
    nodes = [webhook(), *(node(name, "ACTION", "RUN_CODE", code="lambda x: x") for name in names)]
    own = flow("m", "MERGE", **{"merge_strategy": "concatenate", **configurations})
    wires = [f"t -> {name}" for name in names] + [f"{name} -> m" for name in names]
    return perform(graph([*nodes, own], *wires), {}, kinds={"code": answers(*left)}).out("m")


def test_merge_concatenates_and_spreads_lists() -> None:
    found = merge([1, 2], 3, {"a": 1}, [[4]])
    assert found["merged_data"] == [1, 2, 3, {"a": 1}, [4]]
    assert found["merge_stats"] == {"total_inputs": 4, "items_merged": 5, "duplicates_removed": 0, "merge_time_ms": 0}
    assert found["source_mapping"] == [{"source": "result", "range": [0, 4]}]


def test_merge_keeps_the_items_of_one_list() -> None:
    assert merge([1, 2])["merged_data"] == [1, 2]


A1, B, A2 = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 1, "v": "c"}


@pytest.mark.parametrize(
    ("strategy", "handling", "expected"),
    [
        ("concatenate", "remove_duplicates", [A1, B, A2]),
        ("union", "keep_all", [A1, B, A2]),
        ("union", "remove_duplicates", [A1, B]),
        ("union", "keep_first", [A1, B]),
        ("union", "keep_last", [B, A2]),
    ],
)
def test_merge_handles_duplicates_in_a_union(strategy: str, handling: str, expected: Any) -> None:
    found = merge([A1, B], [A2], merge_strategy=strategy, handle_duplicates=handling, merge_key="id")
    assert found["merged_data"] == expected
    assert found["merge_stats"]["duplicates_removed"] == 3 - len(expected)


def test_a_union_without_a_key_compares_whole_items() -> None:
    found = merge([{"a": 1, "b": 2}, 5], [{"b": 2, "a": 1}, 5], merge_strategy="union", handle_duplicates="keep_first")
    assert found["merged_data"] == [{"a": 1, "b": 2}, 5]


# -- FILTER ------------------------------------------------------------------------------------------------------------

ITEMS = [{"n": 1, "tag": "Red"}, {"n": 5, "tag": "blue"}, {"n": None}, {"n": 9, "tag": "red"}]


def filtering(**configurations: Any) -> dict[str, Any]:
    required = {"filter_mode": "include", "filter_type": "simple_condition", "conditions": []}
    return flow("f", "FILTER", **{**required, **configurations})


def filter_items(items: Any = ITEMS, **configurations: Any) -> list[Any]:
    return [item["n"] for item in find_output(filtering(**configurations), items, "passed")["filtered_data"]]


def test_filter_by_an_expression() -> None:
    found = find_output(filtering(expression="item.n > 1"), ITEMS, "passed")
    assert [item["n"] for item in found["filtered_data"]] == [5, 9]
    assert [item["n"] for item in found["excluded_data"]] == [1, None]
    assert found["filter_stats"] == {"total_input": 4, "items_passed": 2, "items_filtered": 2, "filter_time_ms": 0}
    assert found["validation_errors"] == []


def test_filter_puts_out_every_port_with_items() -> None:
    assert find_ports(filtering(expression="item.n > 1"), ITEMS) == {"passed", "filtered", "statistics"}
    assert find_ports(filtering(), ITEMS) == {"passed", "statistics"}
    done = perform(graph([webhook(), filtering(), step("a")], "t -> f", "f -> a"), {})
    assert set(done.took("a")) == {"passed", "statistics"}


@pytest.mark.parametrize(
    ("configurations", "expected"),
    [
        ({}, [1, 5, None, 9]),
        ({"expression": "item.n == 5", "conditions": [where("n", "equals", 1)]}, [5]),
        ({"predicate_expression": "item.n > 1", "filter_mode": "exclude"}, [1, None]),
        ({"expression": "item.n > 1", "filter_mode": "partition"}, [5, 9]),
        ({"conditions": [where("n", "equals", 5)]}, [5]),
        ({"conditions": [where("n", "not_equals", 5)]}, [1, 9]),
        ({"conditions": [where("n", "not_equals", 5)], "null_handling": "include"}, [1, None, 9]),
        ({"conditions": [where("n", "greater_than", 1)]}, [5, 9]),
        ({"conditions": [where("n", "less_than", 5)]}, [1]),
        ({"conditions": [where("n", ">=", 5)]}, [5, 9]),
        ({"conditions": [where("n", "<=", 5)]}, [1, 5]),
        ({"conditions": [where("n", "in", [1, 9])]}, [1, 9]),
        ({"conditions": [where("n", "not_in", [1, 9])]}, [5]),
        ({"conditions": [where("tag", "contains", "ed")]}, [1, 9]),
        ({"conditions": [where("tag", "exists")]}, [1, 5, 9]),
        ({"conditions": [where("tag", "exists", False)]}, [None]),
        ({"conditions": [where("tag", "regex", "^r")]}, [9]),
        ({"conditions": [where("tag", "equals", "RED")], "case_sensitive": False}, [1, 9]),
        ({"conditions": [where("n", "equals", None)]}, [None]),
        ({"conditions": [where("tag", "equals", "")], "null_handling": "treat_as_empty"}, [None]),
        ({"conditions": [where("n", ">", 1), where("tag", "equals", "red")]}, [9]),
        ({"conditions": [where("n", ">", 5), where("tag", "equals", "blue")], "logical_operator": "OR"}, [5, 9]),
        ({"conditions": [where("n", ">", 5), where("tag", "equals", "blue")], "logical_operator": "NOT"}, [1, None]),
        ({"expression": "item.n", "sort_filtered_results": True, "sort_field": "n", "sort_order": "desc"}, [9, 5, 1]),
        ({"expression": "item.n", "max_results": 2}, [1, 5]),
    ],
)
def test_filter_by_conditions(configurations: dict[str, Any], expected: list[Any]) -> None:
    assert filter_items(**configurations) == expected


def test_filter_takes_a_list_the_list_in_data_or_a_single_item() -> None:
    assert filter_items({"data": ITEMS}, expression="item.n == 5") == [5]
    assert filter_items({"n": 7}, expression="item.n == 7") == [7]


def test_error_handling_decides_about_items_whose_condition_fails() -> None:
    bad = {"conditions": [where("n", "regex", "(")]}
    assert filter_items(**bad) == []
    assert filter_items(**bad, error_handling="include_with_warning") == [1, 5, 9]
    assert [one["index"] for one in find_output(filtering(**bad), ITEMS, "passed")["validation_errors"]] == [0, 1, 3]
    done = perform_node(filtering(**bad, error_handling="fail_on_error"), ITEMS)
    assert done.record("f")["status"] == "FAILED"


def test_a_filter_function_runs_in_the_sandbox() -> None:
    async def carry(_job: Job, request: Any) -> Any:
        return {"results": [{"value": (item["n"] or 0) > 4} for item in request["inputs"]]}

    own = filtering(filter_type="custom_function", custom_filter_function="def keep(item): return item['n'] > 4")
    done = perform_node(own, ITEMS, kinds={"code": carry})
    assert [item["n"] for item in done.out("f", "passed")["filtered_data"]] == [5, 9]
    assert done.harness.asked[0][1]["function"] == "keep"


# -- SORT --------------------------------------------------------------------------------------------------------------


def test_sort_is_stable_in_both_directions() -> None:
    items = [{"k": 2, "i": 0}, {"k": 1, "i": 1}, {"k": 2, "i": 2}, {"k": 1, "i": 3}]
    up = find_output(flow("s", "SORT", sort_field="k"), items)
    assert up["original_indices"] == [1, 3, 0, 2]
    down = find_output(flow("s", "SORT", sort_field="k", order="desc"), {"data": items})
    assert down["original_indices"] == [0, 2, 1, 3]
    assert [item["k"] for item in down["sorted_data"]] == [2, 2, 1, 1]
    assert up["sort_stats"]["total_items"] == up["sort_stats"]["items_sorted"] == 4
    assert up["sort_stats"]["comparisons_made"] >= 3


def test_sort_by_a_path_or_the_item_itself() -> None:
    assert find_output(flow("s", "SORT", sort_field=""), ["b", "a"])["sorted_data"] == ["a", "b"]
    found = find_output(flow("s", "SORT", sort_field="a.b"), [{"a": {"b": 2}}, {"a": {"b": 1}}])
    assert found["original_indices"] == [1, 0]


@pytest.mark.parametrize("items", [[3, "a", 1], [{"k": 1}, {"k": {}}], [[2], [1]]])
def test_sort_leaves_items_that_cannot_be_compared_in_place(items: Any) -> None:
    found = find_output(flow("s", "SORT", sort_field="k" if isinstance(items[0], dict) else ""), items)
    assert found["sorted_data"] == items
    assert found["original_indices"] == list(range(len(items)))
    assert found["sort_stats"]["items_sorted"] == 0


# -- DELAY, WAIT, TIMEOUT ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configurations", "input", "seconds"),
    [
        ({"duration_seconds": 60}, {"x": 1}, 60),
        ({"delay_seconds": 3}, {"x": 1}, 3),
        ({"delay_ms": 2500}, {"x": 1}, 2.5),
        ({}, {"x": 1}, 5),
        ({"duration_seconds": 0}, {"x": 1}, 0),
        ({"duration_seconds": 60}, {"x": 1, "delay_config": {"delay_ms": 500}}, 0.5),
    ],
)
def test_delay_waits_for_its_duration(configurations: dict[str, Any], input: Any, seconds: float) -> None:
    done = perform_node(flow("d", "DELAY", **configurations), input)
    found = done.out("d")
    assert found["data"] == input
    assert found["delay_info"].items() >= {
        ("planned_delay_seconds", seconds),
        ("actual_delay_seconds", seconds),
        ("delay_type_used", "fixed"),
        ("was_cancelled", False),
        ("delay_start_time", "2026-11-20T11:00:00.000Z"),
    }
    assert done.record("d")["duration_ms"] == seconds * 1000


def test_the_timeout_of_a_node_does_not_limit_its_delay() -> None:
    assert perform_node(flow("d", "DELAY", duration_seconds=60, timeout=5), {}).results["status"] == "SUCCESS"


def test_a_delay_holds_up_the_nodes_that_are_queued() -> None:
    nodes = [webhook(), flow("d", "DELAY", duration_seconds=60), step("a"), step("b")]
    done = perform(graph(nodes, "t -> d", "t -> a", "d -> b"), {"body": 1})
    assert done.sequence == ["t", "d", "a", "b"]
    assert done.took("b")["data"]["body"] == 1


def wait(**configurations: Any) -> dict[str, Any]:
    return flow("w", "WAIT", **{"wait_type": "condition", **configurations})


def test_wait_completes_at_once_if_its_condition_holds() -> None:
    done = perform_node(wait(wait_condition="$json.go"), {"go": True})
    assert set(done.record("w")["output_data"]) == {"completed"}
    found = done.out("w", "completed")
    assert (found["data"], found["trigger_data"]) == ({"go": True}, {})
    assert (found["wait_result"]["condition_met"], found["wait_result"]["timeout_occurred"]) == (True, False)


def test_wait_takes_an_event_or_a_cancellation_from_its_input() -> None:
    assert perform_node(wait(), {"trigger_event": {"e": 1}}).out("w", "completed")["trigger_data"] == {"e": 1}
    done = perform_node(wait(), {"cancel_signal": True})
    assert set(done.record("w")["output_data"]) == {"cancelled"}
    assert done.out("w", "cancelled")["wait_result"]["was_cancelled"] is True


def test_wait_completes_with_a_signal() -> None:
    done = perform_node(wait(wait_condition="as long as it takes"), {"x": 1}, world=World(signals={"w": {"price": 3}}))
    assert set(done.record("w")["output_data"]) == {"completed", "result"}
    found = done.out("w")
    assert (found["data"], found["trigger_data"]) == ({"x": 1}, {"price": 3})
    assert found["wait_result"]["timeout_occurred"] is False
    assert done.out("w", "completed") == found


def test_wait_delivers_to_its_port_timeout_after_its_time() -> None:
    nodes = [webhook(), wait(timeout_seconds=90), step("late"), step("on"), step("never")]
    done = perform(graph(nodes, "t -> w", "w.timeout -> late", "w -> on", "w.completed -> never"), {})
    assert done.sequence == ["t", "w", "late", "on"]
    found = done.out("w", "timeout")
    assert found["wait_result"]["timeout_occurred"] is True
    assert found["wait_result"]["condition_met"] is False
    assert found["wait_result"]["wait_duration_seconds"] == 90
    assert done.out("w") == found


@pytest.mark.parametrize(
    ("settings", "attempts", "seconds"),
    [
        ({"timeout_seconds": 20}, 4, 20),
        ({"timeout_seconds": 20, "check_interval_seconds": 8}, 3, 20),
        ({"timeout_seconds": 20, "max_attempts": 3}, 3, 10),
        (
            {"timeout_seconds": 20, "check_interval_seconds": 2, "exponential_backoff": True, "backoff_multiplier": 2},
            4,
            20,
        ),
        ({"timeout_seconds": 0, "max_attempts": 2}, 2, 5),
    ],
)
@pytest.mark.parametrize("condition", ["$json.go", "now() < 0", "some day"])
def test_wait_checks_its_condition_until_its_time_or_its_attempts_are_used_up(
    condition: str, settings: dict[str, Any], attempts: int, seconds: float
) -> None:
    done = perform_node(wait(wait_condition=condition, **settings), {"go": False})
    found = done.out("w", "timeout")["wait_result"]
    assert (found["attempts_made"], found["wait_duration_seconds"]) == (attempts, seconds)
    assert found["condition_met"] is False
    assert found["timeout_occurred"] is (seconds == 20)


def test_wait_completes_when_its_condition_holds_later() -> None:
    """Each check is a timer of the run, so its outcome is the same in a replay and after a crash."""
    condition = "now() >= $json.at"
    at = int(BEGINNING.timestamp() * 1000) + 12_000
    waiting = graph([wait(wait_condition=condition), step("on")], "w.completed -> on")
    done = check_deaths(waiting, {"at": at}, start_from_node="w")
    assert done.sequence == ["w", "on"]
    found = done.out("w", "completed")["wait_result"]
    assert (found["attempts_made"], found["wait_duration_seconds"], found["condition_met"]) == (4, 15, True)


def test_wait_reads_the_outputs_of_nodes_beside_it() -> None:
    nodes = [webhook(), wait(wait_condition='$node["d"].result.data'), flow("d", "DELAY", duration_seconds=7)]
    done = perform(graph(nodes, "t -> w", "t -> d"), {"body": 1}, parallel=True)
    assert done.out("w")["wait_result"]["wait_duration_seconds"] == 10


def test_wait_may_omit_its_data_and_ignore_a_cancellation() -> None:
    own = wait(pass_through_data=False, cancellable=False, timeout_seconds=60)
    done = perform_node(own, {"cancel_signal": True})
    assert done.out("w", "timeout")["data"] == {}


def test_timeout_delivers_after_its_time_or_at_once() -> None:
    assert find_ports(flow("o", "TIMEOUT", condition_expression="$json.x"), {"x": 1}) == {"completed", "result"}
    at_once = flow("o", "TIMEOUT", condition_expression="true", immediate_timeout=True)
    assert find_ports(at_once, {"x": 1}) == {"timeout", "result"}
    done = perform_node(flow("o", "TIMEOUT", timeout_ms=1500), {"x": 1})
    assert done.record("o")["output_data"] == {"timeout": {"x": 1}, "result": {"x": 1}}
    assert done.record("o")["duration_ms"] == 1500
    assert perform_node(flow("o", "TIMEOUT", timeout_seconds=7), {}).record("o")["duration_ms"] == 7000


# -- LOOP, WHILE, FOR_EACH ---------------------------------------------------------------------------------------------


def iterate(subtype: str = "LOOP", input: Any = None, **configurations: Any) -> list[Any]:
    return find_output(flow("l", subtype, **configurations), {} if input is None else input, "iteration")


@pytest.mark.parametrize(
    ("configurations", "expected"),
    [
        ({"start_value": 1, "end_value": 3}, [1, 2, 3]),
        ({"end_value": 0}, [0]),
        ({"start_value": 3, "end_value": 1, "step_value": -1}, [3, 2, 1]),
        ({"start_value": 0, "end_value": 10, "step_value": 5}, [0, 5, 10]),
        ({"start_value": 2, "end_value": 1}, []),
        ({"end_value": 1000, "max_iterations": 3}, [0, 1, 2]),
        ({}, list(range(11))),
    ],
)
def test_loop_over_a_range(configurations: dict[str, Any], expected: list[int]) -> None:
    assert iterate(loop_type="for_range", **configurations) == [{"index": i} for i in expected]


def test_a_loop_puts_out_a_summary() -> None:
    done = perform_node(flow("l", "LOOP", loop_type="for_range", end_value=1, iteration_variable="i"), {"x": 1})
    assert done.out("l", "iteration") == [{"i": 0}, {"i": 1}]
    assert done.out("l") == done.out("l", "completed")
    assert done.out("l") == {
        "final_result": {"x": 1},
        "iteration_results": [{"i": 0}, {"i": 1}],
        "successful_iterations": 2,
        "failed_iterations": 0,
    }


def test_a_loop_with_step_zero_fails_without_retry() -> None:
    done = perform_node(flow("l", "LOOP", loop_type="for_range", step_value=0, retry_attempts=2), {})
    assert done.record("l")["error"]["error_message"].startswith("step_value is 0")
    assert done.record("l")["retry_count"] == 0


def test_loop_over_the_items_of_a_path() -> None:
    given = {"a": {"b": ["x", "y"]}}
    assert iterate(input=given, loop_type="for_each", array_path="a.b") == [{"index": "x"}, {"index": "y"}]
    assert iterate(input=given, loop_type="for_each", array_path="a") == []
    assert iterate(input=[7], loop_type="for_each") == [{"index": 7}]


def test_loop_while_its_condition_holds() -> None:
    found = iterate(input={"n": 2}, loop_type="while", loop_condition="iteration < $json.n")
    assert found == [{"index": 0}, {"index": 1}]
    assert len(iterate(loop_type="while", loop_condition="true")) == 100
    assert iterate(loop_type="while", loop_condition="") == []


def test_while_without_a_condition_passes_its_input_on() -> None:
    assert iterate("WHILE", loop_condition="iteration < 2") == [{"index": 0}, {"index": 1}]
    assert find_output(flow("l", "WHILE"), {"x": 1}) == {"x": 1}


@pytest.mark.parametrize(("input", "expected"), [([1, 2], [1, 2]), ({"items": [3]}, [3]), ({"x": 1}, [{"x": 1}])])
def test_for_each_delivers_each_item(input: Any, expected: Any) -> None:
    assert find_output(flow("e", "FOR_EACH"), input, "iteration") == expected
    assert find_output(flow("e", "FOR_EACH"), input) == expected
