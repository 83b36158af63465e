"""The runners of FLOW nodes, and of ACTION nodes without an effect: what comes out of each of their ports."""

from typing import Any

import pytest

from callboard.actors.carrier import Job
from callboard.testing.virtual_time import BEGINNING
from tests.support.graphs import (
    Performance,
    answers,
    check_deaths,
    condition,
    flow,
    graph,
    node,
    perform,
    step,
    webhook,
)
from tests.support.simulation import World


def alone(own: dict[str, Any], input: Any, **names: Any) -> Performance:
    """A graph of one node, which gets this input."""
    return perform(graph([own], triggers=[]), input, start_from_node=own["id"], **names)


def out(own: dict[str, Any], input: Any, port: str = "result", **names: Any) -> Any:
    return alone(own, input, **names).out(own["id"], port)


def ports(own: dict[str, Any], input: Any, **names: Any) -> set[str]:
    found = alone(own, input, **names).record(own["id"])["output_data"]
    return {name for name, value in found.items() if value is not None}


# -- IF and SPLIT ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "port"), [("$json.n > 1", "true"), ("$json.n > 2", "false"), ("", "false"), ("!$json.x", "true")]
)
def test_if(expression: str, port: str) -> None:
    own = condition("i", expression)
    assert ports(own, {"n": 2}) == {port}
    assert out(own, {"n": 2}, port) == {"data": {"n": 2}, "condition_result": port == "true"}
    assert alone(own, {"n": 2}).record("i")["execution_details"] == {
        "condition_result": port == "true",
        "branch_taken": port,
    }


def test_if_sees_context_trigger_nodes_and_configuration() -> None:
    text = '$trigger.type == "WEBHOOK" && $node["t"].result.body.n == 2 && $config.threshold < $input.result.body.n'
    own: dict[str, Any] = {**condition("i", text), "name": "check"}
    own["configurations"]["threshold"] = 1
    done = perform(
        graph([webhook(), own, condition("j", '$node["check"].true.condition_result')], "t -> i", "i -> j"),
        {"body": {"n": 2}},
    )
    assert done.out("j", "true") is not None


def test_split_by_predicates() -> None:
    own = flow("s", "SPLIT", predicate_paths={"big": "n > 10", "named": "$json.name", "odd": "gone"})
    assert ports(own, {"n": 11, "name": "x"}) == {"big", "named"}
    assert out(own, {"n": 11, "name": "x"}, "big") == {"n": 11, "name": "x"}
    assert ports(own, {"n": 1}) == {"result"}


def test_split_by_key() -> None:
    own = flow("s", "SPLIT", by_key=["a", "b", "c"])
    assert ports(own, {"a": 1, "b": None, "d": 2}) == {"a"}
    assert ports(own, {"d": 2}) == {"result"}
    assert out(own, {"d": 2}) == {"d": 2}


# -- MERGE -------------------------------------------------------------------------------------------------------------


def merged(*values: Any, **configurations: Any) -> Any:
    """What MERGE makes of values that arrive one after the other."""
    left = [{"results": [{"value": value}]} for value in values]
    names = [f"s{i}" for i in range(len(values))]
    nodes = [webhook(), *(node(name, "ACTION", "RUN_CODE", code="lambda x: x") for name in names)]
    own = flow("m", "MERGE", **{"merge_strategy": "concatenate", **configurations})
    wires = [f"t -> {name}" for name in names] + [f"{name} -> m" for name in names]
    return perform(graph([*nodes, own], *wires), {}, kinds={"code": answers(*left)}).out("m")


def test_merge_concatenates_and_spreads_lists() -> None:
    found = merged([1, 2], 3, {"a": 1}, [[4]])
    assert found["merged_data"] == [1, 2, 3, {"a": 1}, [4]]
    assert found["merge_stats"] == {"total_inputs": 4, "items_merged": 5, "duplicates_removed": 0, "merge_time_ms": 0}
    assert found["source_mapping"] == [{"source": "result", "range": [0, 4]}]


