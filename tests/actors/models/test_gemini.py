"""Gemini through the real SDK, against a local server that speaks its API."""

import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.models import gemini as gemini_model
from callboard.actors.models.catalog import PROVIDERS, open_model
from callboard.actors.models.gemini import MISTAKES, REFUSALS, ContentFold, GeminiModel
from callboard.actors.models.model import ModelTurn, ModelTurnFailed
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.request_retries import RetryPolicy, TryFailed
from callboard.actors.models.trouble import entry_of
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
from tests.support.gemini_api import chunk, end, failing, saying, text_chunks
from tests.support.model_api import Answer, ModelApi, model_api, refusing, streaming
from tests.support.patience import until

QUICK = RetryPolicy(tries_max=3, total_s=60.0, delay_first_s=0.001, delay_max_s=0.001)

FOUND = {"type": "object", "properties": {"found": {"type": "integer", "minimum": 0}, "why": {"const": "so"}}}


def a_turn(**fields: Any) -> ModelTurn:
    given: dict[str, Any] = {"messages": [user("Count.")], **fields}
    return ModelTurn(
        model="gemini-x", path="gather", key="gather#1.1!turn.0", ordinal=0, idempotency_key="idem-1", **given
    )


@asynccontextmanager
async def gemini(
    *answers: Answer, retry: RetryPolicy = QUICK, silence_s: float = 60.0
) -> AsyncGenerator[tuple[GeminiModel, ModelApi]]:
    async with model_api() as server:
        server.will(*answers)
        model = GeminiModel(api_key="k-test", base_url=server.url, retry=retry, silence_s=silence_s)
        try:
            yield model, server
        finally:
            await model.aclose()


async def ask(answer: Answer, turn: ModelTurn | None = None, pieces: list[str] | None = None) -> ModelReply:
    async with gemini(answer) as (model, _):
        return await model.turn(turn or a_turn(), (pieces if pieces is not None else []).append)


async def fail(*answers: Answer, turn: ModelTurn | None = None, retry: RetryPolicy = QUICK) -> Failure:
    async with gemini(*answers, retry=retry) as (model, server):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(turn or a_turn(), lambda _: None)
        assert not server.answers, "not every scripted answer was asked for"
        return caught.value.failure


# -- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_turn_is_streamed_and_its_reply_names_its_source() -> None:
    pieces: list[str] = []
    reply = await ask(saying("Three of them."), pieces=pieces)
    assert pieces == ["Three", " of t", "hem."]
    assert reply.text == "Three of them."
    assert reply.data is None
    assert reply.usage == Usage(330, 7, cache_read_tokens=300)
    assert (reply.stop_reason, reply.response_id, reply.response_model) == ("stop", "r-1", "gemini-served")
    assert (reply.provider, reply.tries) == ("gemini", 1)
    assert reply.first_chunk_ms is not None
    assert reply.first_chunk_ms > 0


async def test_the_request_carries_conversation_tools_and_thoughts() -> None:
    search = ToolSpec("web.search", "Searches.", {"properties": {"q": {"type": "string"}}}, server="web")
    conversation = [
        user("Find it."),
        Message("assistant", [Text("I look."), ToolUse("c1", "web.search", {"q": "x"}, thought="-_8=")]),
        Message("user", [Text("Go on."), ToolOutput("c1", output={"b": 1, "a": [2]})]),
        Message("assistant", [ToolUse("unnamed-0", "web.search", {}, thought="of another, not base64")]),
        Message("user", [ToolOutput("unnamed-0", error=Failure("tool.timeout", "too slow"))]),
    ]
    turn = a_turn(
        system="Be brief.",
        tools=[search],
        messages=conversation,
        temperature=0.3,
        max_output_tokens=50,
        schema={"type": "object"},
    )
    async with gemini(saying('{"a": 1}')) as (model, server):
        with within(sent_as("ab" * 16, "cd" * 8)):
            reply = await model.turn(turn, lambda _: None)
    assert reply.data == {"a": 1}
    [request] = server.requests
    assert request.path == "/v1/models/gemini-x:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "k-test"
    assert request.headers["x-server-timeout"] == "60"
    assert request.headers["traceparent"] == f"00-{'ab' * 16}-{'cd' * 8}-01"
    [told] = request.body.pop("systemInstruction")["parts"]
    assert told["text"].startswith("Be brief.\n\n")
    assert '{"type":"object"}' in told["text"]
    answer = {"name": "web_search", "response": {"output": {"b": 1, "a": [2]}}, "id": "c1"}
    assert request.body == {
        "generationConfig": {"maxOutputTokens": 50, "temperature": 0.3},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "web_search",
                        "description": "Searches.",
                        "parameters_json_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
                    }
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "Find it."}]},
            {
                "role": "model",
                "parts": [
                    {"text": "I look."},
                    {
                        "functionCall": {"id": "c1", "name": "web_search", "args": {"q": "x"}},
                        "thoughtSignature": "-_8=",
                    },
                ],
            },
            {"role": "user", "parts": [{"functionResponse": answer}, {"text": "Go on."}]},
            {"role": "model", "parts": [{"functionCall": {"name": "web_search", "args": {}}}]},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "web_search", "response": {"error": "tool.timeout: too slow"}}}
                ],
            },
        ],
    }


