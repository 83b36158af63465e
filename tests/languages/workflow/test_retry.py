"""Evaluators, judges, and retries with feedback in a run (checklist 56–63)."""

from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.languages.workflow.evaluation import DEFAULT_ADVICE, PREVIEW_CHARS_MAX
from tests.support.workflows import Ran, document, run, scripted_skill

NEEDS_URL = {"name": "url_there", "kind": "value", "rule": {"output_required": ["url"]}}
NEEDS_CALL = {"name": "was_called", "kind": "function", "rule": {"any_tool_called": ["save"]}}
JUDGE = {"name": "good", "kind": "judge", "rubric": "Is it good?"}
LINE_URL = "url_there (value): output_required 'url' missing segment 'url'"
LINE_CALL = "was_called (function): any_tool_called wants one of [save] to succeed, called: none"


def run_node(script: dict[str, Any], **fields: Any) -> Ran:
    return run(document({"a": fields}), script)


def make_turns(*answers: dict[str, Any]) -> dict[str, Any]:
    return {"turns": {"a": list(answers)}}


# -- evaluation --------------------------------------------------------------------------------------------------------


def test_57_every_evaluator_runs_in_order_and_any_failure_fails_the_node() -> None:
    script = {**make_turns({"data": {"x": 1}}), "judges": {"a/good": ["yes"]}}
    ran = run_node(script, eval=[NEEDS_URL, JUDGE, NEEDS_CALL], fail_soft=True)
    result = ran.end.results["a"]
    assert [(verdict["name"], verdict["pass"]) for verdict in result["evals"]] == [
        ("url_there", False),
        ("good", True),
        ("was_called", False),
    ]
    assert result["status"] == "failed"
    assert result["data"]["x"] == 1
    assert result["data"]["error"] == f"eval failed (policy: all_pass):\n  - {LINE_URL}\n  - {LINE_CALL}"
    [left] = ran.of(ev.NodeExit)
    assert left.error is not None
    assert left.error.code == "workflow.eval_failed"


def test_58_a_failed_node_is_not_evaluated_even_with_fail_soft() -> None:
    for fields in ({}, {"fail_soft": True}):
        ran = run_node(make_turns({"error": "overloaded"}), eval=[NEEDS_URL, JUDGE], **fields)
        assert "evals" not in ran.end.results["a"]
        assert len(ran.calls) == 1


def test_57_the_evals_of_a_node_without_evaluators_are_empty() -> None:
    assert run_node(make_turns({"text": "x"})).end.results["a"]["evals"] == []


# -- judges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "pass_when", "passes", "reasoning"),
    [
        ("VERDICT: yes\nREASONING: It is\nfine.", None, True, "It is\nfine."),
        ("verdict : YES", None, True, None),
        ("VERDICT: <yes>\nREASONING: ok", None, True, "ok"),
        ("VERDICT: no\nREASONING: Bad.", None, False, "Bad."),
        ("yes", None, True, None),
        ("No.", None, False, "the verdict is 'No'"),
        ("Sure!\nVERDICT: **Ship**\nREASONING: ok", "ship", True, "ok"),
        ("VERDICT: not_ship", "ship", False, "the verdict is 'not_ship'"),
    ],
)
def test_60_the_verdict_in_an_answer_is_read(
    answer: str, pass_when: str | None, passes: bool, reasoning: str | None
) -> None:
    judge = JUDGE | ({"pass_when": pass_when} if pass_when else {})
    ran = run_node({**make_turns({"text": "x"}), "judges": {"a/good": [{"text": answer}]}}, eval=[judge])
    [verdict] = ran.end.results["a"]["evals"]
    assert verdict == {"name": "good", "kind": "judge", "pass": passes} | (
        {"reasoning": reasoning} if reasoning else {}
    )


@pytest.mark.parametrize(
    "unreadable",
    [
        *({"text": text} for text in ("I could not really say.", "", "???", "VERDICT: ???\nREASONING: who knows", "…")),
        {"verdict": "?", "reasoning": "who knows"},
        {"error": "overloaded"},
    ],
)
def test_60_a_judge_is_asked_once_more_after_an_unreadable_answer(unreadable: dict[str, Any]) -> None:
    ran = run_node({**make_turns({"text": "x"}), "judges": {"a/good": [unreadable, "VERDICT: yes"]}}, eval=[JUDGE])
    assert ran.status("a") == "success"
    assert [key for key in ran.calls if "judge" in key] == ["a#1.1!judge.good.1", "a#1.1!judge.good.2"]
    never = run_node(
        {**make_turns({"text": "x"}), "judges": {"a/good": [unreadable, unreadable, "VERDICT: yes"]}}, eval=[JUDGE]
    )
    [verdict] = never.end.results["a"]["evals"]
    assert verdict["pass"] is False
    assert verdict["reasoning"].startswith("judge parse failure")
    assert len(never.calls) == 3


