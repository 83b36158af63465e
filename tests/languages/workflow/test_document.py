"""Workflow documents: valid documents, and the codes and places of the problems of invalid ones (checklist 1–11)."""

import copy
import itertools
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from callboard.languages.problems import Tree
from callboard.languages.workflow.document import JUDGE_BUDGET, Workflow
from callboard.languages.workflow.validate import structure
from tests.support.conformance import WITH_DATA, WORKFLOW_SCHEMA
from tests.support.sweeps import EVERY
from tests.support.workflows import codes_of, document, parsed, problems_of

MINIMAL = document({"a": {}})

FULL: dict[str, Any] = {
    "id": "triage",
    "name": "Triage",
    "description": "All fields.",
    "entry": "a",
    "author": "somebody",
    "workflow_type": "monitor",
    "model": "big",
    "judge_model": "small",
    "judge_budget": 3,
    "rules": ["Be kind.", {"inline": "./not-a-file"}, {"file": "rules.md"}],
    "context": ["https://example.com/x.md", {"url": "https://example.com/y.md", "type": "fetch"}],
    "inputs": {
        "s": {"type": "string", "default": "x", "enum": ["x", "y"], "description": "d"},
        "n": {"type": "number", "default": 1.5, "enum": [1, 1.5]},
        "b": {"type": "boolean", "required": True},
        "l": {"type": "string[]", "default": ["x"], "enum": [["x"], ["y", "z"]]},
    },
    "skills": {
        "rubric": {"name": "Rubric", "description": "d", "instruction": "Score."},
        "books": {"mcp": {"type": "stdio", "command": "books", "args": ["-v"], "env": {"KEY": "the key"}}},
        "web": {"mcp": {"url": "https://example.com/mcp", "headers": {"X": "y"}}},
    },
    "nodes": {
        "a": {
            "name": "A",
            "instruction": "./a.md",
            "skills": ["rubric", "books"],
            "output": {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]},
            "max_turns": 5,
            "model": "bigger",
            "disallowed_tools": ["Bash"],
            "tools": {"allow": ["x"], "deny": ["y"]},
            "fail_soft": True,
            "rules": ["Mine."],
            "context": {"only": True, "sources": ["Only mine."]},
            "requires": {
                "output_required": ["input.b"],
                "output_matches": [{"path": "input.s", "equals": None}],
                "on_fail": "skip",
            },
            "eval": [
                {"name": "v", "kind": "value", "rule": {"output_matches": [{"path": "n", "in": [1, 2]}]}},
                {"name": "f", "kind": "function", "rule": {"any_tool_called": ["x"], "no_tool_called": ["y"]}},
                {"name": "j", "kind": "judge", "rubric": "Good?", "pass_when": "good", "model": "j"},
            ],
            "eval_policy": "all_pass",
            "judge_model": "j",
            "retry": {"max": 2, "instruction": {"reflect": "Why?"}},
        },
        "b": {
            "name": "B",
            "instruction": "B.",
            "retry": {"max": 1, "instruction": {"auto": True}},
            "eval": [{"name": "v", "kind": "value", "rule": {"output_required": ["x"], "all_tools_called": ["y"]}}],
        },
    },
    "edges": [
        {"from": "a", "to": "b", "when": "n is 1"},
        {"from": "a", "to": "a", "when": "n is 2", "max_iterations": 3},
    ],
}


def test_1_a_document_with_every_field_is_accepted() -> None:
    definition = parsed(FULL)
    assert (definition.name, definition.language) == ("triage", "workflow")
    assert [warning.code for warning in definition.warnings] == []
    node = definition.document.nodes["a"]
    assert (node.instruction.kind, node.instruction.value) == ("file", "./a.md")
    assert [source.kind for source in definition.document.rules] == ["inline", "inline", "file"]
    assert node.context is not None
    assert (node.context.only, node.context.sources[0].value) == (True, "Only mine.")


