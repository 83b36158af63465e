"""Claude through the real SDK, against a local server that speaks the Messages API."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest

from callboard.actors.models.anthropic import AnthropicModel
from callboard.actors.models.catalog import PROVIDERS, open_model
from callboard.actors.models.model import ModelTurn, ModelTurnFailed
from callboard.actors.models.request_retries import RetryPolicy
from callboard.bus.effects import (
    Choice,
    Failure,
    Message,
    ModelReply,
    Text,
    ToolOutput,
    ToolSpec,
    ToolUse,
    Usage,
    user,
)
from callboard.bus.tracecontext import sent_as, within
from tests.support.messages_api import (
    failing,
    redacted_block,
    saying,
    start,
    stop,
    text_block,
    thinking_block,
    tool_block,
)
from tests.support.model_api import Answer, ModelApi, model_api, streaming

DEFAULT_MODEL = PROVIDERS["anthropic"].default

QUICK = RetryPolicy(tries_max=3, total_s=60.0, delay_first_s=0.001, delay_max_s=0.001)


def a_turn(**fields: Any) -> ModelTurn:
    given: dict[str, Any] = {"messages": [user("Count.")], **fields}
    return ModelTurn(
        model=DEFAULT_MODEL, path="gather", key="gather#1.1!turn.0", ordinal=0, idempotency_key="idem-1", **given
    )


@asynccontextmanager
async def claude(*answers: Answer, retry: RetryPolicy = QUICK) -> AsyncGenerator[tuple[AnthropicModel, ModelApi]]:
    async with model_api() as api:
        api.will(*answers)
        model = AnthropicModel(api_key="sk-test", base_url=api.url, retry=retry)
        try:
            yield model, api
        finally:
            await model.aclose()


async def ask(answer: Answer, turn: ModelTurn | None = None, pieces: list[str] | None = None) -> ModelReply:
    async with claude(answer) as (model, _):
        return await model.turn(turn or a_turn(), (pieces if pieces is not None else []).append)


async def ask_all(*answers: Answer) -> ModelReply:
    async with claude(*answers) as (model, _):
        return await model.turn(a_turn(), lambda _: None)


async def fail(*answers: Answer, turn: ModelTurn | None = None, retry: RetryPolicy = QUICK) -> Failure:
    async with claude(*answers, retry=retry) as (model, api):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(turn or a_turn(), lambda _: None)
        assert not api.answers, "not every scripted answer was asked for"
        return caught.value.failure


# -- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_turn_is_streamed_and_its_reply_names_its_source() -> None:
    pieces: list[str] = []
    answer = saying("Three of them.", cache_creation_input_tokens=20, cache_read_input_tokens=300)
    reply = await ask(answer, pieces=pieces)
    assert pieces == ["Three", " of t", "hem."]
    assert reply.text == "Three of them."
    assert reply.data is None
    assert reply.usage == Usage(330, 7, cache_read_tokens=300, cache_write_tokens=20)
    assert (reply.stop_reason, reply.response_id, reply.response_model) == ("end_turn", "msg_1", "claude-served")
    assert (reply.provider, reply.tries) == ("anthropic", 1)
    assert reply.first_chunk_ms is not None
    assert reply.first_chunk_ms > 0


async def test_the_request_carries_key_conversation_tools_and_cache_marks() -> None:
    search = ToolSpec("web.search", "Searches.", {"properties": {"q": {"type": "string"}}}, server="web")
    conversation = [
        user("Find it."),
        Message("assistant", [Text("I look."), Text(" "), ToolUse("call_1", "web.search", {"q": "x"})]),
        Message("user", [Text("Go on."), ToolOutput("call_1", output={"b": 1, "a": [2]})]),
        Message("assistant", []),
        Message("user", [ToolOutput("call_2", error=Failure("tool.timeout", "too slow")), ToolOutput("c", output="o")]),
    ]
    turn = a_turn(system="Be brief.", tools=[search], messages=conversation, temperature=0.3, max_output_tokens=50)
    async with claude(saying("ok")) as (model, api):
        with within(sent_as("ab" * 16, "cd" * 8)):
            await model.turn(turn, lambda _: None)
    [request] = api.requests
    mark = {"cache_control": {"type": "ephemeral"}}
    assert request.path == "/v1/messages"
    assert request.headers["idempotency-key"] == "idem-1"
    assert request.headers["traceparent"] == f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert "sk-test" in request.headers["authorization"]
    assert request.body == {
        "model": DEFAULT_MODEL,
        "max_tokens": 50,
        "temperature": 0.3,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "tools": [
            {
                "name": "web_search",
                "description": "Searches.",
                "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
                **mark,
            }
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Find it."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_1", "name": "web_search", "input": {"q": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": '{"a":[2],"b":1}'},
                    {"type": "text", "text": "Go on."},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "content": "tool.timeout: too slow",
                        "is_error": True,
                    },
                    {"type": "tool_result", "tool_use_id": "c", "content": "o", **mark},
                ],
            },
        ],
    }


async def test_a_single_question_is_not_written_to_the_cache() -> None:
    async with claude(saying("ok")) as (model, api):
        await model.turn(a_turn(), lambda _: None)
    assert api.requests[0].body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Count."}]}]


# -- tools ------------------------------------------------------------------------------------------------------------


async def test_tool_calls_are_returned_with_their_original_names_and_input() -> None:
    events = [
        *start(),
        *text_block(0, "I look."),
        *tool_block(1, "toolu_1", "web_search", '{"q": "timeout"}'),
        *tool_block(2, "toolu_2", "web_search_2", ""),
        *stop("tool_use"),
    ]
    turn = a_turn(tools=[ToolSpec("web.search"), ToolSpec("web/search")])
    reply = await ask(streaming(events), turn)
    assert reply.text == "I look."
    assert reply.tool_calls == [
        ToolUse("toolu_1", "web.search", {"q": "timeout"}),
        ToolUse("toolu_2", "web/search", {}),
    ]
    assert reply.stop_reason == "tool_use"


async def test_a_call_of_a_tool_that_was_not_offered_is_passed_through() -> None:
    answer = streaming([*start(), *tool_block(0, "toolu_1", "rm_rf", "{}"), *stop("tool_use")])
    assert (await ask(answer)).tool_calls == [ToolUse("toolu_1", "rm_rf", {})]


async def test_a_tool_call_in_a_turn_with_a_schema_is_not_the_structured_answer() -> None:
    answer = streaming([*start(), *text_block(0, "Wait."), *tool_block(1, "t", "f", "{}"), *stop("tool_use")])
    reply = await ask(answer, a_turn(schema={"type": "object"}, tools=[ToolSpec("f")]))
    assert reply.data is None
    assert [call.tool for call in reply.tool_calls] == ["f"]


THINKING = [
    *start(),
    *thinking_block(0, "Which one first?", "sig-1"),
    *text_block(1, "I look."),
    *redacted_block(2, "sealed"),
    *text_block(3, " Twice."),
    *tool_block(4, "toolu_1", "f", "{}"),
    *thinking_block(5, "", "sig-2"),
    *tool_block(6, "toolu_2", "f", "{}"),
    *tool_block(7, "toolu_3", "f", "{}"),
    *stop("tool_use"),
]


def going_on(reply: ModelReply) -> ModelTurn:
    """The turn after one that called tools, as a run puts it together from its log."""
    answers = [ToolOutput(call.id, output="ok") for call in reply.tool_calls]
    said = Message("assistant", [Text(reply.text), *reply.tool_calls])
    return a_turn(tools=[ToolSpec("f")], messages=[user("Go."), said, Message("user", [*answers])])


async def test_thinking_before_calls_is_sent_back_at_its_place() -> None:
    async with claude(streaming(THINKING), saying("ok")) as (model, api):
        reply = await model.turn(a_turn(tools=[ToolSpec("f")]), lambda _: None)
        await model.turn(going_on(reply), lambda _: None)
    assert reply.text == "I look. Twice."
    assert [bool(call.thought) for call in reply.tool_calls] == [True, True, False]
    assert "I look" not in reply.tool_calls[0].thought
    call = {"type": "tool_use", "name": "f", "input": {}}
    assert api.requests[1].body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Which one first?", "signature": "sig-1"},
        {"type": "text", "text": "I look."},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "text", "text": " Twice."},
        {**call, "id": "toolu_1"},
        {"type": "thinking", "thinking": "", "signature": "sig-2"},
        {**call, "id": "toolu_2"},
        {**call, "id": "toolu_3"},
    ]


def types_of(request: Any) -> list[str]:
    return [block["type"] for block in request.body["messages"][1]["content"]]


async def test_all_thinking_is_omitted_after_the_api_refused_it() -> None:
    words = (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
    )
    refused = failing(400, "invalid_request_error", words)
    async with claude(streaming(THINKING), refused, saying("ok")) as (model, api):
        turn = going_on(await model.turn(a_turn(tools=[ToolSpec("f")]), lambda _: None))
        assert (await model.turn(turn, lambda _: None)).tries == 2
        assert types_of(api.requests[1]).count("thinking") == 2
        assert types_of(api.requests[2]) == ["text", "tool_use", "tool_use", "tool_use"]
    assert (await fail(refused, refused, turn=turn)).code == "model.bad_request"
    assert (await fail(refused)).code == "model.bad_request"


async def test_an_invalid_thought_is_not_sent() -> None:
    strange = ("bm90IGF0IGFsbA==", "5", '[{"type":"reasoning","id":"r"},{"type":"thinking"},-3,true]', "{")
    calls = [ToolUse("c", "f", {}, thought=thought) for thought in strange]
    async with claude(saying("ok")) as (model, api):
        await model.turn(going_on(ModelReply(text="Hm.", tool_calls=calls)), lambda _: None)
    assert types_of(api.requests[0]) == ["text", *["tool_use"] * 4]


@pytest.mark.parametrize("raw", ['{"q": ', "[1]", "{]"])
async def test_a_tool_call_with_invalid_input_has_the_reason(raw: str) -> None:
    reply = await ask(streaming([*start(), *tool_block(0, "toolu_1", "search", raw), *stop("tool_use")]))
    [call] = reply.tool_calls
    assert (call.id, call.tool, call.input) == ("toolu_1", "search", {})
    assert raw in call.fault
    assert reply.usage.tokens == 17


async def test_a_tool_call_cut_at_the_token_limit_is_a_bad_reply_with_a_remedy() -> None:
    half = tool_block(0, "toolu_1", "search", '{"q": "time')[:-1]
    failure = await fail(streaming([*start(), *half, *stop("max_tokens")]))
    assert failure.code == "model.bad_reply"
    assert "max_output_tokens" in failure.message
    assert failure.retryable is False


async def test_text_cut_at_the_token_limit_is_a_reply_with_that_stop_reason() -> None:
    reply = await ask(streaming([*start(), *text_block(0, "Once upon"), *stop("max_tokens")]))
    assert (reply.text, reply.stop_reason) == ("Once upon", "max_tokens")


# -- structured answers -----------------------------------------------------------------------------------------------

FOUND = {"type": "object", "properties": {"found": {"type": "integer", "minimum": 0}}, "required": ["found"]}


async def test_a_schema_with_a_closed_shape_is_enforced_by_the_api() -> None:
    async with claude(saying('{"found": 3}')) as (model, api):
        reply = await model.turn(a_turn(schema=FOUND), lambda _: None)
    assert reply.data == {"found": 3}
    assert reply.text == '{"found": 3}'
    [request] = api.requests
    assert request.body["output_config"]["format"] == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "properties": {"found": {"type": "integer", "description": "(minimum: 0)"}},
            "required": ["found"],
            "additionalProperties": False,
        },
    }
    assert "system" not in request.body
    assert "tool_choice" not in request.body


@pytest.mark.parametrize("text", ['{"any": 1}', 'Here it is:\n```json\n{"any": 1}\n```\nDone.'])
async def test_a_schema_that_the_api_cannot_enforce_is_put_into_the_prompt(text: str) -> None:
    async with claude(saying(text)) as (model, api):
        reply = await model.turn(a_turn(schema={"type": "object"}, system="Be brief."), lambda _: None)
    assert reply.data == {"any": 1}
    [request] = api.requests
    assert "output_config" not in request.body
    assert request.body["system"][0]["text"] == "Be brief."
    assert '{"type":"object"}' in request.body["system"][1]["text"]


async def test_a_structured_answer_that_is_not_json_is_returned_as_text() -> None:
    reply = await ask(streaming([*start(), *text_block(0, '{"found": '), *stop("end_turn")]), a_turn(schema=FOUND))
    assert (reply.text, reply.data) == ('{"found": ', None)


async def test_a_structured_answer_that_was_cut_off_is_a_bad_reply() -> None:
    answer = streaming([*start(), *text_block(0, '{"found": '), *stop("max_tokens")])
    failure = await fail(answer, turn=a_turn(schema=FOUND))
    assert failure.code == "model.bad_reply"
    assert "cut off" in failure.message


async def test_a_routing_question_is_answered_with_one_of_its_choices() -> None:
    choices = [Choice("create_issue", "if there is a bug"), Choice("end", "otherwise")]
    async with claude(saying('{"choice": "end"}')) as (model, api):
        reply = await model.turn(a_turn(purpose="route", choices=choices), lambda _: None)
    assert reply.data == {"choice": "end"}
    assert reply.text == "end"
    [request] = api.requests
    properties = request.body["output_config"]["format"]["schema"]["properties"]
    assert properties["choice"]["enum"] == ["create_issue", "end"]
    assert "if there is a bug" in request.body["system"][0]["text"]


@pytest.mark.parametrize("text", ['{"choice": "c"}', "b", '"b"', "I choose b."])
async def test_an_answer_that_names_no_choice_is_returned_as_text(text: str) -> None:
    turn = a_turn(purpose="route", choices=[Choice("a", ""), Choice("b", "")])
    assert (await ask(saying(text), turn)).text == text


# -- hostile streams --------------------------------------------------------------------------------------------------


async def test_unknown_events_and_blocks_are_ignored() -> None:
    events = [
        {"type": "invented_event", "deep": {"er": [1]}},
        *start(),
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "lost"}},
        {"type": "content_block_stop", "index": 9},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "invented_delta", "x": 1}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_delta", "index": "one", "delta": 5},
        {"type": "content_block_start", "index": 2, "content_block": None},
        "event: message_delta\ndata: 5\n\n",
        "event: message_delta\ndata: null\n\n",
        ": a comment\n\n",
        *text_block(1, "Fine."),
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": "many", "input_tokens": -4}},
        *stop("end_turn"),
    ]
    pieces: list[str] = []
    reply = await ask(streaming(events), pieces=pieces)
    assert "".join(pieces) == reply.text == "Fine."
    assert reply.usage == Usage(10, 7)


async def test_empty_content_is_an_empty_reply() -> None:
    reply = await ask(streaming([*start(), *stop("end_turn")]))
    assert (reply.text, reply.tool_calls, reply.stop_reason) == ("", [], "end_turn")


async def test_a_refusal_is_a_failure_with_the_providers_reason() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "That could do harm."}
    failure = await fail(streaming([*start(), *text_block(0, "I "), *stop("refusal", stop_details=details)]))
    assert (failure.code, failure.message, failure.retryable) == ("model.refused", "That could do harm.", False)
    assert failure.details["stop_details"]["category"] == "cyber"


BROKEN: dict[str, tuple[Callable[[], Answer], str]] = {
    "ends early": (lambda: streaming([*start(), *text_block(0, "Half a ")], "short"), "model.bad_reply"),
    "connection lost": (lambda: streaming([*start(), *text_block(0, "Half a ")], "reset"), "model.unreachable"),
    "overloaded within": (
        lambda: streaming([*start(), {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}]),
        "model.overloaded",
    ),
    "nothing at all": (lambda: streaming([], "short"), "model.bad_reply"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_stream_that_breaks_off_is_retried(case: str) -> None:
    broken, _ = BROKEN[case]
    async with claude(broken(), saying("Whole.")) as (model, api):
        reply = await model.turn(a_turn(), lambda _: None)
    assert (reply.text, reply.tries) == ("Whole.", 2)
    assert [request.headers["idempotency-key"] for request in api.requests] == ["idem-1", "idem-1"]


async def test_the_usage_of_failed_tries_is_added_to_that_of_the_reply() -> None:
    broken = streaming([*start(cache_read_input_tokens=300), *text_block(0, "Half a ")], "reset")
    reply = await ask_all(broken, saying("Whole."))
    assert (reply.tries, reply.usage) == (2, Usage(320, 8, cache_read_tokens=300))


@pytest.mark.parametrize(
    ("answer", "used"),
    [
        (streaming([*start(), *text_block(0, "I "), *stop("refusal")]), Usage(10, 7)),
        (streaming([*start(), *tool_block(0, "toolu_1", "f", '{"q": ')[:-1], *stop("max_tokens")]), Usage(10, 7)),
        (streaming([*start(), {"type": "error", "error": {"type": "invalid_request_error"}}]), Usage(10, 1)),
        (failing(400, "invalid_request_error"), Usage()),
    ],
)
async def test_a_failed_turn_reports_its_usage(answer: Answer, used: Usage) -> None:
    async with claude(answer) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(a_turn(), lambda _: None)
    assert caught.value.usage == used


@pytest.mark.parametrize("case", BROKEN)
async def test_a_stream_that_keeps_breaking_off_fails(case: str) -> None:
    broken, code = BROKEN[case]
    failure = await fail(*[broken() for _ in range(QUICK.tries_max)])
    assert failure.code == code
    assert failure.details["tries"] == QUICK.tries_max
    assert failure.retryable is True


async def test_an_event_that_is_not_json_is_a_bad_reply_and_is_retried() -> None:
    broken = streaming([*start(), "event: message_delta\ndata: {oops\n\n"])
    assert (await fail(*[broken] * QUICK.tries_max)).code == "model.bad_reply"
    async with claude(broken, saying("Whole.")) as (model, _):
        assert (await model.turn(a_turn(), lambda _: None)).text == "Whole."


# -- errors and tries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (408, "timeout_error", "model.timeout"),
        (409, "conflict_error", "model.overloaded"),
        (429, "rate_limit_error", "model.rate_limited"),
        (500, "api_error", "model.overloaded"),
        (503, "api_error", "model.overloaded"),
        (504, "timeout_error", "model.timeout"),
        (529, "overloaded_error", "model.overloaded"),
    ],
)
async def test_a_temporary_error_is_retried(status: int, kind: str, code: str) -> None:
    error = failing(status, kind, "scripted trouble", {"retry-after-ms": "1"})
    async with claude(error, error, saying("At last.")) as (model, _):
        reply = await model.turn(a_turn(), lambda _: None)
    assert (reply.text, reply.tries) == ("At last.", 3)
    failure = await fail(error, error, error)
    assert (failure.code, failure.message, failure.retryable) == (code, "scripted trouble", True)
    assert failure.details == {"status": status, "type": kind, "request_id": "req_1", "tries": 3}


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", "model.bad_request"),
        (401, "authentication_error", "model.auth"),
        (402, "billing_error", "model.auth"),
        (403, "permission_error", "model.auth"),
        (404, "not_found_error", "model.unknown"),
        (413, "request_too_large", "model.context_too_long"),
        (418, "invented_error", "model.bad_request"),
        (422, "invalid_request_error", "model.bad_request"),
        (501, "api_error", "model.bad_request"),
    ],
)
async def test_a_permanent_error_is_not_retried(status: int, kind: str, code: str) -> None:
    failure = await fail(failing(status, kind, "no"))
    assert (failure.code, failure.retryable) == (code, False)
    assert failure.details["tries"] == 1


async def test_the_retry_header_of_a_provider_overrides_the_status() -> None:
    failure = await fail(failing(429, "rate_limit_error", "enough", {"x-should-retry": "false"}))
    assert (failure.code, failure.retryable, failure.details["tries"]) == ("model.rate_limited", False, 1)
    again = failing(400, "invalid_request_error", "once more", {"x-should-retry": "true"})
    async with claude(again, saying("Yes.")) as (model, _):
        assert (await model.turn(a_turn(), lambda _: None)).tries == 2


@pytest.mark.parametrize("headers", [{"retry-after": "3600"}, {"retry-after": "Fri, 31 Dec 2100 23:59:59 GMT"}])
async def test_a_wait_longer_than_the_total_time_fails_at_once(headers: dict[str, str]) -> None:
    failure = await fail(failing(529, "overloaded_error", "later", headers))
    assert (failure.code, failure.details["tries"]) == ("model.overloaded", 1)


async def test_a_stream_that_falls_silent_times_out() -> None:
    async with model_api() as api:
        api.will(streaming(start(), "silent"), streaming(start(), "silent"))
        retry = RetryPolicy(tries_max=2, total_s=60.0, delay_first_s=0.001)
        model = AnthropicModel(api_key="sk-test", base_url=api.url, retry=retry, silence_s=0.05)
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(a_turn(), lambda _: None)
        await model.aclose()
    assert caught.value.failure.code == "model.timeout"
    assert caught.value.failure.details["tries"] == 2


async def test_the_total_time_bounds_a_try_as_well() -> None:
    async with claude(streaming(start(), "silent"), retry=RetryPolicy(total_s=0.1)) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(a_turn(), lambda _: None)
    assert caught.value.failure.code == "model.timeout"
    assert "0.1 s" in caught.value.failure.message


async def test_an_address_without_a_listener_is_unreachable() -> None:
    async with model_api() as api:
        url = api.url
    model = AnthropicModel(api_key="sk-test", base_url=url, retry=QUICK)
    with pytest.raises(ModelTurnFailed) as caught:
        await model.turn(a_turn(), lambda _: None)
    await model.aclose()
    assert (caught.value.failure.code, caught.value.failure.details["tries"]) == ("model.unreachable", 3)
    assert f"(at {url.removesuffix('/v1')})" in caught.value.failure.message


def test_a_missing_key_fails_before_any_request() -> None:
    with pytest.raises(ModelTurnFailed) as caught:
        open_model("anthropic", env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
    assert caught.value.failure.code == "model.auth"
    assert "ANTHROPIC_API_KEY" in caught.value.failure.message


async def test_a_token_is_accepted_instead_of_a_key() -> None:
    async with model_api() as api:
        api.will(saying("ok"))
        model: Any = open_model("anthropic", env={"ANTHROPIC_AUTH_TOKEN": "tok-1", "ANTHROPIC_BASE_URL": api.url})[0]
        await model.turn(a_turn(), lambda _: None)
        await model.aclose()
    assert api.requests[0].headers["authorization"] == "Bearer tok-1"


def test_the_default_model_is_known_to_the_sdk_and_current() -> None:
    from anthropic.resources.messages.messages import DEPRECATED_MODELS
    from anthropic.types import ModelParam

    known = get_args(get_args(ModelParam)[0])
    assert DEFAULT_MODEL in known
    assert DEFAULT_MODEL not in DEPRECATED_MODELS
