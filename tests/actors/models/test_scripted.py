"""The scripted model and the check of its script."""

from typing import Any

import pytest

from callboard.actors.models.model import ModelTurn, ModelTurnFailed, SpokenReply
from callboard.actors.models.scripted import ScriptedModel, check_script
from callboard.bus.effects import Choice, Failure, ModelReply, Usage
from callboard.bus.events import Problem
from callboard.languages.questions import read_verdict


def a_turn(path: str = "gather", ordinal: int = 0, **fields: Any) -> ModelTurn:
    given: dict[str, Any] = {"key": f"{path}#1.1!turn.{ordinal}", **fields}
    return ModelTurn(model="scripted", idempotency_key="i", path=path, ordinal=ordinal, **given)


async def answer(script: dict[str, Any], turn: ModelTurn, pieces: list[str] | None = None) -> ModelReply:
    return await ScriptedModel(script).turn(turn, (pieces if pieces is not None else []).append)


async def failure(script: dict[str, Any], turn: ModelTurn) -> Failure:
    with pytest.raises(ModelTurnFailed) as caught:
        await answer(script, turn)
    return caught.value.failure


async def test_entries_of_an_id_are_shared_by_all_nodes_of_that_id() -> None:
    model = ScriptedModel({"turns": {"body": [{"text": "one"}, {"text": "two"}], "loop[2]/body": [{"text": "own"}]}})
    for path, ordinal, of_id, text in (
        ("loop[0]/body", 0, 0, "one"),
        ("loop[1]/body", 0, 1, "two"),
        ("loop[2]/body", 0, 2, "own"),
        ("body", 0, 1, "two"),
        ("loop[1]/body", 1, None, "two"),
    ):
        reply = await model.turn(a_turn(path, ordinal, ordinal_of_id=of_id), lambda _text: None)
        assert reply.text == text


async def test_entries_are_used_by_ordinal_and_again_after_a_crash() -> None:
    model = ScriptedModel({"turns": {"gather": [{"text": "one"}, {"text": "two"}]}})
    texts = [(await model.turn(a_turn(ordinal=ordinal), lambda _: None)).text for ordinal in (1, 0, 1)]
    assert texts == ["two", "one", "two"]


async def test_the_whole_path_is_looked_up_before_its_last_id() -> None:
    script = {"turns": {"main/a[2]/fetch": [{"text": "whole"}], "fetch": [{"text": "last"}], "x/y": [{"text": "odd"}]}}
    assert (await answer(script, a_turn("main/a[2]/fetch"))).text == "whole"
    assert (await answer(script, a_turn("main/a[3]/fetch"))).text == "last"
    assert (await answer(script, a_turn("main/x%2Fy:call"))).text == "odd"


async def test_tool_calls_have_ids_that_follow_from_key_and_index() -> None:
    script = {
        "turns": {"gather": [{"text": "I look.", "tool_calls": [{"tool": "a", "input": {"q": 1}}, {"tool": "a"}]}]}
    }
    first, again = [await answer(script, a_turn()) for _ in range(2)]
    assert first == again
    assert [(call.tool, call.input) for call in first.tool_calls] == [("a", {"q": 1}), ("a", {})]
    assert (first.text, first.stop_reason) == ("I look.", "tool_use")
    elsewhere = await answer(script, a_turn(key="gather#2.1!turn.0"))
    assert len({call.id for call in [*first.tool_calls, *elsewhere.tool_calls]}) == 4


async def test_data_is_the_structured_answer_and_its_text() -> None:
    reply = await answer({"turns": {"gather": [{"data": {"b": 1, "a": None}}]}}, a_turn(schema={"type": "object"}))
    assert (reply.data, reply.text) == ({"b": 1, "a": None}, '{"a":null,"b":1}')