def test_1_fields_have_defaults() -> None:
    workflow = parsed(MINIMAL).document
    assert (workflow.description, workflow.workflow_type, workflow.judge_budget) == ("", "generic", JUDGE_BUDGET)
    assert (workflow.rules, workflow.context, workflow.skills, workflow.inputs) == ([], [], {}, None)
    node = workflow.nodes["a"]
    assert (node.skills, node.fail_soft, node.eval_policy) == ([], False, "all_pass")
    assert (node.retry, node.max_turns) == (None, None)


def test_1_yaml_and_json_of_one_document_have_one_hash() -> None:
    yaml = "# a comment\nid: w\nname: W\nentry: a\nnodes:\n  a: {name: a, instruction: Do a.}\nedges: []\n"
    assert parsed(yaml).hash == parsed(MINIMAL).hash == parsed(json.dumps(MINIMAL, indent=3)).hash
    assert parsed(document({"a": {"instruction": "Do b."}})).hash != parsed(MINIMAL).hash


def test_words_that_yaml_1_1_would_convert_stay_texts() -> None:
    yaml = """
id: w
name: W
entry: no
nodes:
  no:
    name: on
    instruction: yes
    eval:
      - {name: off, kind: judge, rubric: Good?, pass_when: yes}
edges: []
"""
    node = parsed(yaml).document.nodes["no"]
    assert (node.name, node.instruction.value) == ("on", "yes")
    assert node.eval is not None
    assert node.eval[0].name == "off"


@pytest.mark.parametrize("source", ["", "just words", "[1, 2]", "3", "- a"])
def test_a_document_that_is_not_an_object_is_refused(source: str) -> None:
    [problem] = problems_of(source)
    assert problem.code == "SCHEMA"
    assert "expected a workflow object" in problem.message


