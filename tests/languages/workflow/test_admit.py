"""The contents of a start: input (checklist 12–20), options, files and breakpoints."""

from typing import Any

import pytest

from callboard.languages.workflow.admit import MAX_STEPS
from tests.support.workflows import admitted, codes_of, document, refused, run, scripted_skill

DECLARED: dict[str, Any] = {
    "label": {"type": "string", "required": True},
    "count": {"type": "number"},
    "draft": {"type": "boolean", "default": True},
    "tags": {"type": "string[]"},
    "audience": {"type": "string", "enum": ["drivers", "all"], "default": "all"},
    "level": {"type": "number", "enum": [1, 2.5]},
    "sets": {"type": "string[]", "enum": [["a"], ["b", "c"]]},
}
RAW = document({"a": {}}, inputs=DECLARED)


def test_12_to_18_all_problems_of_an_input_are_reported_together() -> None:
    given = {"count": "3", "draft": 1, "tags": ["x", 2], "audience": "nobody", "level": True, "sets": ["c", "b"]}
    problems = refused(RAW, input=given)
    fields = ("label", "count", "draft", "tags", "audience", "level", "sets")
    assert [(problem.code, problem.where) for problem in problems] == [("INPUT", f"input.{name}") for name in fields]
    by_field = {problem.where: problem for problem in problems}
    assert "required" in by_field["input.label"].message
    assert by_field["input.audience"].expected == "one of drivers, all"
    assert "a list of strings" in by_field["input.tags"].message


def test_an_undeclared_input_is_warned_of_if_others_are_declared() -> None:
    given = {"label": "x", "tgas": ["a"], "dryRun": False, "rules": "Be kind.", "context": "Here."}
    [warning] = admitted(RAW, input=given).warnings
    assert (warning.code, warning.where, warning.severity) == ("UNKNOWN_INPUT", "input.tgas", "warning")
    assert "did you mean 'tags'?" in warning.message
    assert admitted(document({"a": {}}), input={"any": 1}).warnings == ()


def test_a_config_value_that_no_skill_needs_is_warned_of() -> None:
    skill = scripted_skill("shop", "price", config={"SHOP_FLOOR": {"description": "Which floor."}})
    given = {"skills": [skill], "config": {"SHOP_FLOOR": "1", "SHOP_FLOR": "2"}}
    [warning] = admitted(document({"a": {"skills": ["shop"]}}), options=given).warnings
    assert (warning.code, warning.where, warning.severity) == ("UNKNOWN_CONFIG", "options.config.SHOP_FLOR", "warning")
    assert "did you mean 'SHOP_FLOOR'?" in warning.message


def test_12_null_counts_as_missing() -> None:
    [problem] = refused(RAW, input={"label": None})
    assert (problem.where, problem.expected) == ("input.label", "a string")


def test_13_a_number_is_finite_and_not_a_boolean() -> None:
    for value in (float("inf"), float("nan"), True, "1"):
        [problem] = refused(RAW, input={"label": "x", "count": value})
        assert problem.where == "input.count"
    assert admitted(RAW, input={"label": "x", "count": 1.5, "level": 1.0}).input["count"] == 1.5


def test_15_to_17_defaults_are_added_and_values_of_the_caller_are_kept() -> None:
    given = {"label": "x", "audience": None, "dryRun": True, "tags": None, "extra": {"y": 1}}
    expected = {"label": "x", "draft": True, "audience": "all", "dryRun": True, "extra": {"y": 1}}
    assert admitted(RAW, input=given).input == expected
    assert admitted(RAW, input={"label": "x", "draft": False}).input["draft"] is False


def test_an_undeclared_input_is_any_object_and_null_is_an_empty_one() -> None:
    assert admitted(document({"a": {}})).input == {}
    assert admitted(document({"a": {}}), input={"anything": [1]}).input == {"anything": [1]}
    for value in ([], "x", 3):
        [problem] = refused(document({"a": {}}), input=value)
        assert (problem.code, problem.where, problem.expected) == ("INPUT", "input", "an object")


@pytest.mark.parametrize("kind", ["pr_review", "e2e_test", "content_generation", "monitor", "data_sync", "generic"])
def test_20_inputs_do_not_depend_on_the_workflow_type(kind: str) -> None:
    raw = document({"a": {}}, inputs={"severity": {"type": "string", "required": True}}, workflow_type=kind)
    assert codes_of(raw) == []
    plan = admitted(raw, input={"severity": "high"})
    assert (plan.warnings, plan.definition.warnings) == ((), ())