def test_merge_of_one_list() -> None:
    assert merged([1, 2])["merged_data"] == [1, 2]


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
    found = merged([A1, B], [A2], merge_strategy=strategy, handle_duplicates=handling, merge_key="id")
    assert found["merged_data"] == expected
    assert found["merge_stats"]["duplicates_removed"] == 3 - len(expected)


def test_without_a_key_what_is_equal_is_equal() -> None:
    found = merged([{"a": 1, "b": 2}, 5], [{"b": 2, "a": 1}, 5], merge_strategy="union", handle_duplicates="keep_first")
    assert found["merged_data"] == [{"a": 1, "b": 2}, 5]


# -- FILTER ------------------------------------------------------------------------------------------------------------

ITEMS = [{"n": 1, "tag": "Red"}, {"n": 5, "tag": "blue"}, {"n": None}, {"n": 9, "tag": "red"}]


def filtering(**configurations: Any) -> dict[str, Any]:
    required = {"filter_mode": "include", "filter_type": "simple_condition", "conditions": []}
    return flow("f", "FILTER", **{**required, **configurations})


def kept(items: Any = ITEMS, **configurations: Any) -> list[Any]:
    return [item["n"] for item in out(filtering(**configurations), items, "passed")["filtered_data"]]


def where(field: str, operator: str, value: Any = None) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


def test_filter_by_an_expression() -> None:
    found = out(filtering(expression="item.n > 1"), ITEMS, "passed")
    assert [item["n"] for item in found["filtered_data"]] == [5, 9]
    assert [item["n"] for item in found["excluded_data"]] == [1, None]
    assert found["filter_stats"] == {"total_input": 4, "items_passed": 2, "items_filtered": 2, "filter_time_ms": 0}
    assert found["validation_errors"] == []


def test_filter_takes_every_port_that_has_something() -> None:
    assert ports(filtering(expression="item.n > 1"), ITEMS) == {"passed", "filtered", "statistics"}
    assert ports(filtering(), ITEMS) == {"passed", "statistics"}
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
    assert kept(**configurations) == expected


def test_filter_takes_a_list_the_list_in_data_or_a_single_item() -> None:
    assert kept({"data": ITEMS}, expression="item.n == 5") == [5]
    assert kept({"n": 7}, expression="item.n == 7") == [7]


def test_what_cannot_be_judged() -> None:
    bad = {"conditions": [where("n", "regex", "(")]}
    assert kept(**bad) == []
    assert kept(**bad, error_handling="include_with_warning") == [1, 5, 9]
    assert [one["index"] for one in out(filtering(**bad), ITEMS, "passed")["validation_errors"]] == [0, 1, 3]
    done = alone(filtering(**bad, error_handling="fail_on_error"), ITEMS)
    assert done.record("f")["status"] == "FAILED"


def test_a_filter_function_runs_in_the_sandbox() -> None:
    async def carry(_job: Job, request: Any) -> Any:
        return {"results": [{"value": (item["n"] or 0) > 4} for item in request["inputs"]]}

    own = filtering(filter_type="custom_function", custom_filter_function="def keep(item): return item['n'] > 4")
    done = alone(own, ITEMS, kinds={"code": carry})
    assert [item["n"] for item in done.out("f", "passed")["filtered_data"]] == [5, 9]
    assert done.harness.asked[0][1]["function"] == "keep"


# -- SORT --------------------------------------------------------------------------------------------------------------


def test_sort_is_stable_both_ways() -> None:
    items = [{"k": 2, "i": 0}, {"k": 1, "i": 1}, {"k": 2, "i": 2}, {"k": 1, "i": 3}]
    up = out(flow("s", "SORT", sort_field="k"), items)
    assert up["original_indices"] == [1, 3, 0, 2]
    down = out(flow("s", "SORT", sort_field="k", order="desc"), {"data": items})
    assert down["original_indices"] == [0, 2, 1, 3]
    assert [item["k"] for item in down["sorted_data"]] == [2, 2, 1, 1]
    assert up["sort_stats"]["total_items"] == up["sort_stats"]["items_sorted"] == 4
    assert up["sort_stats"]["comparisons_made"] >= 3


