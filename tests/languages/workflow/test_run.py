"""Runs of workflows: order, context, results and failures (checklist 44–49, 52, 53, 64, 65, 72–77)."""

import json
from itertools import pairwise
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.effects import Former, Text
from callboard.testing import Scenario
from tests.support.workflows import by_value, document, run, scripted_skill

TASTE = document(
    {"bake": {}, "taste": {}, "serve": {}},
    [
        ("bake", "taste"),
        {"from": "taste", "to": "bake", "when": "too raw", "max_iterations": 1},
        ("taste", "serve", "done"),
    ],
    id="cake",
)
TASTE_SCRIPT: dict[str, Any] = {
    "turns": {
        "bake": [{"data": {"visit": 1}}, {"data": {"visit": 2}}],
        "taste": [{"data": {"raw": True}}, {"data": {"raw": False}}],
        "serve": [{"data": {"served": True}}],
    },
    "routes": {"taste": ["bake", "serve"]},
}


def test_74_the_events_of_a_run_come_in_order() -> None:
    """The worked example: two visits of a loop, and a routing question with one choice left."""
    ran = run(TASTE, TASTE_SCRIPT, input={"order": 7})
    assert ran.types() == [
        "sources.resolved",
        *["node.enter", "model.call", "node.exit", "route"],  # bake
        *["node.enter", "model.call", "node.exit", "model.call", "route"],  # taste, asked for the way
        *["node.enter", "model.call", "node.exit", "route"],
        *["node.enter", "model.call", "node.exit", "model.call", "route"],
        *["node.enter", "model.call", "node.exit"],  # serve
    ]
    assert ran.routes() == [
        ("bake", "taste", "only path"),
        ("taste", "bake", "too raw"),
        ("bake", "taste", "only path"),
        ("taste", "serve", "done"),
    ]
    assert [route.edge for route in ran.of(ev.Route)] == [0, 1, 0, 2]
    assert ran.keys(ev.NodeExit) == ["bake#1", "taste#1", "bake#2", "taste#2", "serve#1"]


def test_77_results_hold_the_last_result_per_node_and_output_is_the_last_nodes_data() -> None:
    end = run(TASTE, TASTE_SCRIPT).end
    assert end.status == "completed"
    assert end.output == {"served": True}
    assert end.results == {
        "bake": {"status": "success", "data": {"visit": 2}, "toolCalls": [], "evals": []},
        "taste": {"status": "success", "data": {"raw": False}, "toolCalls": [], "evals": []},
        "serve": {"status": "success", "data": {"served": True}, "toolCalls": [], "evals": []},
    }


def test_64_the_context_has_the_input_and_the_newest_result_of_each_node() -> None:
    ran = run(TASTE, TASTE_SCRIPT, input={"order": 7})
    assert ran.text("bake#1.1!turn.1") == '## Instruction\n\nDo bake.\n\n## Context\n\n{"input": {"order":7}}'
    assert ran.text("bake#2.1!turn.1").endswith('{"input": {"order":7}, "bake": {"visit":1}, "taste": {"raw":true}}')
    assert ran.text("serve#1.1!turn.1").endswith('{"input": {"order":7}, "bake": {"visit":2}, "taste": {"raw":false}}')


def test_a_turn_refers_to_former_results_and_does_not_repeat_them() -> None:
    ran = run(TASTE, TASTE_SCRIPT)
    parts = ran.calls["serve#1.1!turn.1"].messages[0].parts
    assert [part for part in parts if not isinstance(part, Text)] == [Former("taste#2")]
    assert "visit" not in "".join(part.text for part in parts if isinstance(part, Text))


def test_64_later_nodes_see_the_verdicts_of_evaluators() -> None:
    passing = {"name": "has_x", "kind": "value", "rule": {"output_required": ["x"]}}
    raw = document(
        {
            "a": {"eval": [passing]},
            "b": {"requires": {"output_matches": [{"path": "a.evals.has_x.pass", "equals": True}]}},
        },
        [("a", "b")],
    )
    ran = run(raw, {"turns": {"a": [{"data": {"x": 1, "a/b~c": "long " * 40}}], "b": [{"text": "ok"}]}})
    text = ran.text("b#1.1!turn.1")
    assert '"evals":{"has_x":{"kind":"value","pass":true}}' in text
    assert '"x":1' in text
    assert "long long" in text
    assert ran.end.status == "completed"
    shadow = run(raw, {"turns": {"a": [{"data": {"x": 1, "evals": "mine"}}]}})
    assert (shadow.status("b"), shadow.data("a")["evals"]) == ("failed", "mine")