def test_all_problems_are_reported_together_with_their_places() -> None:
    yaml = """id: ""
name: 3
entry: x
nodes:
  a:
    name: A
    instruction: hi
    skils: [a]
    max_turns: 0
edges:
  - {from: a, to: b}
  - {from: a}
workflow_type: blog
"""
    assert [(p.code, p.where, p.line, p.column) for p in problems_of(yaml)] == [
        ("SCHEMA", "id", 1, 1),
        ("SCHEMA", "name", 2, 1),
        ("MISSING_ENTRY", "entry", 3, 1),
        ("SCHEMA", "nodes.a.skils", 8, 5),
        ("SCHEMA", "nodes.a.max_turns", 9, 5),
        ("UNKNOWN_EDGE_TARGET", "edges[0].to", 11, 15),
        ("SCHEMA", "edges[1].to", 12, 5),
        ("SCHEMA", "workflow_type", 13, 1),
    ]
    unknown = problems_of(yaml)[3]
    assert "did you mean 'skills'" in unknown.message
    assert "fail_soft" in (unknown.expected or "")


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("nodes.a.eval[0].rule", lambda d: d["nodes"]["a"]["eval"][0].pop("rule")),
        ("nodes.a.eval[0].rubric", lambda d: d["nodes"]["a"]["eval"][0].update(rubric="r")),
        ("nodes.a.eval[2].rule", lambda d: d["nodes"]["a"]["eval"][2].update(rule={"output_required": ["x"]})),
        ("nodes.a.eval[2].pass_when", lambda d: d["nodes"]["a"]["eval"][2].update(pass_when="very good")),
        ("nodes.a.eval[0].kind", lambda d: d["nodes"]["a"]["eval"][0].update(kind="vibe")),
        ("nodes.a.eval[0].name", lambda d: d["nodes"]["a"]["eval"][0].pop("name")),
        ("nodes.a.eval[1].rule", lambda d: d["nodes"]["a"]["eval"][1].update(rule={})),
        ("nodes.a.eval", lambda d: d["nodes"]["a"].update(eval=[])),
        ("nodes.a.retry.instruction.auto", lambda d: d["nodes"]["a"]["retry"].update(instruction={"auto": False})),
        ("nodes.a.retry.max", lambda d: d["nodes"]["a"]["retry"].update(max=0)),
        ("nodes.a.requires", lambda d: d["nodes"]["a"].update(requires={"on_fail": "skip"})),
        ("nodes.a.requires.on_fail", lambda d: d["nodes"]["a"]["requires"].update(on_fail="halt")),
        ("nodes.a.tools", lambda d: d["nodes"]["a"].update(tools={})),
        ("nodes.a.tools.allow", lambda d: d["nodes"]["a"].update(tools={"allow": []})),
        ("nodes.a.output", lambda d: d["nodes"]["a"].update(output={"type": "thing"})),
        ("nodes.a.description", lambda d: d["nodes"]["a"].update(description="x")),
        ("nodes.a.instruction", lambda d: d["nodes"]["a"].update(instruction="  ")),
        ("nodes.a.model", lambda d: d["nodes"]["a"].update(model=None)),
        ("inputs.b.type", lambda d: d["inputs"]["b"].update(type="date")),
        ("inputs.s.enum[1]", lambda d: d["inputs"]["s"].update(enum=["x", 2])),
        ("inputs.n.default", lambda d: d["inputs"]["n"].update(default=True)),
        ("inputs.b", lambda d: d["inputs"]["b"].update(default=True)),
        ("skills.web.mcp", lambda d: d["skills"]["web"].update(mcp={"args": []})),
        ("skills.web.tools", lambda d: d["skills"]["web"].update(tools=[])),
        ("edges[0].label", lambda d: d["edges"][0].update(label="x")),
        ("edges[1].max_iterations", lambda d: d["edges"][1].update(max_iterations=1.5)),
        ("judge_budget", lambda d: d.update(judge_budget=-1)),
        ("description", lambda d: d.update(description=None)),
        ("nodes.a.verify", lambda d: d["nodes"]["a"].update(verify=[])),
        ("verify", lambda d: d.update(verify={})),
    ],
)
def test_1_and_11_and_56_a_wrong_field_is_one_problem_with_its_place(
    where: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    raw = copy.deepcopy(FULL)
    change(raw)
    assert [(problem.code, problem.where) for problem in problems_of(raw)] == [("SCHEMA", where)]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ({"inline": "a", "file": "b"}, "SOURCE_INVALID_SHAPE"),
        ({}, "SOURCE_INVALID_SHAPE"),
        ({"file": "a", "type": "fetch"}, "SOURCE_INVALID_SHAPE"),
        ({"inline": ""}, "SOURCE_INVALID_SHAPE"),
        ({"url": "https://example.com", "type": "git"}, "SOURCE_INVALID_TYPE"),
        ({"url": "example.com/x"}, "SCHEMA"),
        (3, "SCHEMA"),
    ],
)
def test_28_wrong_sources_have_the_specified_codes(source: Any, code: str) -> None:
    assert codes_of(document({"a": {"instruction": source}})) == [code]
    assert codes_of(document({"a": {"rules": ["fine", source]}})) == [code]


def test_8_an_empty_inline_skill_is_refused() -> None:
    assert codes_of(document({"a": {}}, skills={"s": {"name": "S"}})) == ["INVALID_INLINE_SKILL"]


@pytest.mark.parametrize("kind", ["pr_review", "e2e_test", "content_generation", "monitor", "data_sync", "generic"])
def test_10_the_workflow_type_is_one_of_the_specified(kind: str) -> None:
    assert parsed(document({"a": {}}, workflow_type=kind)).document.workflow_type == kind
    assert codes_of(document({"a": {}}, workflow_type=f"{kind}s")) == ["SCHEMA"]


# -- structure ---------------------------------------------------------------------------------------------------------

ABC: dict[str, dict[str, Any]] = {"a": {}, "b": {}, "c": {}}