def test_sort_by_a_path_or_the_item_itself() -> None:
    assert out(flow("s", "SORT", sort_field=""), ["b", "a"])["sorted_data"] == ["a", "b"]
    found = out(flow("s", "SORT", sort_field="a.b"), [{"a": {"b": 2}}, {"a": {"b": 1}}])
    assert found["original_indices"] == [1, 0]


@pytest.mark.parametrize("items", [[3, "a", 1], [{"k": 1}, {"k": {}}], [[2], [1]]])
def test_what_has_no_order_is_left_as_it_is(items: Any) -> None:
    found = out(flow("s", "SORT", sort_field="k" if isinstance(items[0], dict) else ""), items)
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
def test_delay(configurations: dict[str, Any], input: Any, seconds: float) -> None:
    done = alone(flow("d", "DELAY", **configurations), input)
    found = done.out("d")
    assert found["data"] == input
    assert found["delay_info"]["planned_delay_seconds"] == seconds
    assert found["delay_info"]["actual_delay_seconds"] == seconds
    assert found["delay_info"]["delay_type_used"] == "fixed"
    assert found["delay_info"]["was_cancelled"] is False
    assert found["delay_info"]["delay_start_time"] == "2026-11-20T11:00:00.000Z"
    assert done.record("d")["duration_ms"] == seconds * 1000


def test_a_bound_of_a_node_does_not_bound_its_waiting() -> None:
    assert alone(flow("d", "DELAY", duration_seconds=60, timeout=5), {}).results["status"] == "SUCCESS"


def test_a_delay_keeps_what_is_queued() -> None:
    nodes = [webhook(), flow("d", "DELAY", duration_seconds=60), step("a"), step("b")]
    done = perform(graph(nodes, "t -> d", "t -> a", "d -> b"), {"body": 1})
    assert done.sequence == ["t", "d", "a", "b"]
    assert done.took("b")["data"]["body"] == 1


def waiting(**configurations: Any) -> dict[str, Any]:
    return flow("w", "WAIT", **{"wait_type": "condition", **configurations})


def test_wait_is_over_at_once_if_its_condition_holds() -> None:
    done = alone(waiting(wait_condition="$json.go"), {"go": True})
    assert set(done.record("w")["output_data"]) == {"completed"}
    found = done.out("w", "completed")
    assert found["data"] == {"go": True}
    assert found["trigger_data"] == {}
    assert found["wait_result"]["condition_met"] is True
    assert found["wait_result"]["timeout_occurred"] is False


def test_wait_takes_an_event_or_a_cancellation_that_came_with_the_input() -> None:
    assert alone(waiting(), {"trigger_event": {"e": 1}}).out("w", "completed")["trigger_data"] == {"e": 1}
    done = alone(waiting(), {"cancel_signal": True})
    assert set(done.record("w")["output_data"]) == {"cancelled"}
    assert done.out("w", "cancelled")["wait_result"]["was_cancelled"] is True


def test_wait_goes_on_with_a_signal() -> None:
    done = alone(waiting(wait_condition="as long as it takes"), {"x": 1}, world=World(signals={"w": {"price": 3}}))
    assert set(done.record("w")["output_data"]) == {"completed", "result"}
    found = done.out("w")
    assert found["trigger_data"] == {"price": 3}
    assert found["data"] == {"x": 1}
    assert found["wait_result"]["timeout_occurred"] is False
    assert done.out("w", "completed") == found


def test_wait_times_out() -> None:
    nodes = [webhook(), waiting(timeout_seconds=90), step("late"), step("on"), step("never")]
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
def test_wait_looks_at_its_condition_until_the_time_or_the_attempts_run_out(
    condition: str, settings: dict[str, Any], attempts: int, seconds: float
) -> None:
    done = alone(waiting(wait_condition=condition, **settings), {"go": False})
    found = done.out("w", "timeout")["wait_result"]
    assert (found["attempts_made"], found["wait_duration_seconds"]) == (attempts, seconds)
    assert found["condition_met"] is False
    assert found["timeout_occurred"] is (seconds == 20)