# -- prompts of models -------------------------------------------------------------------------------------------------


def test_44_to_46_the_layers_of_an_instruction_have_one_order() -> None:
    skills = [
        scripted_skill("one", "x", instruction="Skill one."),
        scripted_skill("two", "y"),
        scripted_skill("three", "z", instruction="Skill three."),
    ]
    base = "  Do it,\n\n---\n\n{exactly} as written.  "
    raw = document(
        {"a": {"instruction": {"inline": base}, "skills": ["three", "two", "one"], "rules": ["Node rule."]}},
        rules=["Flow rule."],
        context=["Flow context."],
    )
    ran = run(raw, input={"rules": "Input rule.", "context": ["Input context."]}, options={"skills": skills})
    text = ran.text("a#1.1!turn.1").removeprefix("## Instruction\n\n").partition("\n\n## Context\n\n{")[0]
    assert text == (
        "## Rules — You MUST Follow These\n\nInput rule.\n\nFlow rule.\n\nNode rule."
        "\n\n---\n\n## Background Context\n\nInput context.\n\nFlow context."
        "\n\n---\n\n## Skill: Three\n\nSkill three."
        "\n\n---\n\n## Skill: One\n\nSkill one."
        f"\n\n---\n\n{base}"
    )
    [entered] = ran.of(ev.NodeEnter)
    assert entered.instruction == base


def test_45_only_stops_the_cascade_of_its_own_field() -> None:
    raw = document(
        {"a": {"rules": {"only": True, "sources": ["Mine."]}}, "b": {"context": {"only": True, "sources": []}}},
        [("a", "b")],
        rules=["Flow rule."],
        context=["Flow context."],
    )
    ran = run(raw, input={"rules": ["Input rule."]})
    a, b = ran.text("a#1.1!turn.1"), ran.text("b#1.1!turn.1")
    assert ("Mine." in a, "Flow rule." in a, "Flow context." in a) == (True, False, True)
    assert "Input rule.\n\nFlow rule." in b
    assert "## Background Context" not in b


def test_49_the_model_of_a_node_comes_before_that_of_the_workflow_and_the_default() -> None:
    judge = {"name": "j", "kind": "judge", "rubric": "Good?"}
    script = {"default": {"text": "yes"}}
    raw = document({"a": {"model": "my own/model:1"}, "b": {"eval": [judge]}}, [("a", "b", "x")], model="flow-model")
    ran = run(raw, {**script, "routes": {"a": ["b"]}})
    models = {key: request.model for key, request in ran.calls.items()}
    assert models == {
        "a#1.1!turn.1": "my own/model:1",
        "a#1.1!route": "flow-model",
        "b#1.1!turn.1": "flow-model",
        "b#1.1!judge.j.1": "anthropic:claude-haiku-4-5",
    }
    assert run(document({"a": {}})).calls["a#1.1!turn.1"].model == "scripted"


# -- output ------------------------------------------------------------------------------------------------------------

OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n", "s"]}


def test_47_structured_output_becomes_the_data() -> None:
    ran = run(document({"a": {"output": OUTPUT}}), {"turns": {"a": [{"data": {"n": 1, "s": "x"}, "text": "so"}]}})
    assert ran.calls["a#1.1!turn.1"].schema == OUTPUT
    assert ran.data("a") == {"n": 1, "s": "x"}


@pytest.mark.parametrize("text", ['{"n": 1, "s": "x"}', 'Here:\n```json\n{"n": 1, "s": "x"}\n```\nBye.'])
def test_47_structured_output_is_read_from_text(text: str) -> None:
    ran = run(document({"a": {"output": OUTPUT}}), {"turns": {"a": [{"text": text}]}})
    assert (ran.status("a"), ran.data("a")) == ("success", {"n": 1, "s": "x"})