@pytest.mark.parametrize(
    ("edges", "codes"),
    [
        ([("a", "b"), ("b", "c")], []),
        ([("a", "b"), ("b", "x")], ["UNKNOWN_EDGE_TARGET"]),
        ([("a", "b"), ("x", "c")], ["UNKNOWN_EDGE_SOURCE"]),
        ([("a", "b")], ["UNREACHABLE_NODE"]),
        ([("a", "b", "x"), ("a", "c", "y")], []),
        ([("a", "b"), ("a", "c")], ["AMBIGUOUS_EDGES"]),
        ([("a", "b", ""), ("a", "c", " ")], ["AMBIGUOUS_EDGES"]),
        ([("a", "b"), ("b", "c"), ("c", "c", "again")], ["SELF_LOOP"]),
        ([("a", "b"), ("b", "c"), {"from": "c", "to": "c", "max_iterations": 1}], []),
        ([("a", "b"), ("b", "c"), ("c", "a")], ["UNBOUNDED_CYCLE"]),
        ([("a", "b"), ("b", "c"), {"from": "c", "to": "a", "max_iterations": 2}], []),
        ([("a", "b"), ("b", "c", "x"), ("b", "a", "y")], ["UNBOUNDED_CYCLE"]),
        # a bound on another edge between the same nodes does not bound the cycle
        (
            [("a", "b"), ("b", "c", "x"), ("b", "a", "y"), {"from": "b", "to": "a", "when": "z", "max_iterations": 1}],
            ["UNBOUNDED_CYCLE"],
        ),
    ],
)
def test_3_to_6_wrong_edges_have_their_codes(edges: list[Any], codes: list[str]) -> None:
    assert codes_of(document(ABC, edges)) == codes


def test_2_a_missing_entry_is_refused() -> None:
    [problem] = problems_of(document({"gather": {}}, entry="gathr"))
    assert (problem.code, problem.where) == ("MISSING_ENTRY", "entry")
    assert "did you mean 'gather'" in problem.message


def test_6_overlapping_cycles_are_reported_once_and_separate_ones_each() -> None:
    nodes: dict[str, dict[str, Any]] = {name: {} for name in "abcd"}
    tangled = [("a", "b", "x"), ("b", "a", "y"), ("b", "c", "z"), ("c", "b"), ("a", "d")]
    assert codes_of(document(nodes, tangled)) == ["UNBOUNDED_CYCLE"]
    bounded = {"from": "a", "to": "c", "when": "x", "max_iterations": 1}
    apart = [("a", "b"), ("b", "a"), bounded, ("c", "d"), ("d", "c")]
    assert codes_of(document(nodes, apart)) == ["UNBOUNDED_CYCLE", "UNBOUNDED_CYCLE"]


def test_a_long_chain_does_not_exhaust_the_stack() -> None:
    names = [f"n{i}" for i in range(3000)]
    raw = document({name: {} for name in names}, [*pairwise(names), (names[-1], names[0])])
    assert [problem.code for problem in structure(Tree(raw))] == ["UNBOUNDED_CYCLE"]


def test_a_node_must_not_hide_the_input() -> None:
    assert codes_of(document({"input": {}})) == ["RESERVED_NODE_ID"]


def test_7_a_document_may_name_skills_that_a_start_provides() -> None:
    assert parsed(document({"a": {"skills": ["theirs"]}})).warnings == ()


@pytest.mark.parametrize("policy", ["any_pass", "weighted"])
def test_57_reserved_policies_are_refused(policy: str) -> None:
    assert codes_of(document({"a": {"eval_policy": policy}})) == ["UNSUPPORTED_EVAL_POLICY"]