def test_10_and_20_the_workflow_type_changes_nothing_in_a_run() -> None:
    runs = [run(document({"a": {}}, workflow_type=kind), input={"x": 1}) for kind in ("generic", "pr_review")]
    assert runs[0].fingerprint() == runs[1].fingerprint()


# -- options -----------------------------------------------------------------------------------------------------------


def test_options_have_defaults() -> None:
    options = admitted(document({"a": {}})).options
    assert options == {"max_steps": MAX_STEPS, "offline": False, "config": {}, "skills": []}


def test_all_problems_of_a_start_are_reported_together() -> None:
    skill = scripted_skill("Bad Id", "t")
    options = {"max_steps": 0, "skills": [skill, {"id": "x"}], "config": {"K": 1}, "maxSteps": 3}
    problems = refused(RAW, input={}, options=options, arguments={"x": 1}, state={}, breakpoints=["a", "nowhere"])
    assert sorted(problem.where for problem in problems) == [
        "arguments",
        "breakpoints[1]",
        "input.label",
        "options.config.K",
        "options.maxSteps",
        "options.max_steps",
        "options.skills[0].id",
        "options.skills[1].category",
        "options.skills[1].description",
        "options.skills[1].name",
        "state",
    ]


TOOL: dict[str, Any] = {"name": "t", "description": "", "input_schema": {}}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"id": "a--b"}, "id"),
        ({"id": "x" * 65}, "id"),
        ({"category": "fun"}, "category"),
        ({"tools": []}, ""),
        ({"tools": [{**TOOL, "input_schema": {"type": 5}}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "python": "os.system"}]}, "tools[0].python"),
        ({"tools": [{**TOOL, "nats": "a.*"}]}, "tools[0].nats"),
        ({"tools": [{**TOOL, "nats": "a", "python": "a:b"}]}, "tools[0]"),
        ({"tools": [TOOL] * 2}, ""),
        ({"config": {"K": {"required": True}}}, "config.K.description"),
        ({"config": {"K": {"description": "d", "env": "A-B"}}}, "config.K.env"),
        ({"mcp": {}}, "mcp"),
        ({"mcpAliases": {"a": []}}, "mcpAliases.a"),
        ({"handler": "x"}, "handler"),
    ],
)
def test_30_and_37_a_wrong_skill_is_refused_with_its_place(change: dict[str, Any], where: str) -> None:
    options = {"skills": [{**scripted_skill("s", "t"), **change}]}
    place = f"options.skills[0].{where}".rstrip(".")
    assert [problem.where for problem in refused(document({"a": {}}), options=options)] == [place]


def test_37_skill_ids_are_unique() -> None:
    options = {"skills": [scripted_skill("s", "t"), scripted_skill("s", "u")]}
    assert [problem.code for problem in refused(document({"a": {}}), options=options)] == ["DUPLICATE_SKILL"]


def test_7_an_unknown_skill_is_warned_of_with_its_place_and_the_run_completes() -> None:
    source = """id: w
name: W
entry: a
nodes:
  a:
    name: A
    instruction: hi
    skills: [s, mine, gone]
skills:
  mine: {instruction: x}
edges: []
"""
    [warning] = admitted(source, options={"skills": [scripted_skill("s", "t")]}).warnings
    assert (warning.code, warning.where, warning.severity) == ("UNKNOWN_SKILL", "nodes.a.skills[2]", "warning")
    assert (warning.line, warning.column) == (8, 23)
    assert run(source).end.status == "completed"


def test_26_a_start_offline_refuses_urls() -> None:
    raw = document({"a": {"instruction": "https://example.com/a.md"}}, rules=["./r.md", "inline"])
    problems = refused(raw, options={"offline": True}, input={"context": ["http://example.com/c"]})
    assert [(problem.code, problem.where) for problem in problems] == [
        ("SOURCE_OFFLINE_REQUIRES_FETCH", "input.context[0]"),
        ("SOURCE_OFFLINE_REQUIRES_FETCH", "nodes.a.instruction"),
    ]


def test_28_a_wrong_source_in_the_input_is_refused() -> None:
    problems = refused(document({"a": {}}), input={"rules": ["fine", {"file": "a", "inline": "b"}]})
    assert [(problem.code, problem.where) for problem in problems] == [("SOURCE_INVALID_SHAPE", "input.rules[1]")]


def test_the_outline_has_the_nodes_and_edges_of_the_document() -> None:
    plan = admitted(document({"a": {"name": "Alpha"}, "b": {}}, [("a", "b", "always")]))
    assert [(node.id, node.name) for node in plan.outline.nodes] == [("a", "Alpha"), ("b", "b")]
    assert [(edge.source, edge.target, edge.when) for edge in plan.outline.edges] == [("a", "b", "always")]