@pytest.mark.parametrize(
    ("purpose", "section"),
    [("turn", "turns"), ("summarize", "turns"), ("classify", "turns"), ("route", "routes"), ("reflect", "asks")],
)
async def test_each_purpose_reads_its_section(purpose: str, section: str) -> None:
    script: dict[str, Any] = {name: {"n": [{"text": name}]} for name in ("turns", "routes", "asks")}
    assert (await answer(script, a_turn("n", purpose=purpose))).text == section


async def test_a_route_is_a_choice() -> None:
    reply = await answer({"routes": {"n": ["create_issue"]}}, a_turn("n", purpose="route"))
    assert (reply.text, reply.data) == ("create_issue", {"choice": "create_issue"})


async def test_choices_make_any_answer_a_choice() -> None:
    turn = a_turn("n", purpose="classify", choices=[Choice("yes", ""), Choice("no", "")])
    assert (await answer({"turns": {"n": [{"text": "no"}]}}, turn)).data == {"choice": "no"}


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("yes", "VERDICT: yes\nREASONING: scripted"),
        ({"verdict": "no"}, "VERDICT: no\nREASONING: scripted"),
        ({"verdict": "no", "reasoning": "no link"}, "VERDICT: no\nREASONING: no link"),
        ("VERDICT: yes\nREASONING: by hand", "VERDICT: yes\nREASONING: by hand"),
    ],
)
async def test_a_judge_answers_in_two_lines(entry: Any, text: str) -> None:
    for key in ("main/open_pr/was_created", "open_pr/was_created"):
        turn = a_turn("main/open_pr", purpose="judge", evaluator="was_created")
        assert (await answer({"judges": {key: [entry]}}, turn)).text == text


async def test_progress_is_streamed_in_its_pieces_and_else_the_text() -> None:
    script = {"turns": {"gather": [{"text": "done", "progress": ["do", "ne"], "delay_ms": 1}, {"text": "done"}]}}
    pieces: list[str] = []
    for ordinal in (0, 1):
        await answer(script, a_turn(ordinal=ordinal), pieces)
    assert pieces == ["do", "ne", "done"]
    said = [await answer(script, a_turn(ordinal=ordinal)) for ordinal in (0, 1)]
    assert [reply.progress for reply in said if isinstance(reply, SpokenReply)] == ["done", ""]


async def test_the_stop_reason_is_scripted_or_derived() -> None:
    turns = [{"text": "And so", "stop_reason": "max_tokens"}, {"text": "x"}, {"tool_calls": [{"tool": "t"}]}]
    said = [await answer({"turns": {"gather": turns}}, a_turn(ordinal=ordinal)) for ordinal in range(3)]
    assert [reply.stop_reason for reply in said] == ["max_tokens", "end_turn", "tool_use"]


async def test_usage_is_as_scripted() -> None:
    script = {"turns": {"gather": [{"text": "x", "usage": {"input_tokens": 5, "output_tokens": 2}}]}}
    assert (await answer(script, a_turn())).usage == Usage(5, 2)


async def test_errors_are_failures_of_the_port() -> None:
    script = {
        "turns": {"gather": [{"error": "overloaded"}, {"error": "refused"}]},
        "judges": {"n/e": [{"error": "auth"}]},
    }
    assert await failure(script, a_turn()) == Failure("model.overloaded", "scripted", retryable=True)
    assert await failure(script, a_turn(ordinal=1)) == Failure("model.refused", "scripted", retryable=False)
    assert (await failure(script, a_turn("n", purpose="judge", evaluator="e"))).code == "model.auth"


async def test_a_scripted_failure_has_its_text_and_its_usage() -> None:
    error = {"code": "overloaded", "message": "the line is busy", "data": {"found": 2}}
    script = {"turns": {"gather": [{"error": error, "progress": ["half ", "way"]}]}}
    with pytest.raises(ModelTurnFailed) as caught:
        await answer(script, a_turn())
    assert caught.value.failure == Failure(
        "model.overloaded", "the line is busy", details={"data": {"found": 2}}, retryable=True
    )
    assert caught.value.progress == "half way"