@pytest.mark.parametrize(
    ("answer", "name", "words"),
    [
        ({"data": {"n": 1}}, "output_required", "missing required fields: s"),
        ({"data": {}}, "output_required", "missing required fields: n, s"),
        ({"data": {"n": "1"}}, "output_required", "n: '1' is not of type 'integer'; missing required fields: s"),
        ({"data": {"n": "1", "s": "x"}}, "output_schema", "n: '1' is not of type 'integer'"),
        ({"data": [1]}, "output_schema", "[1] is not of type 'object'"),
        ({"text": "no idea"}, "output_schema", "the model gave no structured output"),
    ],
)
def test_47_output_that_does_not_conform_fails_the_node(answer: dict[str, Any], name: str, words: str) -> None:
    ran = run(document({"a": {"output": OUTPUT, "fail_soft": True}}), {"turns": {"a": [answer]}})
    result = ran.end.results["a"]
    assert result["status"] == "failed"
    assert result["data"]["error"] == f"output schema violation: {words}"
    assert [(verdict["name"], verdict["kind"], verdict["pass"]) for verdict in result["evals"]] == [
        (name, "value", False)
    ]
    assert (ran.end.status, ran.error.code) == ("failed", "workflow.node_failed")


def test_null_is_a_value_that_must_fit_its_type() -> None:
    nullable = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}, "required": ["n"]}
    ran = run(document({"a": {"output": nullable}}), {"turns": {"a": [{"data": {"n": None}}]}})
    assert ran.status("a") == "success"


def test_an_output_schema_fetches_nothing() -> None:
    schema = {"$ref": "https://example.com/schema.json"}
    ran = run(document({"a": {"output": schema}}), {"turns": {"a": [{"data": {}}]}})
    assert "is not part of it" in ran.data("a")["error"]


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        ({"text": "All is well."}, {"summary": "All is well."}),
        ({"data": {"found": 3}}, {"found": 3}),
        ({"data": {"found": 3}, "text": ""}, {"found": 3}),
        ({"data": {"found": 3}, "text": '{"found": 3}'}, {"found": 3}),
        ({"text": '{"found": 3}'}, {"found": 3}),
        ({"text": 'So:\n```json\n{"found": 3}\n```'}, {"summary": 'So:\n```json\n{"found": 3}\n```', "found": 3}),
        ({"text": "42"}, {"summary": "42"}),
        ({"data": [1, 2]}, {"value": [1, 2]}),
        ({"data": [1, 2], "text": ""}, {"value": [1, 2]}),
        ({"text": ""}, {}),
    ],
)
def test_an_answer_without_an_output_schema_becomes_the_data(answer: dict[str, Any], data: dict[str, Any]) -> None:
    assert run(document({"a": {}}), {"turns": {"a": [answer]}}).data("a") == data


# -- failures ----------------------------------------------------------------------------------------------------------

CHAIN = document({"a": {}, "b": {}}, [("a", "b")])
OVERLOADED = {"code": "overloaded", "message": "too busy"}


def test_72_a_failed_node_is_in_the_context_is_routed_on_and_fails_the_run() -> None:
    ran = run(CHAIN, {"turns": {"a": [{"error": OVERLOADED}], "b": [{"text": "ok"}]}})
    assert ran.end.results["a"] == {"status": "failed", "data": {"error": "too busy"}, "toolCalls": []}
    assert ran.status("b") == "success"
    assert ran.end.status == "failed"
    assert (ran.error.code, ran.error.path) == ("workflow.node_failed", "a")
    assert ran.error.previous is not None
    assert ran.error.previous.code == "model.overloaded"
    assert '"a": {"error":"too busy"}' in ran.text("b#1.1!turn.1")


def test_only_the_last_result_of_a_node_fails_a_run() -> None:
    script = {
        **TASTE_SCRIPT,
        "turns": {**TASTE_SCRIPT["turns"], "bake": [{"error": "overloaded"}, {"data": {"visit": 2}}]},
    }
    assert run(TASTE, script).end.status == "completed"


