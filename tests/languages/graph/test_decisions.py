"""Decisions of nodes: paths and ranges, settings of turns, objects and schemas, filters, and what triggers pass on."""

from typing import Any

import pytest

from callboard.projections.projection import fold
from callboard.projections.results.graph import GraphExecution
from tests.support.graphs import flow, graph, node, perform, perform_node, step, webhook

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


# -- ranges ------------------------------------------------------------------------------------------------------------


def merged(items: Any, **configurations: Any) -> Any:
    own = flow("m", "MERGE", **{"merge_strategy": "concatenate", **configurations})
    return perform_node(own, items).out("m")["source_mapping"]


def test_the_range_of_a_source_has_its_last_item() -> None:
    assert merged([7, 8, 9]) == [{"source": "result", "range": [0, 2]}]
    union = {"merge_strategy": "union", "handle_duplicates": "remove_duplicates"}
    assert merged([7, 7, 9], **union) == [{"source": "result", "range": [0, 1]}]
    assert merged([]) == []


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
    assert [item["score"] for item in perform_node(own, items).out("f", "passed")["filtered_data"]] == expected


# -- settings of turns -------------------------------------------------------------------------------------------------

SEARCHING = [{"tool_calls": [{"tool": "search", "input": {}}]}, {"text": "Found."}]


def later_turns() -> list[Any]:
    """How the turns of an agent with tools are bounded, but for the first."""
    own = node("ai", "AI_AGENT", "ANTHROPIC_CLAUDE", ["tools"], model="m", max_tokens=50, temperature=0.5, top_p=0.9)
    tools = node("tools", "TOOL", "NOTION_MCP_TOOL", available_tools=["search"])
    script = {"turns": {"ai": SEARCHING}, "tools": {"search": [{"output": 1}]}}
    done = perform(graph([own, tools], triggers=[]), "Hello?", start_from_node="ai", script=script)
    return [(call.max_output_tokens, call.temperature, call.parameters) for call in done.of_type("model.call")[1:]]


def test_the_settings_of_an_agent_hold_for_all_its_turns() -> None:
    assert later_turns() == [(50, 0.5, {"top_p": 0.9})]


# -- plain objects -----------------------------------------------------------------------------------------------------

READING = {"type": "number", "value": 21, "unit": "C"}


def seen(written: Any) -> Any:
    """Return the outputs of a node with a configuration."""
    own = node("x", "ACTION", "DATA_TRANSFORMATION", transform_type="template_map", template_map=written)
    return perform_node(own, {}).out("x")["transformed_data"]


def test_an_object_with_more_than_a_schema_has_is_a_value() -> None:
    assert seen(READING) == READING
    assert seen({"type": "object", "default": {"a": 1}, "required": False}) == {"a": 1}
    assert seen({"type": "object", "default": {"a": 1}, "value": {"a": 2}, "description": "x"}) == {"a": 2}


def test_a_setting_of_type_object_is_read_from_a_schema_of_an_object_only() -> None:
    own = flow("s", "SORT", sort_field="", order={"type": "string", "default": "desc"})
    assert perform_node(own, [1, 2]).out("s")["sorted_data"] == [2, 1]
    mapping = {"type": "string", "value": "id"}
    own = node("x", "ACTION", "DATA_TRANSFORMATION", operation="map", field_mapping=mapping)
    assert perform_node(own, {"string": 1, "id": 2}).out("x")["transformed_data"] == {"type": 1, "value": 2}


def test_declared_members_without_a_value_are_empty() -> None:
    own = step("a")
    own["output_params"] = {
        "n": {"type": "integer"},
        "s": {"type": "string", "required": True, "description": "x"},
        "l": {"type": "list"},
        "o": {"type": "object"},
        "b": {"type": "boolean", "default": True},
        "r": READING,
    }
    assert perform_node(own, {}).out("a") == {"n": 0, "s": "", "l": [], "o": {}, "b": True, "r": READING}


# -- filters without a criterion ---------------------------------------------------------------------------------------


def filtered(mode: str, **configurations: Any) -> Any:
    required = {"filter_mode": mode, "filter_type": "simple_condition", "conditions": []}
    return perform_node(flow("f", "FILTER", **(required | configurations)), [1, 2]).out("f", "passed")["filtered_data"]


@pytest.mark.parametrize("mode", ["include", "exclude", "partition"])
def test_a_filter_without_a_criterion_keeps_all(mode: str) -> None:
    assert filtered(mode) == [1, 2]


def test_a_filter_excludes_items_that_meet_its_criterion() -> None:
    assert filtered("exclude", expression="item > 1") == [1]


# -- starts by hand ----------------------------------------------------------------------------------------------------


def trigger_manually(input: Any) -> Any:
    return perform(graph([node("t", "TRIGGER", "MANUAL", trigger_name="x"), step("a")], "t -> a"), input).took("a")


EMPTY = {"trigger_time": "", "execution_id": "", "user_id": "", "trigger_message": ""}


def test_a_manual_trigger_passes_on_its_whole_input() -> None:
    assert trigger_manually({"order": {"id": 7}, "user_id": 5}) == {**EMPTY, "order": {"id": 7}, "user_id": "5"}
    assert trigger_manually([1]) == [1]


# -- texts for people --------------------------------------------------------------------------------------------------


def asked(input: Any) -> str:
    """Return the question that a person reads about an input."""
    text = "{{ amount }} {{ content.amount }} {{ who }} {{ content }}"
    own = node("h", "HUMAN_IN_THE_LOOP", "IN_APP_APPROVAL", message=text, timeout_seconds=60, timeout_action="continue")
    done = perform(graph([own], triggers=[]), input, start_from_node="h", user_id="u")
    [question] = done.of_type("human.asked")
    return question.question


def test_a_text_for_people_may_name_members_of_the_content() -> None:
    assert asked({"content": {"amount": 7}, "who": "Ada"}) == '7 7 Ada {"amount":7}'
    assert asked({"content": {"amount": 7, "who": "Joan"}, "who": "Ada"}) == '7 7 Ada {"amount":7,"who":"Joan"}'
    assert asked({"amount": 7, "who": "Ada"}) == '7 7 Ada {"amount":7,"who":"Ada"}'
    assert asked({"content": "text"}) == "   text"


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