def test_60_a_symbol_is_a_verdict_if_it_is_the_passing_one() -> None:
    ran = run_node({**make_turns({"text": "x"}), "judges": {"a/good": ["👍"]}}, eval=[{**JUDGE, "pass_when": "👍"}])
    assert ran.status("a") == "success"


@pytest.mark.parametrize(
    ("evaluator", "on_node", "on_flow", "model"),
    [
        ("e", "n", "f", "e"),
        (None, "n", "f", "n"),
        (None, None, "f", "f"),
        (None, None, None, "anthropic:claude-haiku-4-5"),
    ],
)
def test_60_the_model_of_a_judge_is_that_of_evaluator_node_or_workflow(
    evaluator: str | None, on_node: str | None, on_flow: str | None, model: str
) -> None:
    judge = JUDGE | ({"model": evaluator} if evaluator else {})
    fields = {"eval": [judge], "model": "executor"} | ({"judge_model": on_node} if on_node else {})
    flow: dict[str, Any] = {"judge_model": on_flow} if on_flow else {}
    raw = document({"a": fields}, **flow)
    ran = run(raw, {**make_turns({"text": "x"}), "judges": {"a/good": ["yes"]}})
    assert ran.calls["a#1.1!judge.good.1"].model == model


def test_56_a_judge_sees_only_rubric_data_and_calls() -> None:
    raw = document(
        {"z": {}, "a": {"skills": ["s"], "eval": [JUDGE], "instruction": "Secret instruction."}}, [("z", "a")]
    )
    call_save = {"tool_calls": [{"tool": "save", "input": {"q": "w" * 500}}, {"tool": "load", "input": {}}]}
    script = {
        "turns": {"z": [{"data": {"upstream": 1}}], "a": [call_save, {"data": {"url": "u"}}]},
        "tools": {"save": [{"output": {"id": 7}}], "load": [{"error": "denied"}]},
        "judges": {"a/good": ["yes"]},
    }
    ran = run(raw, script, input={"private": 1}, options={"skills": [scripted_skill("s", "save", "load")]})
    text = ran.text("a#1.1!judge.good.1")
    assert "Is it good?" in text
    assert '{"url":"u"}' in text
    assert "- load [error] input={} output=denied" in text
    preview = ('{"q":"' + "w" * 500)[:PREVIEW_CHARS_MAX]
    assert f'- save [success] input={preview}… output={{"id":7}}' in text
    assert all(word not in text for word in ("Secret", "private", "upstream"))
    assert ran.calls["a#1.1!judge.good.1"].evaluator == "good"


def test_judges_of_one_name_have_separate_keys() -> None:
    script = {**make_turns({"text": "x"}), "judges": {"a/good": [{"text": "I cannot say"}, "yes", "no"]}}
    ran = run_node(script, eval=[JUDGE, JUDGE])
    slots = [key.partition("!")[2] for key in ran.calls if "judge" in key]
    assert sorted(slots) == ["judge.good.1", "judge.good.2", "judge.good.3"]


# -- retries -----------------------------------------------------------------------------------------------------------

BAD, GOOD = {"data": {"x": 1}}, {"data": {"url": "u"}}


def test_61_a_retry_begins_with_the_feedback_of_the_evaluation() -> None:
    ran = run_node(make_turns(BAD, BAD, GOOD, GOOD), eval=[NEEDS_URL], retry={"max": 3})
    assert ran.end.results["a"] == {
        "status": "success",
        "data": {"url": "u"},
        "toolCalls": [],
        "evals": [{"name": "url_there", "kind": "value", "pass": True}],
    }
    assert list(ran.calls) == ["a#1.1!turn.1", "a#1.2!turn.1", "a#1.3!turn.1"]
    preamble = f"{LINE_URL}\n\n{DEFAULT_ADVICE}"
    assert ran.text("a#1.2!turn.1").startswith(f"## Instruction\n\n{preamble}\n\n---\n\nDo a.")
    reason = f"eval failed (policy: all_pass):\n  - {LINE_URL}"
    assert ran.of(ev.NodeRetry) == [ev.NodeRetry("a", n, reason, preamble) for n in (1, 2)]


def test_63_a_visit_with_retries_is_entered_and_left_once() -> None:
    ran = run_node(make_turns(BAD, GOOD), eval=[NEEDS_URL], retry={"max": 1})
    assert ran.types() == [*["sources.resolved", "node.enter", "model.call", "node.retry", "model.call", "node.exit"]]
    assert ran.keys(ev.NodeExit) == ["a#1"]


def test_61_the_result_of_the_last_retry_is_that_of_the_node() -> None:
    ran = run_node(make_turns(BAD, BAD, {"data": {"last": 1}}, GOOD), eval=[NEEDS_URL], retry={"max": 2})
    assert (ran.status("a"), ran.data("a")["last"]) == ("failed", 1)
    assert len(ran.calls) == 3
    assert len(ran.of(ev.NodeRetry)) == 2


