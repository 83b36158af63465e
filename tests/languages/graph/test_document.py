"""Graph documents: their schema, the registry of node types, and problems with their places."""

import json
from typing import Any

import pytest

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.languages import registry
from callboard.languages.graph.admit import outline
from callboard.languages.graph.coercion import UNFIT, coerce
from callboard.languages.graph.language import LANGUAGE
from callboard.languages.graph.node_specs import NODE_TYPES, is_known, node_type, spec_of
from callboard.languages.plan import Plan
from tests.support.graphs import condition, flow, graph, node, parsed, perform, problems_of, step, webhook


def find_problems(written: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.where) for problem in problems_of(written)]


# -- the registry ------------------------------------------------------------------------------------------------------

WITH_TABLE = {
    "TRIGGER": "MANUAL WEBHOOK CRON GITHUB SLACK EMAIL",
    "AI_AGENT": "OPENAI_CHATGPT ANTHROPIC_CLAUDE GOOGLE_GEMINI",
    "EXTERNAL_ACTION": "SLACK GITHUB NOTION GOOGLE_CALENDAR FIRECRAWL DISCORD_ACTION TELEGRAM_ACTION",
    "ACTION": "HTTP_REQUEST DATA_TRANSFORMATION",
    "FLOW": "IF LOOP MERGE FILTER SORT WAIT DELAY",
    "HUMAN_IN_THE_LOOP": (
        "SLACK_INTERACTION GMAIL_INTERACTION OUTLOOK_INTERACTION DISCORD_INTERACTION TELEGRAM_INTERACTION MANUAL_REVIEW"
    ),
    "TOOL": "NOTION_MCP_TOOL GOOGLE_CALENDAR_MCP_TOOL SLACK_MCP_TOOL FIRECRAWL_MCP_TOOL DISCORD_MCP_TOOL",
    "MEMORY": "VECTOR_DATABASE CONVERSATION_BUFFER KEY_VALUE_STORE",
}


def test_every_type_has_its_subtypes() -> None:
    expected = {name: set(subtypes.split()) for name, subtypes in WITH_TABLE.items()}
    assert {name: set(node_type(name).subtypes) for name in NODE_TYPES} == expected
    assert "SWITCH" not in node_type("FLOW").unspecified
    for subtype in ("SPLIT", "FOR_EACH", "TIMEOUT", "WHILE"):
        assert is_known("FLOW", subtype)
        assert spec_of("FLOW", subtype) is None


def test_defaults_fit_their_types_and_options() -> None:
    for name in NODE_TYPES:
        for spec in node_type(name).subtypes.values():
            for part in (spec.configurations, spec.input_params, spec.output_params):
                for key, field in part.items():
                    assert coerce(field.default, field.type) == field.default, (spec.subtype, key)
                    chosen = field.default if isinstance(field.default, list) else [field.default]
                    if field.options and field.default:
                        assert set(chosen) <= set(field.options), (spec.subtype, key)
                    assert set(field.instead).isdisjoint({key})


def test_a_node_type_has_the_fields_of_its_table() -> None:
    spec = spec_of("FLOW", "WAIT")
    assert spec is not None
    interval = spec.configurations["check_interval_seconds"]
    assert (interval.type, interval.default, interval.min, interval.max) == ("number", 5.0, 0.1, 300)
    assert spec.configurations["wait_type"].required
    assert spec.output_params["wait_result"].default["timeout_occurred"] is False
    loop = spec_of("FLOW", "LOOP")
    assert loop is not None
    assert loop.configurations["end_value"].default == 10
    assert loop.output_params["iteration_results"].default == []


# -- coercion ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        ("5", "integer", 5),
        (" 5.0 ", "integer", 5),
        ("1.5", "integer", UNFIT),
        (2.0, "integer", 2),
        (True, "integer", UNFIT),
        ("", "integer", UNFIT),
        ("1e3", "number", 1000.0),
        ("nan", "number", UNFIT),
        ("9" * 400, "number", UNFIT),
        ("TRUE", "boolean", True),
        (0, "boolean", False),
        ("1", "boolean", True),
        ("yes", "boolean", UNFIT),
        (2, "boolean", UNFIT),
        (5, "string", "5"),
        (True, "string", "true"),
        ([1], "string", UNFIT),
        ('{"a": 1}', "object", {"a": 1}),
        ("[1]", "object", UNFIT),
        ("[1]", "array", [1]),
        ("nope", "array", UNFIT),
        (None, "integer", None),
        ("{{input.n}}", "integer", "{{input.n}}"),
    ],
)
def test_a_value_is_coerced_to_its_type(value: Any, type: Any, expected: Any) -> None:
    found = coerce(value, type)
    assert (
        found is expected
        if expected is UNFIT
        else (found == expected and isinstance(found, bool) == isinstance(expected, bool))
    )