async def test_a_judge_may_answer_nonsense() -> None:
    turn = a_turn("open_pr", purpose="judge", evaluator="good")
    reply = await answer({"judges": {"open_pr/good": [{"text": "What a lovely day it is."}]}}, turn)
    assert reply.text == "What a lovely day it is."
    assert read_verdict(reply).word is None


async def test_the_default_answers_turns_without_a_script() -> None:
    script = {"turns": {"gather": [{"text": "one"}]}, "default": {"text": "ok"}}
    assert (await answer(script, a_turn(ordinal=1))).text == "ok"
    assert (await answer(script, a_turn("n", purpose="route"))).data == {"choice": "ok"}
    assert (
        await answer(script, a_turn("n", purpose="judge", evaluator="e"))
    ).text == "VERDICT: ok\nREASONING: scripted"


async def test_a_turn_without_script_and_default_fails_with_the_remedy() -> None:
    got = await failure({"turns": {"gather": [{"text": "one"}]}}, a_turn("main/gather", ordinal=1))
    assert (got.code, got.retryable) == ("model.unscripted", False)
    assert got.details == {"path": "main/gather", "purpose": "turn", "ordinal": 1, "entries": 1}
    assert 'script.turns["main/gather"] or script.turns.gather' in got.message
    assert "turn 1" in got.message
    assert "add entry 1" in got.message
    judge = await failure({}, a_turn("open_pr", purpose="judge", evaluator="e"))
    assert 'script.judges["open_pr/e"]' in judge.message


def test_an_invalid_script_is_refused() -> None:
    with pytest.raises(ValueError, match=r"script\.oops: .*\n.*script\.turns: "):
        ScriptedModel({"oops": 1, "turns": []})


# -- the check --------------------------------------------------------------------------------------------------------


def test_a_script_with_everything_has_no_problems() -> None:
    manners = {"progress": ["a"], "delay_ms": 0, "usage": {"input_tokens": 1, "cache_read_tokens": 0}}
    script = {
        "turns": {
            "gather": [
                {"tool_calls": [{"tool": "search", "input": {"q": [1, 2.5, None, True]}}], "text": ""},
                {"data": None, **manners},
                {"error": "overloaded"},
                {"error": {"code": "overloaded", "message": "busy", "data": {"found": [2]}}},
            ],
            "none": [],
        },
        "routes": {"investigate": ["create_issue", {"text": "end", **manners}, {"error": "timeout"}]},
        "judges": {
            "open_pr/e": [
                "yes",
                {"verdict": "no", "reasoning": "r", **manners},
                {"error": "timeout"},
                {"error": {"code": "timeout", "message": "too late"}},
                {"text": "What a lovely day it is."},
            ]
        },
        "asks": {"open_pr": ["it forgot the branch", {"text": "x"}]},
        "tools": {"search": [{"output": {"hits": 3}}, {"output": None}, {"error": "rate limited"}]},
        "default": {"text": "ok"},
    }
    assert check_script(script) == []
    assert check_script({}) == []