def test_61_the_feedback_is_that_of_the_latest_failure() -> None:
    first = {"data": {"x": 1}}
    other = {"name": "y_there", "kind": "value", "rule": {"output_required": ["y"]}}
    ran = run_node(make_turns(first, {"data": {"url": "u"}}, GOOD), eval=[NEEDS_URL, other], retry={"max": 2})
    third = ran.text("a#1.3!turn.1")
    assert "y_there" in third
    assert "url_there" not in third


def test_61_agent_failures_and_preconditions_are_not_retried() -> None:
    failing = run_node(make_turns({"error": "overloaded"}, GOOD), eval=[NEEDS_URL], retry={"max": 2})
    assert (failing.status("a"), len(failing.calls)) == ("failed", 1)
    requires = {"output_required": ["input.gone"]}
    refused = run_node(make_turns(GOOD), eval=[NEEDS_URL], retry={"max": 2}, requires=requires)
    assert (refused.status("a"), len(refused.calls)) == ("failed", 0)


def test_61_output_that_lacks_a_required_field_is_tried_again() -> None:
    output = {"type": "object", "required": ["url"]}
    ran = run_node(make_turns(BAD, GOOD), output=output, retry={"max": 1})
    assert ran.status("a") == "success"
    assert "output_required (value): output schema violation: missing required fields: url" in ran.text("a#1.2!turn.1")


def test_52_fail_soft_does_not_hold_for_an_agent_failure_after_a_failed_evaluation() -> None:
    ran = run_node(make_turns(BAD, {"error": "overloaded"}), eval=[NEEDS_URL], retry={"max": 1}, fail_soft=True)
    assert ran.status("a") == "failed"


def test_61_the_instruction_of_a_retry_comes_before_the_failures() -> None:
    ran = run_node(make_turns(BAD, GOOD), eval=[NEEDS_URL], retry={"max": 1, "instruction": "Mind the URL."})
    assert ran.of(ev.NodeRetry)[0].preamble == f"Mind the URL.\n\n{LINE_URL}"


@pytest.mark.parametrize("instruction", [{"auto": True}, {"reflect": "What about the URL?"}])
def test_61_the_reflection_of_a_model_becomes_the_feedback(instruction: dict[str, Any]) -> None:
    script = {**make_turns(BAD, GOOD), "asks": {"a": ["You forgot it."]}}
    ran = run_node(script, eval=[NEEDS_URL], retry={"max": 1, "instruction": instruction}, model="node-model")
    request = ran.calls["a#1.1!reflect"]
    assert (request.purpose, request.model) == ("reflect", "node-model")
    asked = ran.text("a#1.1!reflect")
    assert all(words in asked for words in ("Do a.", LINE_URL, '{"x":1', str(instruction.get("reflect", ""))))
    assert ran.of(ev.NodeRetry)[0].preamble == f"You forgot it.\n\n{LINE_URL}"


@pytest.mark.parametrize(("answer", "code"), [({"error": "timeout"}, "REFLECTION_FAILED"), ("  ", "REFLECTION_EMPTY")])
def test_62_a_failed_reflection_is_replaced_by_the_default_advice(answer: Any, code: str) -> None:
    script = {**make_turns(BAD, GOOD), "asks": {"a": [answer]}}
    ran = run_node(script, eval=[NEEDS_URL], retry={"max": 1, "instruction": {"auto": True}})
    assert ran.status("a") == "success"
    assert ran.warnings() == [code]
    assert ran.of(ev.NodeRetry)[0].preamble == f"{LINE_URL}\n\n{DEFAULT_ADVICE}"


def test_61_a_retry_costs_at_most_two_model_calls() -> None:
    script = {**make_turns(BAD, BAD, BAD, BAD), "asks": {"a": ["r"] * 3}}
    ran = run_node(script, eval=[NEEDS_URL], retry={"max": 3, "instruction": {"auto": True}})
    assert len(ran.calls) == 2 * 3 + 1


def test_all_attempts_share_a_toolbox_and_the_result_has_the_calls_of_the_last() -> None:
    call_save = {"tool_calls": [{"tool": "save", "input": {}}]}
    raw = document({"a": {"skills": ["s"], "eval": [NEEDS_URL, NEEDS_CALL], "retry": {"max": 1}}})
    script = {**make_turns(call_save, BAD, call_save, GOOD), "tools": {"save": [{"output": 1}, {"output": 2}]}}
    ran = run(raw, script, options={"skills": [scripted_skill("s", "save")]})
    assert ran.keys(ev.EffectCall) == ["a#1.1!toolbox"]
    assert ran.keys(ev.ToolCall) == ["a#1.1!tool.1.0", "a#1.2!tool.1.0"]
    assert ran.end.results["a"]["toolCalls"] == [{"tool": "save", "input": {}, "output": 2}]