def test_wait_goes_on_when_its_condition_holds_later() -> None:
    """Each look is a timer of the run, so its outcome is the same in a replay and after a crash."""
    condition = "now() >= $json.at"
    at = int(BEGINNING.timestamp() * 1000) + 12_000
    done = check_deaths(
        graph([waiting(wait_condition=condition), step("on")], "w.completed -> on"), {"at": at}, start_from_node="w"
    )
    assert done.sequence == ["w", "on"]
    found = done.out("w", "completed")["wait_result"]
    assert (found["attempts_made"], found["wait_duration_seconds"], found["condition_met"]) == (4, 15, True)


def test_wait_sees_what_nodes_beside_it_put_out() -> None:
    nodes = [webhook(), waiting(wait_condition='$node["d"].result.data'), flow("d", "DELAY", duration_seconds=7)]
    done = perform(graph(nodes, "t -> w", "t -> d"), {"body": 1}, parallel=True)
    assert done.out("w")["wait_result"]["wait_duration_seconds"] == 10


def test_a_wait_can_leave_out_its_data_and_refuse_to_be_cancelled() -> None:
    own = waiting(pass_through_data=False, cancellable=False, timeout_seconds=60)
    done = alone(own, {"cancel_signal": True})
    assert done.out("w", "timeout")["data"] == {}


def test_timeout() -> None:
    assert ports(flow("o", "TIMEOUT", condition_expression="$json.x"), {"x": 1}) == {"completed", "result"}
    at_once = flow("o", "TIMEOUT", condition_expression="true", immediate_timeout=True)
    assert ports(at_once, {"x": 1}) == {"timeout", "result"}
    done = alone(flow("o", "TIMEOUT", timeout_ms=1500), {"x": 1})
    assert done.record("o")["output_data"] == {"timeout": {"x": 1}, "result": {"x": 1}}
    assert done.record("o")["duration_ms"] == 1500
    assert alone(flow("o", "TIMEOUT", timeout_seconds=7), {}).record("o")["duration_ms"] == 7000


# -- LOOP, WHILE, FOR_EACH ---------------------------------------------------------------------------------------------


def rounds(subtype: str = "LOOP", input: Any = None, **configurations: Any) -> list[Any]:
    return out(flow("l", subtype, **configurations), {} if input is None else input, "iteration")


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
    assert rounds(loop_type="for_range", **configurations) == [{"index": i} for i in expected]


def test_a_loop_has_a_summary() -> None:
    done = alone(flow("l", "LOOP", loop_type="for_range", end_value=1, iteration_variable="i"), {"x": 1})
    assert done.out("l", "iteration") == [{"i": 0}, {"i": 1}]
    assert done.out("l") == done.out("l", "completed")
    assert done.out("l") == {
        "final_result": {"x": 1},
        "iteration_results": [{"i": 0}, {"i": 1}],
        "successful_iterations": 2,
        "failed_iterations": 0,
    }


def test_a_loop_without_an_end_is_refused() -> None:
    done = alone(flow("l", "LOOP", loop_type="for_range", step_value=0, retry_attempts=2), {})
    assert done.record("l")["error"]["error_message"].startswith("step_value is 0")
    assert done.record("l")["retry_count"] == 0


def test_loop_over_items() -> None:
    given = {"a": {"b": ["x", "y"]}}
    assert rounds(input=given, loop_type="for_each", array_path="a.b") == [{"index": "x"}, {"index": "y"}]
    assert rounds(input=given, loop_type="for_each", array_path="a") == []
    assert rounds(input=[7], loop_type="for_each") == [{"index": 7}]


def test_loop_while() -> None:
    assert rounds(input={"n": 2}, loop_type="while", loop_condition="iteration < $json.n") == [
        {"index": 0},
        {"index": 1},
    ]
    assert len(rounds(loop_type="while", loop_condition="true")) == 100
    assert rounds(loop_type="while", loop_condition="") == []


