"""Rules of graphs: new runs follow the latest rules, and older logs replay without a divergence."""

from typing import Any

import pytest

from callboard.languages.graph import admit, rules
from callboard.projections.projection import fold
from callboard.projections.results.graph import GraphExecution
from tests.support.graphs import Performance, answers, flow, graph, node, perform, step, webhook


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Runs are admitted by the rules that there were before the one that a test names."""
    monkeypatch.setattr(admit, "LATEST", getattr(rules, request.param) - 1)


def alone(own: dict[str, Any], input: Any, *others: dict[str, Any]) -> Performance:
    return perform(graph([own, *others], triggers=[]), input, start_from_node=own["id"])


def test_the_latest_rule_is_the_last() -> None:
    numbers = [value for name, value in vars(rules).items() if name.isupper() and name not in ("LATEST", "RULES")]
    assert sorted(numbers) == list(range(1, rules.LATEST + 1))


# -- paths of members --------------------------------------------------------------------------------------------------

PATHS = [
    ("first name", {"first name": "Ada"}, "Ada"),
    ("user-id", {"user-id": 7}, 7),
    ("2024.sum", {"2024": {"sum": 3}}, 3),
    ("true", {"true": 1}, 1),
    ("0.k", [[{"k": 1}]], [1]),
    ("lines.1.price", {"lines": [{"price": 1}, {"price": 2}]}, 2),
    ("NAME", {"name": "x"}, "x"),
    ("data.a", {"a": 1}, 1),
    ("data.a", {"data": {"a": 2}, "a": 1}, 2),
    ("input.a", {"a": 1}, 1),
    ("item.a", {"a": 1}, 1),
    ("config", {"a": 1}, None),
    ("other", {"a": 1}, None),
    ("null", {"a": 1}, None),
    ("$json.a", {"a": 1}, 1),
    ("lines[*].price", {"lines": [{"price": 1}, {"price": 2}]}, [1, 2]),
    ("add(a, 1)", {"a": 1}, 2),
]


@pytest.mark.parametrize(("path", "input", "expected"), PATHS)
def test_a_path_of_names_leads_to_members_of_the_data(path: str, input: Any, expected: Any) -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", transform_type="path", path=path)
    after = node("other", "FLOW", "SPLIT")
    done = perform(graph([after, own], "other -> x", triggers=[]), input, start_from_node="other")
    assert done.out("x")["transformed_data"] == expected


def test_an_item_that_lacks_a_field_has_none() -> None:
    items = [{"other": 2}, {"x": 1}]
    own = flow("f", "FILTER", filter_mode="include", filter_type="simple_condition")
    own["configurations"]["conditions"] = [{"field": "other", "operator": "exists"}]
    done = perform(graph([step("other"), own], "other -> f", triggers=[]), items, start_from_node="other")
    assert done.out("f", "passed")["filtered_data"] == [{"other": 2}]


@pytest.mark.parametrize("before", ["MEMBER_PATHS"], indirect=True)
def test_paths_that_were_recorded_led_elsewhere(before: None) -> None:
    own = node("x", "ACTION", "DATA_TRANSFORMATION", transform_type="path", path="config.path")
    assert alone(own, {"a": 1}).out("x")["transformed_data"] == "config.path"


# -- ranges ------------------------------------------------------------------------------------------------------------


def merged(items: Any, **configurations: Any) -> Any:
    own = flow("m", "MERGE", **{"merge_strategy": "concatenate", **configurations})
    return alone(own, items).out("m")["source_mapping"]


def test_the_range_of_a_source_has_its_last_item() -> None:
    assert merged([7, 8, 9]) == [{"source": "result", "range": [0, 2]}]
    union = {"merge_strategy": "union", "handle_duplicates": "remove_duplicates"}
    assert merged([7, 7, 9], **union) == [{"source": "result", "range": [0, 1]}]
    assert merged([]) == []


@pytest.mark.parametrize("before", ["INCLUSIVE_RANGES"], indirect=True)
def test_a_range_that_was_recorded_ended_behind_its_last_item(before: None) -> None:
    assert merged([7, 8, 9]) == [{"source": "result", "range": [0, 3]}]


@pytest.mark.parametrize(
    ("range", "expected"),
    [
        ({"min_value": 70, "max_value": 92}, [85, 92, 70]),
        ({"min_value": 70, "max_value": 92, "inclusive": True}, [85, 92, 70]),
        ({"min_value": 70, "max_value": 92, "inclusive": False}, [85]),
        ({"min_value": 85}, [85, 92]),
        ({"max_value": 70}, [65, 70]),
        ({"min_value": "{{ $trigger.data[3].score }}"}, [85, 92, 70]),
    ],
)
def test_a_condition_on_a_range(range: dict[str, Any], expected: list[int]) -> None:
    items = [{"score": score} for score in (85, 65, 92, 70, None, True)]
    required = {"filter_mode": "partition", "filter_type": "range_filter"}
    own = flow("f", "FILTER", **required, conditions=[{"field": "score", **range}])
    assert [item["score"] for item in alone(own, items).out("f", "passed")["filtered_data"]] == expected


# -- settings of turns -------------------------------------------------------------------------------------------------

SEARCHING = [{"tool_calls": [{"tool": "search", "input": {}}]}, {"text": "Found."}]


def later_turns() -> list[Any]:
    """How the turns of an agent with tools are bounded, but for the first."""
    own = node("ai", "AI_AGENT", "ANTHROPIC_CLAUDE", ["tools"], model="m", max_tokens=50, temperature=0.5, top_p=0.9)
    tools = node("tools", "TOOL", "NOTION_MCP_TOOL", available_tools=["search"])
    script = {"turns": {"ai": SEARCHING}, "tools": {"search": [{"output": 1}]}}
    done = perform(graph([own, tools], triggers=[]), "Hello?", start_from_node="ai", script=script)
    return [(call.max_output_tokens, call.temperature, call.parameters) for call in done.of_type("model.call")[1:]]


def test_what_an_agent_says_of_its_turns_holds_for_all() -> None:
    assert later_turns() == [(50, 0.5, {"top_p": 0.9})]


@pytest.mark.parametrize("before", ["LASTING_SETTINGS"], indirect=True)
def test_in_what_was_recorded_it_held_for_the_first(before: None) -> None:
    assert later_turns() == [(None, None, {})]


@pytest.mark.parametrize("before", ["TURN_PARAMETERS"], indirect=True)
def test_in_what_was_recorded_parameters_were_not_passed_on(before: None) -> None:
    assert later_turns() == [(50, 0.5, {})]


# -- plain objects -----------------------------------------------------------------------------------------------------

READING = {"type": "number", "value": 21, "unit": "C"}


def seen(written: Any) -> Any:
    """Return the outputs of a node with a configuration."""
    own = node("x", "ACTION", "DATA_TRANSFORMATION", transform_type="template_map", template_map=written)
    return alone(own, {}).out("x")["transformed_data"]


def test_an_object_with_more_than_a_schema_has_is_a_value() -> None:
    assert seen(READING) == READING
    assert seen({"type": "object", "default": {"a": 1}, "required": False}) == {"a": 1}
    assert seen({"type": "object", "default": {"a": 1}, "value": {"a": 2}, "description": "x"}) == {"a": 2}


def test_where_an_object_is_wanted_a_schema_is_one_of_an_object() -> None:
    own = flow("s", "SORT", sort_field="", order={"type": "string", "default": "desc"})
    assert alone(own, [1, 2]).out("s")["sorted_data"] == [2, 1]
    mapping = {"type": "string", "value": "id"}
    own = node("x", "ACTION", "DATA_TRANSFORMATION", operation="map", field_mapping=mapping)
    assert alone(own, {"string": 1, "id": 2}).out("x")["transformed_data"] == {"type": 1, "value": 2}


def test_what_a_node_declares_without_a_value_is_empty() -> None:
    own = step("a")
    own["output_params"] = {
        "n": {"type": "integer"},
        "s": {"type": "string", "required": True, "description": "x"},
        "l": {"type": "list"},
        "o": {"type": "object"},
        "b": {"type": "boolean", "default": True},
        "r": READING,
    }
    assert alone(own, {}).out("a") == {"n": 0, "s": "", "l": [], "o": {}, "b": True, "r": READING}


@pytest.mark.parametrize("before", ["PLAIN_OBJECTS"], indirect=True)
def test_in_what_was_recorded_it_was_its_value(before: None) -> None:
    assert seen(READING) == 21


# -- filters without a criterion ---------------------------------------------------------------------------------------


def filtered(mode: str, **configurations: Any) -> Any:
    required = {"filter_mode": mode, "filter_type": "simple_condition", "conditions": []}
    return alone(flow("f", "FILTER", **{**required, **configurations}), [1, 2]).out("f", "passed")["filtered_data"]


@pytest.mark.parametrize("mode", ["include", "exclude", "partition"])
def test_a_filter_without_a_criterion_keeps_all(mode: str) -> None:
    assert filtered(mode) == [1, 2]


def test_one_with_a_criterion_excludes_what_meets_it() -> None:
    assert filtered("exclude", expression="item > 1") == [1]


@pytest.mark.parametrize("before", ["NO_CRITERION"], indirect=True)
def test_in_what_was_recorded_it_excluded_all(before: None) -> None:
    assert filtered("exclude") == []


# -- nulls in an order -------------------------------------------------------------------------------------------------

NAMES = [{"name": "Charlie"}, {"name": None}, {"name": "Alice"}, {}, {"name": "Bob"}]


@pytest.mark.parametrize(("order", "indices"), [("asc", [2, 4, 0, 1, 3]), ("desc", [0, 4, 2, 1, 3])])
def test_what_has_nothing_to_sort_by_comes_last(order: str, indices: list[int]) -> None:
    found = alone(flow("s", "SORT", sort_field="name", order=order), NAMES).out("s")
    assert found["original_indices"] == indices
    assert found["sort_stats"]["items_sorted"] == 5


@pytest.mark.parametrize("before", ["NULLS_LAST"], indirect=True)
def test_in_what_was_recorded_it_left_all_as_it_was(before: None) -> None:
    assert alone(flow("s", "SORT", sort_field="name"), NAMES).out("s")["original_indices"] == [0, 1, 2, 3, 4]


# -- starts by hand ----------------------------------------------------------------------------------------------------


def by_hand(input: Any) -> Any:
    return perform(graph([node("t", "TRIGGER", "MANUAL", trigger_name="x"), step("a")], "t -> a"), input).took("a")


EMPTY = {"trigger_time": "", "execution_id": "", "user_id": "", "trigger_message": ""}


def test_what_a_start_by_hand_brings_goes_on_whole() -> None:
    assert by_hand({"order": {"id": 7}, "user_id": 5}) == {**EMPTY, "order": {"id": 7}, "user_id": "5"}
    assert by_hand([1]) == [1]


@pytest.mark.parametrize("before", ["WHOLE_INPUT"], indirect=True)
def test_in_what_was_recorded_it_was_left_behind(before: None) -> None:
    assert by_hand({"order": {"id": 7}}) == EMPTY


# -- texts for people --------------------------------------------------------------------------------------------------


def asked(input: Any) -> str:
    """Return the question that a person reads about an input."""
    text = "{{ amount }} {{ content.amount }} {{ who }} {{ content }}"
    own = node("h", "HUMAN_IN_THE_LOOP", "IN_APP_APPROVAL", message=text, timeout_seconds=60, timeout_action="continue")
    done = perform(graph([own], triggers=[]), input, start_from_node="h", user_id="u")
    [question] = done.of_type("human.asked")
    return question.question


def test_a_text_for_people_finds_what_the_content_has() -> None:
    assert asked({"content": {"amount": 7}, "who": "Ada"}) == '7 7 Ada {"amount":7}'
    assert asked({"content": {"amount": 7, "who": "Joan"}, "who": "Ada"}) == '7 7 Ada {"amount":7,"who":"Joan"}'
    assert asked({"amount": 7, "who": "Ada"}) == '7 7 Ada {"amount":7,"who":"Ada"}'
    assert asked({"content": "text"}) == "   text"


@pytest.mark.parametrize("before", ["CONTENT_MEMBERS"], indirect=True)
def test_in_what_was_recorded_the_content_was_the_input(before: None) -> None:
    assert asked({"content": {"amount": 7}}) == '   {"content":{"amount":7}}'


# -- people ------------------------------------------------------------------------------------------------------------


def interactions(run: str) -> tuple[str, str]:
    """The id of an interaction in the output of its node, and in its row."""
    person = node("h", "HUMAN_IN_THE_LOOP", "IN_APP_APPROVAL", timeout_action="continue")
    done = perform(graph([webhook(), person], "t -> h"), {"body": 1}, run=run)
    [row] = fold(GraphExecution(), done.events).hil_interactions
    assert row.interaction_key == "h#1.1!ask"
    return done.out("h")["interaction_id"], row.id


def test_interactions_of_two_executions_differ_in_their_ids() -> None:
    one, two = interactions("r1"), interactions("r2")
    assert one[0] == one[1]
    assert two[0] == two[1]
    assert one != two


@pytest.mark.parametrize("before", ["INTERACTION_IDS"], indirect=True)
@pytest.mark.usefixtures("before")
def test_interactions_had_the_key_of_their_question() -> None:
    assert interactions("r1")[0] == "h#1.1!ask"


@pytest.mark.parametrize("before", ["OWN_TOKENS"], indirect=True)
@pytest.mark.usefixtures("before")
def test_a_subtype_without_a_table_sent_no_token() -> None:
    own = node(
        "h", "HUMAN_IN_THE_LOOP", "IN_APP_APPROVAL", channel_type="slack", bot_token="x", timeout_action="continue"
    )
    done = perform(graph([webhook(), own], "t -> h"), {"body": 1}, kinds={"channel": answers({"ok": True})})
    assert "bot_token" not in done.harness.asked[0][1]["channel_config"]


# -- errors ------------------------------------------------------------------------------------------------------------

REFUSAL: dict[str, Any] = {
    "success": False,
    "error_code": "missing_oauth_token",
    "error_message": "no token",
    "error_details": {"reason": "missing_oauth_token"},
}


def error_of(own: dict[str, Any], *, user: str = "u") -> dict[str, Any]:
    written = graph([own], triggers=[])
    written["metadata"]["created_by"] = user
    done = perform(written, {}, start_from_node=own["id"], kinds={"service": answers(REFUSAL)})
    return done.record(own["id"])["error"]


@pytest.mark.parametrize("before", ["OWN_ERROR_CODES"], indirect=True)
@pytest.mark.usefixtures("before")
def test_codes_of_errors_were_nested() -> None:
    error = error_of(node("s", "EXTERNAL_ACTION", "SLACK", action_type="send_message", channel="#x"))
    assert error["error_code"] == "NODE_EXECUTION_FAILED"
    assert error["error_details"]["error_code"] == "missing_oauth_token"
    error = error_of(node("h", "HUMAN_IN_THE_LOOP", "IN_APP_APPROVAL"), user="")
    assert (error["error_code"], error["error_details"]["error_code"]) == ("NODE_EXEC_ERROR", "missing_user_id")


# -- inputs of triggers, bodies, memories, last calls ------------------------------------------------------------------


@pytest.mark.parametrize("before", ["WHOLE_TRIGGERS"], indirect=True)
def test_in_what_was_recorded_a_webhook_left_out_what_it_does_not_declare(before: None) -> None:
    assert "who" not in perform(graph([webhook(), step("a")], "t -> a"), {"who": "Ada"}).took("a")


@pytest.mark.parametrize("before", ["METHOD_BODIES"], indirect=True)
def test_in_what_was_recorded_every_method_sent_the_body_of_the_input(before: None) -> None:
    own = node("h", "ACTION", "HTTP_REQUEST", method="GET", url="https://example.com/")
    value = {"result": {"type": "success", "value": {"status": 200}}, "metadata": {}}
    done = perform(graph([own], triggers=[]), {"body": 1}, start_from_node="h", kinds={"provider": answers(value)})
    assert done.harness.asked[0][1]["with"]["json"] == 1


@pytest.mark.parametrize("before", ["MEMORY_TEMPLATES"], indirect=True)
def test_in_what_was_recorded_a_memory_was_asked_with_the_template_itself(before: None) -> None:
    own = node("m", "MEMORY", "KEY_VALUE_STORE", storage_backend="memory", key="{{ input.who }}")
    done = perform(graph([own], triggers=[]), {"who": "A"}, start_from_node="m", kinds={"memory": answers({})})
    assert done.harness.asked[0][1]["memory"]["configurations"]["key"] == "{{ input.who }}"


@pytest.mark.parametrize("before", ["LAST_CALLS"], indirect=True)
def test_in_what_was_recorded_the_calls_of_the_last_turn_were_not_made(before: None) -> None:
    own = node("ai", "AI_AGENT", "ANTHROPIC_CLAUDE", ["tools"], model="m", max_tool_iterations=1)
    tools = node("tools", "TOOL", "NOTION_MCP_TOOL", available_tools=["search"])
    script = {"turns": {"ai": SEARCHING}, "tools": {"search": [{"output": 1}]}}
    done = perform(graph([own, tools], triggers=[]), "Hello?", start_from_node="ai", script=script)
    assert (done.of_type("tool.call"), done.of_type("node.warning")) == ([], [])