def test_configurations_are_coerced_and_read_from_schema_objects() -> None:
    written = graph(
        [
            webhook(allowed_methods='["GET"]'),
            flow("d", "DELAY", duration_seconds={"type": "number", "default": 3, "value": "7"}),
            flow("l", "LOOP", loop_type={"type": "string", "default": "for_each"}, max_iterations="5"),
        ],
        "t -> d",
    )
    nodes = parsed(written).document.nodes
    assert nodes["t"].configurations["allowed_methods"] == ["GET"]
    assert nodes["d"].setting("duration_seconds") == 7
    assert nodes["l"].configurations == {"loop_type": "for_each", "max_iterations": 5}
    assert nodes["l"].setting("end_value") == 10


def test_a_value_that_cannot_be_converted_names_node_and_key() -> None:
    [problem] = problems_of(graph([webhook(), flow("d", "DELAY", duration_seconds="soon", timeout="later")][:2]))[:1]
    assert (problem.code, problem.where) == ("BAD_CONFIGURATION", "nodes[1].configurations.duration_seconds")
    assert "node d (FLOW.DELAY): duration_seconds" in problem.message


# -- problems ----------------------------------------------------------------------------------------------------------


def test_all_problems_are_reported_together() -> None:
    written = graph(
        [
            node("t", "TRIGGER", "WEBHOOK"),
            flow("i", "IF"),
            {**step("i"), "name": "two words"},
            node("ai", "AI_AGENT", "MISTRAL", attached=["t", "gone"], model="x"),
            node("s", "FLOW", "SORT", attached=["t"], order="asc"),
        ],
        "t -> nowhere",
        "nowhere2 -> t",
        triggers=["i", "none"],
    )
    assert set(find_problems(written)) == {
        ("MISSING_CONFIGURATION", "nodes[0].configurations"),
        ("MISSING_CONFIGURATION", "nodes[1].configurations"),
        ("DUPLICATE_NODE", "nodes[2].id"),
        ("BLANK_IN_NAME", "nodes[2].name"),
        ("UNKNOWN_PROVIDER", "nodes[3].subtype"),
        ("ATTACHMENT", "nodes[3].attached_nodes[0]"),
        ("UNKNOWN_NODE", "nodes[3].attached_nodes[1]"),
        ("ATTACHMENT", "nodes[4].attached_nodes"),
        ("MISSING_CONFIGURATION", "nodes[4].configurations"),
        ("UNKNOWN_NODE", "connections[0].to_node"),
        ("UNKNOWN_NODE", "connections[1].from_node"),
        ("NOT_A_TRIGGER", "triggers[0]"),
        ("UNKNOWN_NODE", "triggers[1]"),
    }


def test_problems_of_schema_and_meaning_are_reported_together() -> None:
    found = find_problems(
        {"metadata": {"id": 5}, "nodes": [{"id": "a", "type": "FLOW", "subtype": "SORT"}], "triggers": ["b"]}
    )
    assert {("SCHEMA", "metadata.id"), ("SCHEMA", "metadata.name"), ("SCHEMA", "nodes[0].name")} <= set(found)
    assert ("MISSING_CONFIGURATION", "nodes[0].configurations") in found
    assert ("UNKNOWN_NODE", "triggers[0]") in found


@pytest.mark.parametrize("written", ["[]", "3", '{"nodes": []}', '{"metadata": {"id": "g", "name": "g"}, "nodes": []}'])
def test_a_text_that_is_not_a_graph_is_refused(written: str) -> None:
    assert problems_of(written)