def test_while_is_a_loop_if_it_has_a_condition() -> None:
    assert rounds("WHILE", loop_condition="iteration < 2") == [{"index": 0}, {"index": 1}]
    assert out(flow("l", "WHILE"), {"x": 1}) == {"x": 1}


@pytest.mark.parametrize(("input", "expected"), [([1, 2], [1, 2]), ({"items": [3]}, [3]), ({"x": 1}, [{"x": 1}])])
def test_for_each(input: Any, expected: Any) -> None:
    assert out(flow("e", "FOR_EACH"), input, "iteration") == expected
    assert out(flow("e", "FOR_EACH"), input) == expected


# -- DATA_TRANSFORMATION -----------------------------------------------------------------------------------------------


def transformed(input: Any, **configurations: Any) -> Any:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", **configurations)
    found = out(own, input)
    assert found["success"] is True
    return found["transformed_data"]


ROWS = [{"c": "x", "n": 1}, {"c": "y", "n": 2}, {"c": "x", "n": 3}]


@pytest.mark.parametrize(
    ("input", "configurations", "expected"),
    [
        (
            {"a": {"b": 1}},
            {"transform_type": "mapping", "mapping_rules": {"x": "a.b", "y": "$json.gone"}},
            {"x": 1, "y": None},
        ),
        ({"a": 1}, {"transform_type": "mapping", "field_mappings": {"x": "a"}}, {"x": 1}),
        ({"a": {"b": [5]}}, {"transform_type": "jsonpath", "jsonpath": "$.a.b[0]"}, 5),
        ({"a": 1}, {"transform_type": "path", "path": "a"}, 1),
        ({"a": 1}, {"transform_type": "template_map", "template_map": {"t": "n={{ a }}"}}, {"t": "n=1"}),
        ({"a": 1}, {"transform_type": "strange"}, {"a": 1}),
        ([{"a": 1}, {"a": 2}], {"transform_type": "path", "path": "a"}, [1, 2]),
        ({"a": 1}, {"operation": "map", "field_mapping": {"x": "a"}}, {"x": 1}),
        (ROWS, {"operation": "map", "field_mapping": {"x": "n"}}, [{"x": 1}, {"x": 2}, {"x": 3}]),
        (ROWS, {"operation": "filter", "filter_conditions": [where("n", ">", 1)]}, ROWS[1:]),
        (ROWS, {"operation": "sort", "sort_config": {"field": "n", "direction": "desc"}}, ROWS[::-1]),
        (
            ROWS,
            {"operation": "group_by", "group_by_fields": ["c"]},
            [{"c": "x", "items": [ROWS[0], ROWS[2]], "count": 2}, {"c": "y", "items": [ROWS[1]], "count": 1}],
        ),
        (
            ROWS,
            {
                "operation": "aggregate",
                "group_by_fields": ["c"],
                "aggregation_functions": {"n": "sum", "rows": "count", "top": {"function": "max", "field": "n"}},
            },
            [{"c": "x", "n": 4, "rows": 2, "top": 3}, {"c": "y", "n": 2, "rows": 1, "top": 2}],
        ),
        ([[1], [2, [3]], {"a": {"b": 1}}], {"operation": "flatten"}, [1, 2, [3], {"a.b": 1}]),
        (
            [[{"id": 1, "a": 1}], [{"id": 1, "b": 2}, {"id": 2, "b": 3}]],
            {"operation": "join", "group_by_fields": ["id"]},
            [{"id": 1, "a": 1, "b": 2}, {"id": 2, "b": 3}],
        ),
        (
            [{"d": 1, "k": "p", "v": 5}, {"d": 1, "k": "q", "v": 6}],
            {"operation": "pivot", "pivot_config": {"index": "d", "columns": "k", "values": "v"}},
            [{"d": 1, "p": 5, "q": 6}],
        ),
        ({"data": ROWS}, {"operation": "filter", "filter_conditions": [where("n", "==", 2)]}, [ROWS[1]]),
    ],
)
def test_transformations(input: Any, configurations: dict[str, Any], expected: Any) -> None:
    assert transformed(input, **configurations) == expected