def test_52_fail_soft_keeps_the_error_and_marks_it() -> None:
    raw = document({"a": {"fail_soft": True, "max_turns": 1, "skills": ["s"]}, "b": {}}, [("a", "b")])
    turn = {"text": "Half of it.", "tool_calls": [{"tool": "look", "input": {}}]}
    skills = {"skills": [scripted_skill("s", "look")]}
    ran = run(raw, {"turns": {"a": [turn], "b": [{"text": "ok"}]}}, options=skills)
    message = "the turn limit of 1 was reached while the model still wanted to call look"
    assert ran.end.results["a"] == {
        "status": "success",
        "data": {"summary": "Half of it.", "error": message, "fail_soft": True},
        "toolCalls": [],
    }
    assert ran.end.status == "completed"


def test_48_partial_work_is_kept_when_the_turns_run_out() -> None:
    turn = {"text": "So far.", "tool_calls": [{"tool": "look", "input": {}}]}
    raw = document({"a": {"max_turns": 2, "skills": ["s"]}})
    script = {"turns": {"a": [turn] * 3}, "tools": {"look": [{"output": 1}, {"output": 2}]}}
    ran = run(raw, script, options={"skills": [scripted_skill("s", "look")]})
    assert ran.status("a") == "failed"
    assert ran.data("a")["summary"] == "So far."
    assert "turn limit of 2" in ran.data("a")["error"]
    assert ran.end.results["a"]["toolCalls"] == [{"tool": "look", "input": {}, "output": 1}]
    assert len(ran.of(ev.ModelCall)) == 2
    assert len(ran.of(ev.ToolCall)) == 1


@pytest.mark.parametrize("reason", ["max_tokens", "max_output_tokens", "length"])
def test_an_answer_that_is_cut_short_fails_the_node(reason: str) -> None:
    ran = run(document({"a": {}}), {"turns": {"a": [{"text": "And so", "stop_reason": reason}]}})
    assert ran.data("a") == {"summary": "And so", "error": f"the model ended early: {reason}"}


# -- requires ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_fail", "status"), [("fail", "failed"), ("skip", "skipped"), (None, "failed")])
def test_53_an_unmet_precondition_fails_or_skips_the_node(on_fail: str | None, status: str) -> None:
    requires: dict[str, Any] = {
        "output_required": ["input.repo", "a.branch"],
        "output_matches": [{"path": "a.changed", "matches": "^[1-9]"}],
    }
    raw = document(
        {"a": {}, "b": {"requires": requires | ({"on_fail": on_fail} if on_fail else {})}, "c": {}},
        [("a", "b"), ("b", "c")],
    )
    ran = run(raw, {"turns": {"a": [{"data": {"branch": None, "changed": 0}}], "c": [{"text": "ok"}]}})
    key, first = ("error", "requires failed:") if status == "failed" else ("skipped_reason", "requires not met:")
    assert ran.status("b") == status
    assert ran.data("b")[key].splitlines() == [
        first,
        "  - output_required: 'input.repo' missing segment 'repo'; 'a.branch' resolved to a null value",
        "  - output_matches: 'a.changed' matches /^[1-9]/, got [0]",
    ]
    assert "b#1.1!turn.1" not in ran.calls
    assert ran.status("c") == "success"
    assert ran.end.status == ("failed" if status == "failed" else "completed")
    assert [left.outcome for left in ran.of(ev.NodeExit)] == ["ok", status, "ok"]


def test_53_met_preconditions_let_the_node_run() -> None:
    raw = document({"a": {"requires": {"output_required": ["input.repo"]}}})
    assert run(raw, input={"repo": "x"}).status("a") == "success"


# -- limits, breakpoints, names ----------------------------------------------------------------------------------------


def test_the_step_limit_fails_an_endless_run() -> None:
    raw = document({"a": {}}, [{"from": "a", "to": "a", "max_iterations": 1000}])
    ran = run(raw, options={"max_steps": 7})
    assert ran.end.status == "failed"
    assert (ran.error.code, ran.error.details) == ("workflow.step_budget", {"max_steps": 7, "next": "a"})
    assert len(ran.of(ev.NodeEnter)) == 7
    assert ran.end.results["a"]["status"] == "success"