# -- tools ------------------------------------------------------------------------------------------------------------


async def test_tool_calls_are_returned_with_their_original_names_input_and_thought() -> None:
    events = [
        chunk({"text": "Let me think.", "thought": True}),
        *text_chunks("I look."),
        chunk({"functionCall": {"id": "c1", "name": "web_search", "args": {"q": "t"}}, "thoughtSignature": "+/8="}),
        chunk({"functionCall": {"name": "web_search_2"}}),
        *end(),
    ]
    reply = await ask(streaming(events), a_turn(tools=[ToolSpec("web.search"), ToolSpec("web/search")]))
    assert reply.text == "I look."
    named, unnamed = reply.tool_calls
    assert named == ToolUse("c1", "web.search", {"q": "t"}, thought="-_8=")
    assert (unnamed.tool, unnamed.input) == ("web/search", {})
    assert unnamed.id.startswith("unnamed-")


async def test_a_call_without_a_name_is_ignored_and_one_at_the_token_limit_is_kept() -> None:
    events = [chunk({"functionCall": {"args": {}}}), chunk({"functionCall": {"name": "f"}}), *end("MAX_TOKENS")]
    reply = await ask(streaming(events))
    assert [call.tool for call in reply.tool_calls] == ["f"]
    assert reply.stop_reason == "max_tokens"


# -- structured answers -----------------------------------------------------------------------------------------------


async def test_a_schema_with_a_closed_shape_is_enforced_by_the_api() -> None:
    async with gemini(saying('{"found": 3}')) as (model, server):
        reply = await model.turn(a_turn(schema=FOUND), lambda _: None)
    assert (reply.data, reply.text) == ({"found": 3}, '{"found": 3}')
    [request] = server.requests
    assert "systemInstruction" not in request.body
    assert request.body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {
            "type": "object",
            "properties": {
                "found": {"type": "integer", "description": "(minimum: 0)"},
                "why": {"type": "string", "enum": ["so"]},
            },
            "required": [],
            "additionalProperties": False,
        },
    }


async def test_a_schema_that_the_api_cannot_enforce_is_put_into_the_prompt() -> None:
    async with gemini(saying('Here:\n```json\n{"any": 1}\n```')) as (model, server):
        reply = await model.turn(a_turn(schema={"type": "object"}), lambda _: None)
    assert reply.data == {"any": 1}
    [request] = server.requests
    assert request.body["generationConfig"] == {}
    assert "JSON Schema" in request.body["systemInstruction"]["parts"][0]["text"]


async def test_a_structured_answer_that_is_not_json_is_returned_as_text() -> None:
    reply = await ask(streaming([*text_chunks('{"found": '), *end()]), a_turn(schema=FOUND))
    assert (reply.text, reply.data) == ('{"found": ', None)


async def test_a_structured_answer_that_was_cut_off_is_a_bad_reply() -> None:
    failure = await fail(streaming([*text_chunks('{"found": '), *end("MAX_TOKENS")]), turn=a_turn(schema=FOUND))
    assert failure.code == "model.bad_reply"
    assert "cut off" in failure.message


async def test_a_routing_question_is_answered_with_one_of_its_choices() -> None:
    turn = a_turn(purpose="route", choices=[Choice("create_issue", "if there is a bug"), Choice("end", "otherwise")])
    reply = await ask(saying('{"choice": "end"}'), turn)
    assert (reply.data, reply.text) == ({"choice": "end"}, "end")
    assert (await ask(saying("I choose end."), turn)).text == "I choose end."


# -- hostile streams --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")
async def test_unknown_events_and_blocks_are_ignored() -> None:
    events = [
        {"invented": {"deep": [1]}},
        {"candidates": []},
        chunk({"invented": {"x": 1}}, invented=1, usageMetadata={"promptTokenCount": -4, "invented": "many"}),
        chunk({"executableCode": {"code": "1", "language": "PYTHON"}}),
        *text_chunks("Fine."),
        chunk(finish="MADE_UP"),
    ]
    pieces: list[str] = []
    reply = await ask(streaming(events), pieces=pieces)
    assert "".join(pieces) == reply.text == "Fine."
    assert (reply.usage, reply.stop_reason) == (Usage(), "made_up")