def test_a_transformation_counts() -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", operation="filter", filter_conditions=[where("n", ">", 1)])
    found = out(own, ROWS)
    assert (found["original_count"], found["output_count"]) == (3, 2)


def test_an_aggregation_that_there_is_not() -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", operation="aggregate", aggregation_functions={"n": "median"})
    assert "no aggregation 'median'" in alone(own, ROWS).record("x")["error"]["error_message"]


# -- HTTP_REQUEST ------------------------------------------------------------------------------------------------------


def answered(status: int, body: Any = None, headers: Any = None, **metadata: Any) -> Any:
    value = {"status": status, "headers": headers or {"content-type": "application/json"}, "body": body}
    return answers({"result": {"type": "success", "value": value}, "metadata": {"duration_ms": 20, **metadata}})


def http(**configurations: Any) -> dict[str, Any]:
    return node("h", "ACTION", "HTTP_REQUEST", **{"method": "GET", "url": "https://example.com/x", **configurations})


def asked(input: Any = None, **configurations: Any) -> dict[str, Any]:
    done = alone(http(**configurations), input or {}, kinds={"provider": answered(200)})
    [(_kind, request)] = done.harness.asked
    return request["with"]


def test_a_request_and_its_answer() -> None:
    done = alone(http(), {}, kinds={"provider": answered(200, {"a": 1}, url="https://example.com/y", redirects=1)})
    assert done.out("h") == {
        "status_code": 200,
        "headers": {"content-type": "application/json"},
        "body": '{"a":1}',
        "json": {"a": 1},
        "success": True,
        "error_message": "",
        "response_time": 0.02,
        "url": "https://example.com/y",
        "redirects": ["https://example.com/y"],
    }
    assert done.record("h")["execution_details"]["response_status"] == 200
    assert done.record("h")["execution_details"]["api_endpoint"] == "https://example.com/x"


def test_a_body_that_is_no_json() -> None:
    text = alone(http(), {}, kinds={"provider": answered(200, "hello", {"content-type": "text/plain"})}).out("h")
    assert (text["body"], text["json"]) == ("hello", None)
    json = alone(http(), {}, kinds={"provider": answered(200, "[1]", {"content-type": "text/plain"})}).out("h")
    assert (json["body"], json["json"]) == ("[1]", [1])


def test_a_status_other_than_2xx_fails_at_once() -> None:
    done = alone(http(retry_attempts=3), {}, kinds={"provider": answered(500, {"e": 1})})
    assert done.record("h")["error"]["error_code"] == "NODE_EXECUTION_FAILED"
    assert done.record("h")["output_data"]["result"]["status_code"] == 500
    assert len(done.harness.asked) == 1


def test_no_answer_is_tried_again() -> None:
    down = {
        "result": {"type": "error", "code": "Provider.Call.Http.ConnectionFailed", "message": "down"},
        "metadata": {},
    }
    done = alone(http(retry_attempts=1), {}, kinds={"provider": answers(down)})
    assert len(done.harness.asked) == 2
    assert done.record("h")["error"]["error_code"] == "NODE_EXEC_ERROR"
    assert done.results["error"]["error_message"] == "Node h failed: down"


def test_a_request_without_url_fails_before_it_is_made() -> None:
    done = alone(http(url=" "), {}, kinds={"provider": answered(200)})
    assert done.record("h")["status"] == "FAILED"
    assert done.harness.asked == []