def test_a_required_configuration_may_be_empty_and_may_have_another_name() -> None:
    for written in (
        condition("i", ""),
        flow("i", "IF", expression="true"),
        flow("f", "FILTER", predicate_expression="true"),
        node("h", "ACTION", "HTTP_REQUEST", method="GET", endpoint="https://example.com"),
        node("x", "ACTION", "DATA_TRANSFORMATION", transform_type="path"),
        node("s", "EXTERNAL_ACTION", "SLACK", action="send_message", channel="#x", message="hi"),
        node("q", "HUMAN_IN_THE_LOOP", "SLACK_INTERACTION", interaction_type="approval"),
    ):
        parsed(graph([webhook(), written]))


def test_an_attached_node_is_validated_and_is_not_part_of_the_graph() -> None:
    memory = node("m", "MEMORY", "CONVERSATION_BUFFER")
    tool = node("w", "TOOL", "SLACK_MCP_TOOL", mcp_server_url="http://localhost:1/mcp")
    ai = node("ai", "AI_AGENT", "ANTHROPIC_CLAUDE", attached=["m", "w"], model="claude")
    found = parsed(graph([webhook(), ai, memory, tool], "t -> ai", "m -> ai", "ai -> m")).document
    assert set(found.nodes) == {"t", "ai"}
    assert set(found.attached) == {"m", "w"}
    assert [(wire.source, wire.target) for wire in found.wires] == [("t", "ai")]
    broken = node("v", "MEMORY", "VECTOR_DATABASE")
    ai["attached_nodes"] = ["v"]
    assert {code for code, _where in find_problems(graph([webhook(), ai, broken]))} == {"MISSING_CONFIGURATION"}


@pytest.mark.parametrize(
    ("wires", "cycle"),
    [
        (["t -> a", "a -> b", "b -> c", "c -> a"], "a → b → c → a"),
        (["a -> a"], "a → a"),
        (["b -> c", "c -> b"], "b → c → b"),
    ],
)
def test_cycles_are_refused_even_if_they_are_unreachable(wires: list[str], cycle: str) -> None:
    [problem] = problems_of(graph([webhook(), step("a"), step("b"), step("c")], *wires))
    assert problem.code == "CYCLE"
    path = problem.message.removeprefix("the graph contains a cycle: ").split(" → ")
    assert path[0] == path[-1]
    assert set(path) == set(cycle.split(" → "))
    assert f"{path[0]} -> {path[1]}" in wires


@pytest.mark.parametrize("end", ["from_node", "to_node"])
@pytest.mark.parametrize("value", [["a"], {"id": "a"}], ids=["list", "object"])
def test_an_end_of_a_connection_that_is_not_a_text_is_a_problem_at_its_place(end: str, value: Any) -> None:
    written = graph([webhook(), step("a"), step("b")], "t -> a", "a -> b")
    written["connections"][1][end] = value
    assert ("SCHEMA", f"connections[1].{end}") in find_problems(written)


def test_an_unknown_node_type_is_warned_of() -> None:
    definition = parsed(graph([webhook(), node("a", "FLOW", "SWITCH", x=1), node("b", "ROBOT", "X")]))
    assert [(problem.code, problem.where) for problem in definition.warnings] == [
        ("UNKNOWN_TYPE", "nodes[1].subtype"),
        ("UNKNOWN_TYPE", "nodes[2].type"),
    ]


def test_ports_positions_and_unknown_members_are_accepted() -> None:
    one = {**step("a"), "input_ports": [{"id": "x"}], "output_ports": [], "position": None, "colour": "red"}
    parsed({**graph([webhook(), one], "t -> a"), "settings": {}})


def test_a_bad_condition_is_refused() -> None:
    [problem] = problems_of(graph([webhook(), condition("i", "$json.n >")]))
    assert (problem.code, problem.where) == ("EXPRESSION", "nodes[1].configurations.condition_expression")


def test_a_document_may_be_yaml() -> None:
    found = LANGUAGE.parse(
        """
metadata: {id: g, name: g}
nodes:
  - {id: t, name: t, type: TRIGGER, subtype: MANUAL, configurations: {trigger_name: x}}
"""
    )
    assert not isinstance(found, list)
    assert found.document.triggers == ()