WRONG: list[tuple[Any, list[tuple[str, str]]]] = [
    ([], [("script.type", "script")]),
    ({"turn": {}}, [("script.unknown", "script.turn")]),
    ({"turns": []}, [("script.type", "script.turns")]),
    ({"turns": {"a": {"text": "x"}}}, [("script.type", "script.turns.a")]),
    ({"turns": {"a/b c": ["x"]}}, [("script.type", 'script.turns["a/b c"][0]')]),
    ({"turns": {1: []}}, [("script.type", "script.turns.1")]),
    ({"turns": {"a": [{}]}}, [("script.value", "script.turns.a[0]")]),
    ({"turns": {"a": [{"delay_ms": 1}]}}, [("script.value", "script.turns.a[0]")]),
    ({"turns": {"a": [{"text": "x", "error": "overloaded"}]}}, [("script.value", "script.turns.a[0]")]),
    ({"turns": {"a": [{"text": 1}]}}, [("script.type", "script.turns.a[0].text")]),
    ({"turns": {"a": [{"text": "x", "stop_reason": 1}]}}, [("script.type", "script.turns.a[0].stop_reason")]),
    ({"asks": {"a": [{"text": "x", "stop_reason": "y"}]}}, [("script.unknown", "script.asks.a[0].stop_reason")]),
    ({"turns": {"a": [{"text": "x", "tool": "y"}]}}, [("script.unknown", "script.turns.a[0].tool")]),
    ({"turns": {"a": [{"tool_calls": []}]}}, [("script.type", "script.turns.a[0].tool_calls")]),
    ({"turns": {"a": [{"tool_calls": [{"name": "s"}]}]}}, [
        ("script.unknown", "script.turns.a[0].tool_calls[0].name"),
        ("script.type", "script.turns.a[0].tool_calls[0].tool"),
    ]),
    ({"turns": {"a": [{"data": {"d": {1: {2}}}}]}}, [
        ("script.type", "script.turns.a[0].data.d.1"),
        ("script.type", "script.turns.a[0].data.d.1"),
    ]),
    ({"turns": {"a": [{"error": "rate limited"}]}}, [("script.value", "script.turns.a[0].error")]),
    ({"turns": {"a": [{"error": {"message": 1, "why": "x"}}]}}, [
        ("script.unknown", "script.turns.a[0].error.why"),
        ("script.type", "script.turns.a[0].error.message"),
        ("script.value", "script.turns.a[0].error.code"),
    ]),
    ({"routes": {"a": [{"error": {"code": "timeout", "data": 1}}]}}, [
        ("script.unknown", "script.routes.a[0].error.data"),
    ]),
    ({"judges": {"a/e": [{"verdict": "yes", "text": "x"}]}}, [("script.value", 'script.judges["a/e"][0]')]),
    ({"turns": {"a": [{"text": "x", "progress": "p"}]}}, [("script.type", "script.turns.a[0].progress")]),
    ({"turns": {"a": [{"text": "x", "delay_ms": -1}]}}, [("script.value", "script.turns.a[0].delay_ms")]),
    ({"turns": {"a": [{"text": "x", "delay_ms": 10**9}]}}, [("script.value", "script.turns.a[0].delay_ms")]),
    ({"turns": {"a": [{"text": "x", "usage": {"input_tokens": True, "tokens": 1}}]}}, [
        ("script.unknown", "script.turns.a[0].usage.tokens"),
        ("script.value", "script.turns.a[0].usage.input_tokens"),
    ]),
    ({"routes": {"a": [1]}}, [("script.type", "script.routes.a[0]")]),
    ({"routes": {"a": [{"data": 1}]}}, [
        ("script.unknown", "script.routes.a[0].data"),
        ("script.value", "script.routes.a[0]"),
    ]),
    ({"judges": {"a/e": [{"reasoning": "r"}]}}, [("script.value", 'script.judges["a/e"][0]')]),
    ({"judges": {"a/e": [True]}}, [("script.type", 'script.judges["a/e"][0]')]),
    ({"asks": {"a": [None]}}, [("script.type", "script.asks.a[0]")]),
    ({"tools": {"s": [{"output": 1, "error": "x"}]}}, [("script.value", "script.tools.s[0]")]),
    ({"tools": {"s": [{"error": {"code": 1}}]}}, [("script.type", "script.tools.s[0].error")]),
    ({"default": "ok"}, [("script.type", "script.default")]),
]  # fmt: skip


@pytest.mark.parametrize(("script", "expected"), WRONG)
def test_each_problem_is_named_with_its_place(script: Any, expected: list[tuple[str, str]]) -> None:
    problems = check_script(script)
    assert [(problem.code, problem.where) for problem in problems] == expected
    assert all(problem.message and problem.expected for problem in problems)


def test_all_problems_are_reported_at_once() -> None:
    script = {"turns": {"a": [{}, {"text": 1}]}, "tools": {"s": {}}, "x": 1}
    assert len(check_script(script)) == 4
    assert isinstance(check_script(script)[0], Problem)