def test_a_breakpoint_pauses_before_each_visit_of_its_node() -> None:
    order = ["bake", "taste", "bake", "taste", "serve"]
    with Scenario() as scenario:
        scenario.start(source=json.dumps(TASTE), script=TASTE_SCRIPT, breakpoints=["bake", "taste", "serve"])
        for visited, name in enumerate(order):
            [*_, paused] = scenario.payloads(ev.RunPaused.type)
            assert isinstance(paused, ev.RunPaused)
            assert (paused.step, len(scenario.payloads(ev.NodeEnter.type))) == (name, visited)
            scenario.resume()
        assert scenario.result.status == "completed"


def test_a_node_may_have_any_name() -> None:
    names = ["a/b", "x#1", "é ü", "[0]:y"]
    raw = document({name: {} for name in names}, list(pairwise(names)))
    ran = run(raw)
    assert ran.end.status == "completed"
    assert list(ran.end.results) == names
    assert ran.keys(ev.NodeExit) == ["a%2Fb#1", "x%231#1", "é ü#1", "%5B0%5D%3Ay#1"]
    assert '"x#1": {"summary":"ok"}' in ran.text("%5B0%5D%3Ay#1.1!turn.1")


# -- determinism and cancellation --------------------------------------------------------------------------------------

BUSY = document(
    {
        "a": {"skills": ["s"], "eval": [
            {"name": "j1", "kind": "judge", "rubric": "Good?"}, {"name": "j2", "kind": "judge", "rubric": "Nice?"},
        ]},
        "b": {},
    },
    [("a", "b", "fine"), ("a", "b")],
)  # fmt: skip
BUSY_SCRIPT: dict[str, Any] = {
    "turns": {
        "a": [{"tool_calls": [{"tool": "x", "input": {"i": i}} for i in range(3)]}, {"data": {"y": 1}}],
        "b": [{"text": "ok"}],
    },
    "tools": {"x": [{"output": 1}] * 3},
    "judges": {"a/j1": ["yes"], "a/j2": ["yes"]},
    "routes": {"a": ["b"]},
}


def test_the_order_in_which_effects_end_changes_no_result() -> None:
    skills = {"skills": [scripted_skill("s", "x")]}
    one = run(BUSY, BUSY_SCRIPT, options=skills)
    other = run(BUSY, BUSY_SCRIPT, options=skills, newest_first=True)
    assert one.end == other.end
    assert one.fingerprint() == other.fingerprint()
    assert other.keys(ev.ToolResult) == other.keys(ev.ToolCall)[::-1] != one.keys(ev.ToolResult)
    assert one.end.status == "completed"


@pytest.mark.parametrize(
    ("key", "node"),
    [
        ("a#1.1!tool.1.1", "a"),
        ("a#1.1!turn.2", "a"),
        ("a#1.1!judge.j2.1", "a"),
        ("a#1.1!toolbox", "a"),
        ("b#1.1!turn.1", "b"),
    ],
)
def test_a_cancelled_run_leaves_its_node_and_keeps_its_results(key: str, node: str) -> None:
    ran = run(BUSY, BUSY_SCRIPT, options={"skills": [scripted_skill("s", "x")]}, cancel_at=key)
    assert ran.end.status == "cancelled"
    assert (ran.error.code, ran.error.message) == ("cancelled", "told to")
    exits = dict(zip(ran.keys(ev.NodeExit), ran.of(ev.NodeExit), strict=True))
    assert exits[f"{node}#1"].outcome == "cancelled"
    assert list(ran.end.results) == (["a"] if node == "b" else [])


def test_a_run_may_be_cancelled_while_it_resolves_its_sources() -> None:
    ran = run(
        document({"a": {"instruction": "./a.md"}}),
        cancel_at="#1.1!source.0",
        effects={"source": by_value({"a.md": {"content": "x"}})},
    )
    assert (ran.end.status, ran.end.results) == ("cancelled", None)
