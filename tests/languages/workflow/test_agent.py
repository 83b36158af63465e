"""The agent loop and the single questions of all languages."""

from typing import Any

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.effects import ModelReply, ModelRequest, ScriptedTools, ToolOutput, ToolSpec, user
from callboard.languages.agent import (
    ConversationLimits,
    ConversationResult,
    converse,
    find_json,
    is_json,
    read_structured_answer,
)
from callboard.languages.kit import kits
from callboard.languages.language import End, Stage
from callboard.languages.questions import find_choice, read_verdict
from callboard.languages.registry import detect, language
from tests.support.run_harness import RunHarness
from tests.support.workflows import Ran, document, run, scripted_skill

TOOLS = [ToolSpec("look", input_schema={"type": "object", "required": ["q"]}), ToolSpec("find")]


def talk(turns: list[Any], *, turns_max: int = 5, checked: tuple[str, ...] = ()) -> tuple[ConversationResult, Ran]:
    script = {
        "turns": {"n": turns},
        "tools": {"look": [{"output": i} for i in range(9)], "find": [{"error": "no"}] * 9},
    }
    found: list[ConversationResult] = []

    async def play(stage: Stage) -> End:
        node = stage.enter("n")
        async with node.toolbox([ScriptedTools(TOOLS)]):
            request = ModelRequest(system="Be brief.", messages=[user("Go.")], tools=TOOLS, schema={"type": "object"})
            found.append(await converse(stage, node, request, ConversationLimits(turns_max, checked)))
        node.exit("ok")
        return End("completed")

    harness = RunHarness({"p": play}, script=script)
    ran = Ran(anyio.run(harness.play, "p"))
    ran.check(harness.language)
    return found[-1], ran


def turn(*calls: tuple[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"tool": tool, "input": input} for tool, input in calls]}


def test_each_turn_of_a_conversation_has_only_its_new_messages() -> None:
    result, ran = talk([turn(("look", {"q": 1}), ("find", {})), turn(("look", {"q": 2})), {"text": "done"}])
    assert (result.turns, result.error, result.reply and result.reply.text) == (3, None, "done")
    first, second, third = (ran.calls[f"n#1.1!turn.{k}"] for k in (1, 2, 3))
    assert (first.base, second.base, third.base) == (None, "n#1.1!turn.1", "n#1.1!turn.2")
    for later in (second, third):
        assert (later.system, later.tools, later.schema) == ("", [], None)
    look, find = ran.of(ev.ModelResult)[0].tool_calls
    assert second.messages[0].parts == [
        ToolOutput(look.id, of="n#1.1!tool.1.0"),
        ToolOutput(find.id, of="n#1.1!tool.1.1"),
    ]
    assert [(call.use.tool, call.output, call.error and call.error.message) for call in result.calls] == [
        ("look", 0, None),
        ("find", None, "no"),
        ("look", 1, None),
    ]


def test_calls_of_one_turn_are_parallel_and_their_results_are_in_order() -> None:
    turns = [turn(*(("look", {"q": q}) for q in (1, 2, 3))), {"text": "x"}]
    script = {"turns": {"n": turns}, "tools": {"look": [{"output": i} for i in range(3)]}}
    skills = {"skills": [scripted_skill("s", "look")]}
    ran = run(document({"n": {"skills": ["s"]}}), script, options=skills, newest_first=True)
    assert [one for one in ran.types() if one in ("model.call", "tool.call")] == [
        *["model.call", "tool.call", "tool.call", "tool.call", "model.call"]
    ]
    assert ran.keys(ev.ToolResult) == [f"n#1.1!tool.1.{i}" for i in (2, 1, 0)]
    assert ran.told("n#1.1!turn.2") == [0, 1, 2]
    assert [call["output"] for call in ran.end.results["n"]["toolCalls"]] == [0, 1, 2]


def test_a_call_of_a_tool_that_was_not_offered_is_refused() -> None:
    result, ran = talk([turn(("rm", {})), {"text": "x"}])
    assert result.calls[0].error is not None
    assert result.calls[0].error.code == "tool.unknown"
    assert "look, find" in result.calls[0].error.message
    assert ran.of(ev.ToolCall) == []


def test_the_policy_decides_who_validates_the_input_of_a_call() -> None:
    """Without the policy the call is made, and the toolbox refuses it."""
    turns = [turn(("look", {})), {"text": "x"}]
    for checked, made in ((), 1), (("look",), 0):
        result, ran = talk(turns, checked=checked)
        assert result.calls[0].error is not None
        assert result.calls[0].error.code == "tool.invalid_input"
        assert len(ran.of(ev.ToolCall)) == made