REFUSED: dict[str, tuple[list[Any], str]] = {
    "prompt": ([{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}], "prohibited_content"),
    "answer": ([*text_chunks("I "), *end("SAFETY")], "safety"),
    "recited": (end("RECITATION"), "recitation"),
    "explained": (
        [{"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "Not in this tongue."}}],
        "tongue",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refusal_is_a_failure_with_the_providers_reason(case: str) -> None:
    events, words = REFUSED[case]
    failure = await fail(streaming(events))
    assert (failure.code, failure.retryable, failure.details["tries"]) == ("model.refused", False, 1)
    assert words in failure.message


BROKEN: dict[str, tuple[Callable[[], Answer], str]] = {
    "ends early": (lambda: streaming(text_chunks("Half a "), "short"), "model.bad_reply"),
    "connection lost": (lambda: streaming(text_chunks("Half a "), "reset"), "model.unreachable"),
    "overloaded within": (
        lambda: streaming([*text_chunks("Half"), {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}]),
        "model.overloaded",
    ),
    "broken call": (lambda: streaming(end("MALFORMED_FUNCTION_CALL")), "model.bad_reply"),
    "no candidates": (lambda: streaming([{"candidates": []}]), "model.bad_reply"),
    "nothing at all": (lambda: streaming([], "short"), "model.bad_reply"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_stream_that_breaks_off_is_retried(case: str) -> None:
    broken, code = BROKEN[case]
    async with gemini(broken(), saying("Whole.")) as (model, _):
        reply = await model.turn(a_turn(), lambda _: None)
    assert (reply.text, reply.tries) == ("Whole.", 2)
    failure = await fail(*[broken() for _ in range(QUICK.tries_max)])
    assert (failure.code, failure.details["tries"], failure.retryable) == (code, QUICK.tries_max, True)


GARBAGE: dict[str, Any] = {
    "no JSON": "data: {oops\n\n",
    "a number": "data: 5\n\n",
    "nothing": "data: null\n\n",
    "a list": "data: [1]\n\n",
    "candidates": {"candidates": 5},
    "a candidate": {"candidates": ["x"]},
    "parts": chunk({"text": {"not": "text"}}),
    "arguments": chunk({"functionCall": {"name": "f", "args": "{broken"}}),
    "an error without a code": {"error": {"message": "?"}},
    "an error that is none": {"error": 5},
}


@pytest.mark.parametrize("case", GARBAGE)
async def test_garbage_is_a_bad_reply(case: str) -> None:
    answer = streaming([*text_chunks("Half"), GARBAGE[case]])
    async with gemini(answer, answer, answer) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(a_turn(), lambda _: None)
    assert caught.value.failure.code == "model.bad_reply"


MEMBERS = (
    *("candidates", "content", "parts", "text", "function_call", "name", "args", "finish_reason"),
    *("usage_metadata", "prompt_token_count", "prompt_feedback"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "STOP"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(json_values))
def test_any_sequence_of_events_is_folded_without_an_error(events: list[Any]) -> None:
    fold = ContentFold()
    for event in events:
        fold.take(event)
    if not fold.draft.ended:
        with pytest.raises(TryFailed, match=r"model\.bad_reply"):
            fold.reply(SdkRequest({}))


# -- errors and tries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (408, "CANCELLED", "model.timeout"),
        (429, "RESOURCE_EXHAUSTED", "model.rate_limited"),
        (500, "INTERNAL", "model.overloaded"),
        (503, "UNAVAILABLE", "model.overloaded"),
        (504, "DEADLINE_EXCEEDED", "model.timeout"),
    ],
)
async def test_a_temporary_error_is_retried(status: int, word: str, code: str) -> None:
    error = failing(status, word, "scripted trouble", {"retry-after-ms": "1"})
    async with gemini(error, error, saying("At last.")) as (model, _):
        reply = await model.turn(a_turn(), lambda _: None)
    assert (reply.text, reply.tries) == ("At last.", 3)
    failure = await fail(error, error, error)
    assert (failure.code, failure.message, failure.retryable) == (code, "scripted trouble", True)
    assert failure.details == {"status": status, "type": word, "tries": 3}


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (400, "INVALID_ARGUMENT", "model.bad_request"),
        (401, "UNAUTHENTICATED", "model.auth"),
        (403, "PERMISSION_DENIED", "model.auth"),
        (404, "NOT_FOUND", "model.unknown"),
        (418, "INVENTED", "model.bad_request"),
    ],
)
async def test_a_permanent_error_is_not_retried(status: int, word: str, code: str) -> None:
    failure = await fail(failing(status, word, "no"))
    assert (failure.code, failure.message, failure.retryable) == (code, "no", False)
    assert failure.details["tries"] == 1


async def test_a_wrong_key_is_recognized_by_its_reason() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    failure = await fail(failing(400, "INVALID_ARGUMENT", "API key not valid.", details=[None, info]))
    assert (failure.code, failure.message) == ("model.auth", "API key not valid.")


async def test_the_requested_wait_is_read_from_the_details_of_the_error() -> None:
    def slow(delay: str) -> Answer:
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
        return failing(429, "RESOURCE_EXHAUSTED", "slow", details=[info])

    failure = await fail(slow("3600s"))
    assert (failure.code, failure.details["tries"]) == ("model.rate_limited", 1)
    patient = RetryPolicy(tries_max=3, total_s=60.0, delay_first_s=3600.0, delay_max_s=3600.0)
    async with gemini(slow("0.001s"), saying("Yes."), retry=patient) as (model, _):
        assert (await model.turn(a_turn(), lambda _: None)).tries == 2


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"[1, 2]", b""])
async def test_an_error_of_unknown_shape_is_classified_by_its_status(body: bytes) -> None:
    failure = await fail(*[Answer(body, 502)] * 3)
    assert (failure.code, failure.details["status"]) == ("model.overloaded", 502)


async def test_an_answer_that_is_not_a_stream_is_a_bad_reply() -> None:
    failure = await fail(*[refusing(200, {"candidates": []})] * 3)
    assert failure.code == "model.bad_reply"


async def test_a_stream_that_falls_silent_times_out() -> None:
    silent = streaming(text_chunks("Half"), "silent")
    async with gemini(silent, silent, silent, silence_s=0.05) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(a_turn(), lambda _: None)
    assert caught.value.failure.code == "model.timeout"
    assert caught.value.failure.details["tries"] == 3


async def test_the_total_time_bounds_a_try_as_well() -> None:
    async with gemini(streaming([], "silent"), retry=RetryPolicy(total_s=0.1)) as (model, _):
        with pytest.raises(ModelTurnFailed, match="no reply within") as caught:
            await model.turn(a_turn(), lambda _: None)
    assert caught.value.failure.code == "model.timeout"


async def test_many_turns_at_once_do_not_wait_for_each_other() -> None:
    many = 120  # more than the default connections of an HTTP client
    async with gemini(*[streaming([], "silent")] * many) as (model, server), anyio.create_task_group() as tasks:
        for _ in range(many):
            tasks.start_soon(model.turn, a_turn(), lambda _: None)
        await until(lambda: len(server.requests) == many)
        tasks.cancel_scope.cancel()


async def test_an_address_without_a_listener_is_unreachable() -> None:
    async with model_api() as server:
        url = server.url
    model = GeminiModel(api_key="k-test", base_url=url, retry=QUICK)
    with pytest.raises(ModelTurnFailed) as caught:
        await model.turn(a_turn(), lambda _: None)
    await model.aclose()
    assert (caught.value.failure.code, caught.value.failure.details["tries"]) == ("model.unreachable", 3)
    assert f"(at {url.removesuffix('/v1')})" in caught.value.failure.message


def test_a_missing_key_fails_before_any_request() -> None:
    with pytest.raises(ModelTurnFailed, match="GEMINI_API_KEY") as caught:
        open_model("gemini", env={"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"})
    assert caught.value.failure.code == "model.auth"


@pytest.mark.parametrize("variables", [("GEMINI_API_KEY",), ("GOOGLE_API_KEY",), ("GEMINI_API_KEY", "GOOGLE_API_KEY")])
async def test_the_environment_supplies_the_address_and_the_key(variables: tuple[str, ...]) -> None:
    async with model_api() as server:
        server.will(saying("ok"))
        env = {name: f"k-{name}" for name in variables}
        model: Any = open_model("gemini", env={**env, "GOOGLE_GEMINI_BASE_URL": server.url})[0]
        await model.turn(a_turn(), lambda _: None)
        await model.aclose()
    assert server.requests[0].headers["x-goog-api-key"] == f"k-{variables[0]}"


# -- the SDK ----------------------------------------------------------------------------------------------------------


def test_every_exception_of_the_sdk_is_classified() -> None:
    module = importlib.import_module("google.genai.errors")
    kinds: list[type[BaseException]] = [module.APIError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert entry_of(kind, gemini_model.CODE_OF) is not None, f"{kind} has no code"
    assert entry_of(module.UnknownApiResponseError, gemini_model.CODE_OF) is not None
    assert entry_of(gemini_model.UnreadableReply, gemini_model.CODE_OF) is not None
    assert gemini_model.failure_of(KeyError("x")) is None


def test_every_finish_reason_of_the_sdk_is_classified() -> None:
    reasons = {reason.value.lower() for reason in importlib.import_module("google.genai.types").FinishReason}
    assert reasons == REFUSALS | MISTAKES | {"stop", "max_tokens", "continuation"}


def test_the_default_model_is_named_in_the_sdk() -> None:
    written = importlib.import_module("google.genai.models").AsyncModels.generate_content.__doc__
    assert PROVIDERS["gemini"].default in f"{written}"