def test_what_is_asked() -> None:
    assert asked()["headers"] == {
        "content-type": "application/json",
        "user-agent": "Mozilla/5.0 (compatible; Callboard)",
    }
    assert asked()["redirects"] == 5
    assert asked(follow_redirects=False)["redirects"] == 0
    assert asked()["timeout"] == "PT30.000S"
    assert asked(timeout=2)["timeout"] == "PT2.000S"
    found = asked(
        {"id": 7, "dynamic_headers": {"X-A": "2"}, "dynamic_query_params": {"q": 2}},
        url="https://example.com/{{ id }}",
        headers={"X-A": "1", "X-B": "{{ input.id }}"},
        query_params={"q": 1, "r": "{{ $trigger.data.id }}"},
    )
    assert found["url"] == "https://example.com/7"
    assert found["headers"] == {"x-a": "2", "x-b": "7"}
    assert found["query"] == {"q": 2, "r": "7"}


REQUEST = {"headers": {"authorization": "secret"}, "body": {"card": "4711"}, "query_params": {}, "method": "POST"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_what_a_webhook_received_is_not_sent_with_a_method_that_has_no_body(method: str) -> None:
    nodes = [webhook(), http(method=method)]
    done = perform(graph(nodes, "t -> h"), REQUEST, kinds={"provider": answered(200)})
    [(_kind, request)] = done.harness.asked
    assert "4711" not in str(request)
    assert "secret" not in str(request)
    assert done.of_type("node.warning") == []


def test_a_body_that_is_made_for_a_request_without_one_is_warned_of() -> None:
    done = alone(http(), {"body": {"q": 1}}, kinds={"provider": answered(200)})
    assert "json" not in done.harness.asked[0][1]["with"]
    [warning] = done.of_type("node.warning")
    assert (warning.code, "GET takes a body only from the configurations" in warning.reason) == (
        "graph.body_unsent",
        True,
    )
    assert asked({"body": {"q": 1}}, body={"query": 2})["json"] == {"query": 2}


def test_what_is_sent() -> None:
    assert asked(method="POST", body={"a": "{{ input.n }}"}, input={"n": 1})["json"] == {"a": "1"}
    assert asked({"body": [1]}, method="POST", body={"a": 1})["json"] == [1]
    form = asked({"body": {"a": "b c"}}, method="POST", body_type="form")
    assert form["body"] == "a=b+c"
    assert form["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert asked({"body": "raw"}, method="PUT", body_type="raw")["body"] == "raw"
    assert asked({"body": 1}, method="POST", body_type="none")["body"] == ""
    assert "body" not in asked()
    assert "json" not in asked()


def test_authorization() -> None:
    bearer = asked(auth_type="bearer", auth_config={"token": "s"})
    assert bearer["headers"]["authorization"] == "Bearer s"
    basic = asked(auth_type="basic", auth_config={"username": "u", "password": "p"})
    assert basic["headers"]["authorization"] == "Basic dTpw"


# -- RUN_CODE ----------------------------------------------------------------------------------------------------------


def test_run_code() -> None:
    own = node("c", "ACTION", "RUN_CODE", code="def run(data):\n    return data")
    done = alone(own, {"x": 1}, kinds={"code": answers({"results": [{"value": {"y": 2}}]})})
    assert done.out("c") == {"y": 2}
    [(_kind, request)] = done.harness.asked
    assert (request["function"], request["inputs"], request["wrap"]) == ("run", [{"x": 1}], False)
    assert set(request["limits"]) == {"wall_s", "cpu_s", "memory_bytes", "output_bytes"}


def test_statements_become_a_function() -> None:
    own = node("c", "ACTION", "RUN_CODE", code="result = input_data['x'] + 1")
    done = alone(own, {"x": 1}, kinds={"code": answers({"results": [{"value": 2}]})})
    [(_kind, request)] = done.harness.asked
    namespace: dict[str, Any] = {}
    exec(request["source"], namespace)
    assert namespace[request["function"]]({"x": 1}) == 2


def test_code_that_fails_or_is_missing() -> None:
    done = alone(
        node("c", "ACTION", "RUN_CODE", code="lambda x: 1/0"),
        {},
        kinds={"code": answers({"results": [{"error": "zero"}]})},
    )
    assert done.record("c")["error"]["error_message"] == "zero"
    assert alone(node("c", "ACTION", "RUN_CODE"), {}).record("c")["status"] == "FAILED"