def test_the_registry_recognises_graphs() -> None:
    assert registry.detect(json.dumps(graph([webhook()]))) == "graph"
    assert registry.detect('{"metadata": {},\n"nodes": [}') == "graph"
    assert registry.detect("id: w\nname: W\nentry: a\nnodes: {}\nedges: []\n") == "workflow"


# -- starts ------------------------------------------------------------------------------------------------------------


def test_a_start_from_an_unknown_node_is_refused() -> None:
    definition = parsed(graph([webhook(), step("begin")]))
    options = {"start_from_node": "begun", "paralel": True}
    start = StartRun(DefinitionSource("graph"), options=options, arguments={"a": 1}, breakpoints=["x"], state={})
    found = LANGUAGE.admit(definition, start)
    assert isinstance(found, list)
    assert {(problem.code, problem.where) for problem in found} == {
        ("UNKNOWN_NODE", "options.start_from_node"),
        ("SCHEMA", "options.paralel"),
        ("SCHEMA", "arguments"),
        ("SCHEMA", "state"),
        ("UNKNOWN_BREAKPOINT", "breakpoints[0]"),
    }


@pytest.mark.parametrize(
    ("input", "warned"),
    [
        ({"who": "Ada"}, True),
        ({"body": {"who": "Ada"}, "extra": 1}, False),
        ({"message": "Hello"}, False),
        ({}, False),
        ("Hello", False),
    ],
)
def test_an_input_that_does_not_look_like_a_request_is_warned_of(input: Any, warned: bool) -> None:
    start = StartRun(DefinitionSource("graph"), input=input)
    plan = LANGUAGE.admit(parsed(graph([webhook(), step("a")], "t -> a")), start)
    assert isinstance(plan, Plan)
    assert [(one.code, one.where, one.severity) for one in plan.warnings] == (
        [("NOT_A_REQUEST", "input", "warning")] if warned else []
    )


def test_skipping_the_validation_of_triggers_has_no_effect() -> None:
    done = perform(graph([webhook(), step("a")], "t -> a"), {"body": 1}, skip_trigger_validation=True)
    assert done.sequence == ["t", "a"]


def test_the_outline_has_the_nodes_and_edges_of_the_graph() -> None:
    found = outline(parsed(graph([webhook(), condition("i", "true"), step("a")], "t -> i", "i.true -> a")).document)
    assert [(one.id, one.type, one.subtype) for one in found.nodes] == [
        ("t", "TRIGGER", "WEBHOOK"),
        ("i", "FLOW", "IF"),
        ("a", "FLOW", "SPLIT"),
    ]
    assert [(one.source, one.target, one.when) for one in found.edges] == [("t", "i", None), ("i", "a", "true")]


# -- V1 ----------------------------------------------------------------------------------------------------------------

V1: dict[str, Any] = {
    "name": "Weather",
    "nodes": [
        {
            "id": "daily",
            "name": "每日触发器",
            "type": "TRIGGER_NODE",
            "subtype": "CRON",
            "parameters": {"cron": "0 8 * * *"},
        },
        {"id": "fetch", "name": "get it", "type": "ACTION_NODE", "subtype": "HTTP_REQUEST", "parameters": {"url": "x"}},
    ],
    "connections": {"daily": {"main": [{"node": "fetch", "port": "main"}]}},
    "settings": {"execution": {"timeout": 300}},
}


def test_a_definition_of_v1_is_refused_in_one_sentence() -> None:
    [problem] = problems_of(json.dumps(V1))
    assert (problem.code, problem.where, problem.line) == ("V1_DEFINITION", "nodes[0].type", 1)
    for change in ("`metadata`", "TRIGGER for TRIGGER_NODE", "`configurations`", "`connections` a list"):
        assert change in problem.message
    assert registry.detect(json.dumps(V1)) == "graph"


def test_the_message_names_only_the_members_that_are_of_v1() -> None:
    listed = {**V1, "metadata": {"id": "w", "name": "w"}, "connections": []}
    [problem] = problems_of(listed)
    assert ("connections" in problem.message, "metadata" in problem.message) == (False, False)
    second = graph([webhook(), step("s")], "t -> s")
    [problem] = problems_of({**second, "connections": V1["connections"]})
    assert (problem.code, problem.where) == ("V1_DEFINITION", "connections")
    assert {one.code for one in problems_of({**second, "connections": "none"})} == {"SCHEMA"}
