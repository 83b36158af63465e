"""ACTION nodes: transformations, HTTP requests and code."""

from typing import Any

import pytest

from tests.support.graphs import Answering, Performance, answers, graph, node, perform, perform_node, webhook, where

# -- DATA_TRANSFORMATION -----------------------------------------------------------------------------------------------


def transform(input: Any, **configurations: Any) -> Any:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", **configurations)
    found = perform_node(own, input).out("x")
    assert found["success"] is True
    return found["transformed_data"]


ROWS = [{"c": "x", "n": 1}, {"c": "y", "n": 2}, {"c": "x", "n": 3}]


@pytest.mark.parametrize(
    ("input", "configurations", "expected"),
    [
        ({"a": {"b": 1}}, {"transform_type": "mapping", "mapping_rules": {"x": "a.b"}}, {"x": 1}),
        ({"a": 1}, {"transform_type": "mapping", "mapping_rules": {"y": "$json.gone"}}, {"y": None}),
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
def test_a_transformation_computes_its_output(input: Any, configurations: dict[str, Any], expected: Any) -> None:
    assert transform(input, **configurations) == expected


def test_a_transformation_counts_its_items() -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", operation="filter", filter_conditions=[where("n", ">", 1)])
    found = perform_node(own, ROWS).out("x")
    assert (found["original_count"], found["output_count"]) == (3, 2)


def test_an_unknown_aggregation_fails_the_node() -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", operation="aggregate", aggregation_functions={"n": "median"})
    assert "no aggregation 'median'" in perform_node(own, ROWS).record("x")["error"]["error_message"]


# -- HTTP_REQUEST ------------------------------------------------------------------------------------------------------


def answer(status: int, body: Any = None, headers: Any = None, **metadata: Any) -> Any:
    value = {"status": status, "headers": headers or {"content-type": "application/json"}, "body": body}
    return answers({"result": {"type": "success", "value": value}, "metadata": {"duration_ms": 20, **metadata}})


def http(**configurations: Any) -> dict[str, Any]:
    return node("h", "ACTION", "HTTP_REQUEST", **{"method": "GET", "url": "https://example.com/x", **configurations})


def send_request(carry: Answering, input: Any = None, **configurations: Any) -> Performance:
    return perform_node(http(**configurations), input or {}, kinds={"provider": carry})


def find_request(input: Any = None, **configurations: Any) -> dict[str, Any]:
    done = send_request(answer(200), input, **configurations)
    [(_kind, request)] = done.harness.asked
    return request["with"]


def test_a_response_becomes_the_output_of_a_request() -> None:
    done = send_request(answer(200, {"a": 1}, url="https://example.com/y", redirects=1))
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


def test_a_response_body_is_read_as_json_if_it_is_json() -> None:
    text = send_request(answer(200, "hello", {"content-type": "text/plain"})).out("h")
    assert (text["body"], text["json"]) == ("hello", None)
    json = send_request(answer(200, "[1]", {"content-type": "text/plain"})).out("h")
    assert (json["body"], json["json"]) == ("[1]", [1])


def test_a_status_other_than_2xx_fails_at_once() -> None:
    done = send_request(answer(500, {"e": 1}), retry_attempts=3)
    assert done.record("h")["error"]["error_code"] == "NODE_EXECUTION_FAILED"
    assert done.record("h")["output_data"]["result"]["status_code"] == 500
    assert len(done.harness.asked) == 1


def test_a_request_without_a_response_is_tried_again() -> None:
    error = {"type": "error", "code": "Provider.Call.Http.ConnectionFailed", "message": "down"}
    carry = answers({"result": error, "metadata": {}})
    done = send_request(carry, retry_attempts=1)
    assert len(done.harness.asked) == 2
    assert done.record("h")["error"]["error_code"] == "NODE_EXEC_ERROR"
    assert done.results["error"]["error_message"] == "Node h failed: down"


def test_a_request_without_url_fails_before_it_is_made() -> None:
    done = send_request(answer(200), url=" ")
    assert done.record("h")["status"] == "FAILED"
    assert done.harness.asked == []


def test_a_request_has_headers_query_redirects_and_timeout() -> None:
    sent = find_request()
    user_agent = "Mozilla/5.0 (compatible; Callboard)"
    assert sent["headers"] == {"content-type": "application/json", "user-agent": user_agent}
    assert (sent["redirects"], sent["timeout"]) == (5, "PT30.000S")
    assert find_request(follow_redirects=False)["redirects"] == 0
    assert find_request(timeout=2)["timeout"] == "PT2.000S"
    found = find_request(
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
def test_the_request_of_a_webhook_is_not_sent_by_a_method_without_a_body(method: str) -> None:
    nodes = [webhook(), http(method=method)]
    done = perform(graph(nodes, "t -> h"), REQUEST, kinds={"provider": answer(200)})
    [(_kind, request)] = done.harness.asked
    assert "4711" not in str(request)
    assert "secret" not in str(request)
    assert done.of_type("node.warning") == []


def test_a_body_for_a_method_without_a_body_is_warned_of() -> None:
    done = send_request(answer(200), {"body": {"q": 1}})
    assert "json" not in done.harness.asked[0][1]["with"]
    [warning] = done.of_type("node.warning")
    assert warning.code == "graph.body_unsent"
    assert "GET takes a body only from the configurations" in warning.reason
    assert find_request({"body": {"q": 1}}, body={"query": 2})["json"] == {"query": 2}


def test_the_body_type_decides_how_a_body_is_sent() -> None:
    assert find_request(method="POST", body={"a": "{{ input.n }}"}, input={"n": 1})["json"] == {"a": "1"}
    assert find_request({"body": [1]}, method="POST", body={"a": 1})["json"] == [1]
    form = find_request({"body": {"a": "b c"}}, method="POST", body_type="form")
    assert form["body"] == "a=b+c"
    assert form["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert find_request({"body": "raw"}, method="PUT", body_type="raw")["body"] == "raw"
    assert find_request({"body": 1}, method="POST", body_type="none")["body"] == ""
    assert "body" not in find_request()
    assert "json" not in find_request()


def test_a_request_has_the_header_of_its_authorization() -> None:
    bearer = find_request(auth_type="bearer", auth_config={"token": "s"})
    assert bearer["headers"]["authorization"] == "Bearer s"
    basic = find_request(auth_type="basic", auth_config={"username": "u", "password": "p"})
    assert basic["headers"]["authorization"] == "Basic dTpw"


# -- RUN_CODE ----------------------------------------------------------------------------------------------------------


def test_run_code_calls_its_function_with_its_input() -> None:
    own = node("c", "ACTION", "RUN_CODE", code="def run(data):\n    return data")
    done = perform_node(own, {"x": 1}, kinds={"code": answers({"results": [{"value": {"y": 2}}]})})
    assert done.out("c") == {"y": 2}
    [(_kind, request)] = done.harness.asked
    assert (request["function"], request["inputs"], request["wrap"]) == ("run", [{"x": 1}], False)
    assert set(request["limits"]) == {"wall_s", "cpu_s", "memory_bytes", "output_bytes"}


def test_run_code_wraps_statements_in_a_function() -> None:
    own = node("c", "ACTION", "RUN_CODE", code="result = input_data['x'] + 1")
    done = perform_node(own, {"x": 1}, kinds={"code": answers({"results": [{"value": 2}]})})
    [(_kind, request)] = done.harness.asked
    namespace: dict[str, Any] = {}
    exec(request["source"], namespace)
    assert namespace[request["function"]]({"x": 1}) == 2


def test_run_code_fails_with_the_error_of_its_code_or_without_code() -> None:
    carry = answers({"results": [{"error": "zero"}]})
    done = perform_node(node("c", "ACTION", "RUN_CODE", code="lambda x: 1/0"), {}, kinds={"code": carry})
    assert done.record("c")["error"]["error_message"] == "zero"
    assert perform_node(node("c", "ACTION", "RUN_CODE"), {}).record("c")["status"] == "FAILED"