def test_settings_that_have_no_effect_are_warned_of() -> None:
    judge = {"name": "j", "kind": "judge", "rubric": "Good?"}
    raw = document(
        {
            "a": {
                "eval": [judge, judge, {"name": "v", "kind": "value", "rule": {"output_required": ["a-b"]}}],
                "retry": {"max": 2},
            },
            "b": {"retry": {"max": 1}},
            "c": {"requires": {"output_matches": [{"path": "input.x", "matches": "("}]}},
        },
        [("a", "b"), ("b", "c")],
        judge_budget=5,
        workflow_typ="monitor",
    )
    assert sorted(warning.code for warning in parsed(raw).warnings) == [
        "CHECK_CANNOT_PASS",
        "CHECK_CANNOT_PASS",
        "DUPLICATE_EVALUATOR",
        "IDLE_RETRY",
        "JUDGE_BUDGET",
        "UNKNOWN_FIELD",
    ]


# -- agreement with the published JSON Schema --------------------------------------------------------------------------

OTHER_VALUES: list[Any] = [None, True, 1.5, "", "x", [""], {"auto": 1}]

STRICTER: frozenset[str] = frozenset(
    {
        "UNSUPPORTED_EVAL_POLICY", "RESERVED_NODE_ID", "AMBIGUOUS_EDGES", "MISSING_ENTRY", "UNKNOWN_EDGE_SOURCE",
        "UNKNOWN_EDGE_TARGET", "UNREACHABLE_NODE", "SELF_LOOP", "UNBOUNDED_CYCLE", "SOURCE_INVALID_TYPE",
    }
)  # fmt: skip
"""Codes of rules that the JSON Schema does not have."""


def _mutations(raw: Any) -> list[dict[str, Any]]:
    """Return copies of a document, each with one value replaced, removed, or one unknown field more.

    A value is replaced by two of `OTHER_VALUES`, the next one by the next two; by all of them in `make sweep`.
    """
    found: list[dict[str, Any]] = []
    others = itertools.cycle(OTHER_VALUES)

    def walk(here: Any, path: list[Any]) -> None:
        items = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else []
        for key, value in list(items):
            for other in OTHER_VALUES if EVERY else [next(others), next(others)]:
                found.append(_change(raw, [*path, key], other))
            if isinstance(here, dict):
                found.append(_change(raw, [*path, key]))
            walk(value, [*path, key])
        if isinstance(here, dict):
            found.append(_change(raw, [*path, "unknown"], "x"))

    walk(raw, [])
    return found


def _change(raw: Any, path: list[Any], *value: Any) -> Any:
    changed = copy.deepcopy(raw)
    at = changed
    for step in path[:-1]:
        at = at[step]
    if value:
        at[path[-1]] = value[0]
    else:
        del at[path[-1]]
    return changed


@WITH_DATA
def test_the_models_agree_with_the_published_json_schema() -> None:
    """Checklist 1: after any single change of a document both accept it, or both refuse it."""
    schema = Draft202012Validator(json.loads(WORKFLOW_SCHEMA.read_text()))
    mutations = _mutations(FULL)
    assert len(mutations) > (1000 if EVERY else 400)
    disagreements: list[str] = []
    for raw in mutations:
        ours = [problem for problem in problems_of(raw) if problem.severity == "error"]
        unexcused = [problem for problem in ours if problem.code not in STRICTER and not _is_stricter(problem.message)]
        if schema.is_valid(raw):
            disagreements += [f"only ours: {problem}" for problem in unexcused]
        elif not ours:
            disagreements += [f"only theirs: {error.message}" for error in schema.iter_errors(raw)]
    assert not disagreements, "\n".join(disagreements)


def _is_stricter(message: str) -> bool:
    """Return whether a problem is of a rule in the text of the specification that its schema does not have."""
    return message.startswith(
        ("is not a JSON Schema", "offers nothing", "does not name a server", "has the type")
    ) or any(words in message for words in ("is not a web address", "is not a single word", "is empty or not a text"))


def test_unknown_members_are_accepted_at_the_top_level() -> None:
    assert Workflow.model_config.get("extra") == "ignore"
    assert codes_of(document({"a": {}}, tags=["x"], category="y")) == []