def test_a_conversation_ends_after_its_maximum_of_turns() -> None:
    result, ran = talk([turn(("look", {"q": 1}))] * 9, turns_max=3)
    assert (result.turns, len(ran.of(ev.ModelCall)), len(ran.of(ev.ToolCall))) == (3, 3, 2)
    assert result.error is not None
    assert (result.error.code, result.error.details) == ("agent.max_turns", {"max_turns": 3, "wanted": ["look"]})


def test_a_failed_turn_ends_the_conversation_and_keeps_its_calls() -> None:
    result, _ran = talk([turn(("look", {"q": 1})), {"error": "overloaded"}])
    assert (result.turns, len(result.calls), result.error and result.error.code) == (2, 1, "model.overloaded")
    assert result.reply is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (" [1, 2]\n", [1, 2]),
        ('So:\n```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('```json\n{"a": 1}\n```\nor\n```json\n{"a": 2}\n```', {"a": 2}),
        ("```python\nx = 1\n```", None),
        ("no json", None),
        ("", None),
    ],
)
def test_json_is_found_in_a_text(text: str, value: Any) -> None:
    assert find_json(text) == value


def test_a_structured_answer_is_read_from_data_or_text() -> None:
    assert read_structured_answer(ModelReply(text="[1]"), asked=True) == [1]
    assert read_structured_answer(ModelReply(text="[1]"), asked=False) is None
    assert read_structured_answer(ModelReply(text='{"a": 1}', data={"b": 2}), asked=False) == {"b": 2}
    assert (is_json("12"), is_json("x")) == (True, False)


@pytest.mark.parametrize(
    ("reply", "id"),
    [
        (ModelReply(text="open_pr"), "open_pr"),
        (ModelReply(text="`open_pr`."), "open_pr"),
        (ModelReply(text="The way is open_pr, clearly."), "open_pr"),
        (ModelReply(text="open_pr_now"), None),
        (ModelReply(text="open-pr or open_pr"), None),
        (ModelReply(text="open"), "open"),
        (ModelReply(data={"choice": "open-pr"}), "open-pr"),
        (ModelReply(data="open-pr"), "open-pr"),
        (ModelReply(text="a b"), "a b"),
        (ModelReply(text="neither"), None),
    ],
)
def test_the_choice_in_an_answer_is_found(reply: ModelReply, id: str | None) -> None:
    assert find_choice(reply, ["open_pr", "open-pr", "open", "a b"]) == id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b", "b"),
        ('"b"', "b"),
        ("I choose b", "b"),
        ('{"answer": "b"}', "b"),
        ("I choose B.", "b"),
        ("Make a new order", "new order"),
        ("a new order, then order", None),
        ("order", "order"),
        ("neither b nor order", None),
    ],
)
def test_an_id_within_another_and_other_letters(text: str, expected: str | None) -> None:
    assert find_choice(ModelReply(text=text), ["b", "order", "new order"]) == expected


def test_a_verdict_of_many_words_does_not_count() -> None:
    assert read_verdict(ModelReply(text="Well, it depends.")).word is None
    assert read_verdict(ModelReply(text="yes\nbecause")).reasoning == "because"


def test_a_verdict_is_read_from_data() -> None:
    verdict = read_verdict(ModelReply(data={"verdict": "yes", "reasoning": "r"}))
    assert (verdict.word, verdict.reasoning) == ("yes", "r")


# -- the registry ------------------------------------------------------------------------------------------------------


def test_a_language_is_found_by_its_name() -> None:
    assert all(language(name).name == name for name in kits())
    with pytest.raises(KeyError):
        language("esperanto")


@pytest.mark.parametrize(
    "source",
    [
        "id: x\nentry: a\nnodes: {}\nedges: []\n",
        '{"nodes": {}, "entry": "a"}',
        "id: x\nentry: a\nnodes:\n  a: [\n",
        '{"id": "x",\n "entry": "a",\n "nodes": {"a": }}',
    ],
)
def test_a_workflow_is_detected_also_if_it_is_invalid(source: str) -> None:
    assert detect(source) == "workflow"


@pytest.mark.parametrize("source", ["", "just words", "[1]", "steps: []\n", '{"x": 1}'])
def test_a_text_of_no_language_is_refused(source: str) -> None:
    [problem] = detect(source)
    assert not isinstance(problem, str)
    assert (problem.code, problem.where) == ("UNKNOWN_LANGUAGE", "definition.language")
    assert "workflow: " in (problem.expected or "")
