"""What adapters make of servers that do not keep to their API, of odd answers, and of other providers' turns."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from callboard.actors.models.answer_json import read_json, read_relaxed
from callboard.actors.models.anthropic import AnthropicModel
from callboard.actors.models.gemini import GeminiModel
from callboard.actors.models.model import Model, ModelTurn, ModelTurnFailed, ProviderReply
from callboard.actors.models.openai import OpenAIModel
from callboard.actors.models.request_parts import fresh_ids, with_fit_ids
from callboard.actors.models.request_retries import RetryPolicy
from callboard.actors.models.trouble import is_too_long, words_of
from callboard.bus.effects import Failure, Message, Text, ToolOutput, ToolSpec, ToolUse, Usage, user
from tests.support import gemini_api, messages_api, openai_api
from tests.support.model_api import Answer, ModelApi, model_api, refusing, streaming

Api = Literal["anthropic", "responses", "chat", "gemini"]
APIS: tuple[Api, ...] = ("anthropic", "responses", "chat", "gemini")
SAYING: Mapping[Api, Any] = {
    "anthropic": messages_api.saying,
    "responses": openai_api.responding,
    "chat": openai_api.chatting,
    "gemini": gemini_api.saying,
}
QUICK = RetryPolicy(tries_max=3, total_s=60.0, delay_first_s=0.001, delay_max_s=0.002)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def turn(**fields: Any) -> ModelTurn:
    defaults: dict[str, Any] = {"path": "n", "key": "n#1.1!turn.1", "ordinal": 0, "idempotency_key": "i"}
    given: dict[str, Any] = {"model": "m", "messages": [user("hi")], **defaults, **fields}
    return ModelTurn(**given)


@asynccontextmanager
async def serving(api: Api, *answers: Answer) -> AsyncGenerator[tuple[Model, ModelApi]]:
    async with model_api() as server:
        server.will(*answers)
        model: Any
        match api:
            case "anthropic":
                model = AnthropicModel(api_key="k", base_url=server.url, retry=QUICK)
            case "gemini":
                model = GeminiModel(api_key="k", base_url=server.url, retry=QUICK)
            case _:
                model = OpenAIModel(api_key="k", base_url=f"{server.url}/v1", api=api, retry=QUICK)
        yield model, server
        await model.aclose()


async def ask(api: Api, *answers: Answer, asked: ModelTurn | None = None) -> tuple[ProviderReply, list[Any]]:
    """Return the reply and the bodies of all requests."""
    async with serving(api, *answers) as (model, server):
        reply = await model.turn(asked or turn(), lambda _: None)
    assert isinstance(reply, ProviderReply)
    return reply, [request.body for request in server.requests]


async def fail(api: Api, *answers: Answer, asked: ModelTurn | None = None) -> ModelTurnFailed:
    async with serving(api, *answers) as (model, server):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(asked or turn(), lambda _: None)
    assert not server.answers, "not every scripted answer was asked for"
    return caught.value


# -- text that UTF-8 cannot carry -------------------------------------------------------------------------------------


def saying_halves(api: Api) -> Answer:
    """An answer whose emoji comes in two pieces, with a lone half at the end; a call with halves everywhere."""
    pieces, raw = ("a\ud83d", "\ude00b\ud83d"), '{"q": "\\ud83d\\ude00 \\ud83d"}'
    match api:
        case "anthropic":
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
            text = [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
                {"type": "content_block_stop", "index": 0},
            ]
            call = messages_api.tool_block(1, "c\ud83d", "f\ude00", raw)
            return streaming([*messages_api.start(), *text, *call, *messages_api.stop("tool\ud83d")])
        case "responses":
            delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
            text = [{**delta, "delta": piece} for piece in pieces]
            call = openai_api.call_item(1, "c\ud83d", "f\ude00", raw)
            return streaming([*openai_api.created(), *text, *call, *openai_api.completed()])
        case "chat":
            text = [openai_api.chunk({"content": piece}) for piece in pieces]
            call = openai_api.call_chunks(0, "c\ud83d", "f\ude00", raw)
            return streaming([*text, *call, *openai_api.finish("tool\ud83d")])
        case "gemini":
            text = [gemini_api.chunk({"text": piece}) for piece in pieces]
            call = {"functionCall": {"id": "c\ud83d", "name": "f\ude00", "args": json.loads(raw)}}
            return streaming([*text, gemini_api.chunk(call), *gemini_api.end()])


@pytest.mark.parametrize("api", APIS)
async def test_surrogates_in_a_stream_are_joined_or_replaced(api: Api) -> None:
    pieces: list[str] = []
    async with serving(api, saying_halves(api)) as (model, _):
        reply = await model.turn(turn(), pieces.append)
    assert "".join(pieces) == reply.text == "a😀b\ufffd"
    assert [piece.encode() for piece in pieces]
    [call] = reply.tool_calls
    assert (call.id, call.tool, call.input) == ("c\ufffd", "f\ufffd", {"q": "😀 \ufffd"})
    assert reply.usage.tokens > 0


@pytest.mark.parametrize("api", APIS)
async def test_surrogates_in_the_message_of_an_error_are_replaced(api: Api) -> None:
    failed = await fail(api, refusing(400, {"error": {"message": "no \ud83d", "type": "x\ude00"}}))
    assert failed.failure.message == "no \ufffd"


async def test_a_listener_that_breaks_costs_no_usage() -> None:
    def broken(_piece: str) -> None:
        raise OSError("no ink")

    async with serving("anthropic", messages_api.saying("Hello there.")) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(turn(), broken)
    assert caught.value.failure.code == "internal"
    assert caught.value.usage.input_tokens == 10


# -- answers that are not streams -------------------------------------------------------------------------------------

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "model": "served",
    "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c1", "name": "f", "input": {"q": 1}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1000, "output_tokens": 50},
}
RESPONSE = {
    "object": "response",
    "id": "resp_1",
    "model": "served",
    "status": "completed",
    "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"q": 1}', "status": "completed"},
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 50},
}
COMPLETION = {
    "object": "chat.completion",
    "id": "chatcmpl-1",
    "model": "served",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hi",
                "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"q": 1}'}}],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 50},
}
WHOLE: Mapping[Api, Any] = {"anthropic": MESSAGE, "responses": RESPONSE, "chat": COMPLETION}


@pytest.mark.parametrize("api", WHOLE)
async def test_an_answer_without_a_stream_is_accepted(api: Api) -> None:
    reply, requests = await ask(api, refusing(200, WHOLE[api]))
    assert (reply.text, reply.tool_calls, len(requests)) == ("hi", [ToolUse("c1", "f", {"q": 1})], 1)
    assert (reply.usage, reply.response_model, reply.unmetered) == (Usage(1000, 50), "served", False)


@pytest.mark.parametrize("api", APIS)
async def test_a_stream_with_another_media_type_is_accepted(api: Api) -> None:
    stream: Answer = SAYING[api]("Whole.")
    mislabelled = Answer(stream.body, 200, {"content-type": "text/plain; charset=utf-8"})
    assert (await ask(api, mislabelled))[0].text == "Whole."


@pytest.mark.parametrize("api", APIS)
async def test_an_html_page_fails_at_once_with_its_media_type(api: Api) -> None:
    page = Answer(b"<html><body>Please sign&nbsp;in</body></html>", 200, {"content-type": "text/html; charset=utf-8"})
    failed = await fail(api, page)
    assert failed.failure.code == "model.bad_reply"
    assert "text/html" in failed.failure.message
    assert ["Please", "sign", "in"][0] in failed.failure.message
    assert failed.failure.details["tries"] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": "Unexpected endpoint or method."}, "Unexpected endpoint"),
        ({"type": "error", "error": {"type": "x", "message": "quite wrong"}}, "quite wrong"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"status": "ok"}, "status"),
    ],
)
@pytest.mark.parametrize("api", WHOLE)
async def test_an_object_that_is_not_a_reply_fails_at_once(api: Api, body: Any, words: str) -> None:
    failed = await fail(api, refusing(200, body))
    assert failed.failure.code == "model.bad_reply"
    assert words in failed.failure.message
    assert failed.failure.details["tries"] == 1


# -- what servers refuse ----------------------------------------------------------------------------------------------

REFUSALS: tuple[Any, ...] = (
    {"error": {"message": "structured outputs are not available here", "type": "invalid_request_error", "param": None}},
    {"detail": [{"loc": ["body", "response_format"], "msg": "Extra inputs are not permitted", "type": "extra"}]},
    {"error": "response_schema: Extra inputs are not permitted"},
    {"message": "bad request"},
    {"object": "error", "message": "grammar error", "code": 400},
)


@pytest.mark.parametrize("body", REFUSALS)
@pytest.mark.parametrize("api", APIS)
async def test_a_schema_that_the_api_refuses_is_put_into_the_prompt(api: Api, body: Any) -> None:
    asked = turn(schema=SCHEMA)
    reply, (first, second) = await ask(api, refusing(400, body), SAYING[api]('{"a": "x"}'), asked=asked)
    assert (reply.data, reply.tries) == ({"a": "x"}, 2)
    name = {"responses": "format", "chat": "response_format", "anthropic": "output_config"}.get(api, "JsonSchema")
    assert name in str(first)
    assert name not in str(second)
    assert "JSON Schema" in str(second)


@pytest.mark.parametrize("api", APIS)
async def test_a_request_that_is_refused_for_something_else_fails(api: Api) -> None:
    refused = refusing(400, {"error": {"message": "messages: too few"}})
    failed = await fail(api, refused, refused, asked=turn(schema=SCHEMA))
    assert failed.failure.code == "model.bad_request"
    assert "too few" in failed.failure.message


async def test_a_parameter_that_an_error_text_refuses_is_omitted_from_then_on() -> None:
    refused = refusing(400, {"error": {"type": "invalid_request_error", "message": "`temperature` is deprecated here"}})
    asked = turn(temperature=0.5, parameters={"top_p": 0.9})
    async with serving("anthropic", refused, *[messages_api.saying("ok")] * 2) as (model, server):
        await model.turn(asked, lambda _: None)
        await model.turn(asked, lambda _: None)
    assert [request.body.get("temperature") for request in server.requests] == [0.5, None, None]
    assert [request.body.get("top_p") for request in server.requests] == [0.9] * 3


async def test_parameters_that_exclude_each_other_are_distinguished_in_that_turn() -> None:
    both = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    refused = refusing(400, {"error": {"type": "invalid_request_error", "message": both}})
    asked = turn(temperature=0.5, parameters={"top_p": 0.9})
    _, requests = await ask("anthropic", refused, messages_api.saying("ok"), asked=asked)
    assert [(body.get("temperature"), body.get("top_p")) for body in requests] == [(0.5, 0.9), (0.5, None)]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
        "the request exceeds the available context size. try increasing the context size",
    ],
)
async def test_a_context_that_is_too_long_has_a_code_of_its_own(api: Api, message: str) -> None:
    failed = await fail(api, refusing(400, {"error": {"message": message, "type": "invalid_request_error"}}))
    assert (failed.failure.code, failed.failure.retryable) == ("model.context_too_long", False)


def test_other_errors_are_not_about_the_context() -> None:
    for words in ("temperature is too large", "max_tokens is too large: 5", "too many requests", "schema is not valid"):
        assert not is_too_long(words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "one"}}', "one"),
        ('{"error": "two"}', "two"),
        ('{"detail": "three"}', "three"),
        ('{"detail": [{"loc": ["body", "x"], "msg": "four"}, {"msg": "five"}]}', "body.x: four; five"),
        ('{"errors": [{"message": "six"}]}', "six"),
        ('{"message": {"text": 1}, "title": "seven"}', "seven"),
        ("plain\n words", "plain words"),
        ("<html><head><style>a{}</style></head><body>eight &amp; nine</body></html>", "eight & nine"),
        ('{"code": 5}', '{"code": 5}'),
        ("", ""),
    ],
)
def test_the_words_of_an_error_are_found_in_any_shape(body: str, words: str) -> None:
    assert words_of(body) == words


@pytest.mark.parametrize("api", APIS)
async def test_an_error_of_another_shape_keeps_its_words(api: Api) -> None:
    failed = await fail(api, refusing(404, {"detail": "no such route: /v1/x"}))
    assert failed.failure.code == "model.unknown"
    assert "no such route: /v1/x" in failed.failure.message


# -- answers in odd forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'Here is the JSON: {"a": "x"}',
        '{"a": "x",}',
        '<think>{"a": "no"} hm</think>\n{"a": "x"}',
        "```json5\n{a: 'x', /* so */}\n```",
        '```json\n{"a": "x"}',
        'It is {"a": "x"}, where {name} is free.',
        "{'a': 'x'}",
        '\ufeff{"a": "x"}',
        '[1] says: {"a": "x"}',
    ],
)
def test_an_answer_is_read_as_the_json_that_it_means(text: str) -> None:
    assert read_json(text) == {"a": "x"}


@pytest.mark.parametrize("text", ["b", "", '{"a": {"a": "x"}', '{"list": [{"a": "x"}, {"a": ', '{"a": NaN}', "{a}"])
def test_text_that_is_not_json_is_not_repaired(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        read_json(text)


def test_an_array_is_taken_where_one_is_expected() -> None:
    text = 'The list [{"a": 1}, {"a": 2}] or {"a": 3}'
    assert read_json(text, array=True) == [{"a": 1}, {"a": 2}]
    assert read_json(text) == {"a": 3}


def test_the_reader_with_liberties_takes_json_as_it_is() -> None:
    value = {"a": [1, -2.5, 1e3, True, None, '\n"\u00e9😀'], "b": {}}
    assert read_relaxed(json.dumps(value)) == value
    assert read_relaxed(json.dumps(value, ensure_ascii=False)) == value
    for text in ("{", "[1 2]", "{a 1}", "'x", "1 2", "nothing", "[" * 1000, '"\\u12"', "-", "1.2.3"):
        with pytest.raises(ValueError, match=r"."):
            read_relaxed(text)


@pytest.mark.parametrize(
    ("raw", "input", "fault"),
    [
        ('{"q": 1,}', {"q": 1}, False),
        ('"{\\"q\\": 1}"', {"q": 1}, False),
        ("null", {}, False),
        ("", {}, False),
        ('{"q": ', {}, True),
        ("[1]", {}, True),
        ('{"q": NaN}', {}, True),
    ],
)
async def test_the_input_of_a_call_is_read_or_marked_unreadable(raw: str, input: Any, *, fault: bool) -> None:
    answer = streaming([*openai_api.call_chunks(0, "c1", "f", raw), *openai_api.finish("tool_calls")])
    reply, _ = await ask("chat", answer)
    [call] = reply.tool_calls
    assert (call.input, bool(call.fault)) == (input, fault)


# -- ids and parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["anthropic", "responses", "chat"])
async def test_calls_without_an_id_or_with_the_same_get_one(api: Api) -> None:
    match api:
        case "anthropic":
            blocks = [*messages_api.tool_block(0, "", "f", "{}"), *messages_api.tool_block(1, "c", "f", "{}")]
            events = [*messages_api.start(), *blocks, *messages_api.tool_block(2, "c", "f", "{}")]
            answer = streaming([*events, *messages_api.stop("tool_use")])
        case "responses":
            calls = [openai_api.call_item(index, id, "f", "{}") for index, id in enumerate(("", "c", "c"))]
            items = [one for call in calls for one in call]
            answer = streaming([*openai_api.created(), *items, *openai_api.completed()])
        case _:
            calls = [openai_api.call_chunks(index, id, "f", "{}") for index, id in enumerate(("", "c", "c"))]
            answer = streaming([*(one for call in calls for one in call), *openai_api.finish("tool_calls")])
    reply, _ = await ask(api, answer)
    ids = [call.id for call in reply.tool_calls]
    assert len(set(ids)) == 3
    assert ids[1] == "c"
    assert all(ids)


def test_ids_of_different_turns_differ() -> None:
    assert fresh_ids(["", "x", "x"], "one-") != fresh_ids(["", "x", "x"], "two-")


FOREIGN = [
    Message("assistant", [ToolUse("functions.look:0", "look", {})]),
    Message("user", [ToolOutput("functions.look:0", output="first")]),
    Message("assistant", [ToolUse("functions.look:0", "look", {}), ToolUse("x" * 50, "look", {})]),
    Message("user", [ToolOutput("x" * 50, output="third"), ToolOutput("functions.look:0", output="second")]),
    Message("assistant", [ToolUse("fits", "look", {})]),
    Message("user", [ToolOutput("fits", output="fourth")]),
]


def test_ids_of_another_provider_are_made_fit_and_unique() -> None:
    told = with_fit_ids(FOREIGN)
    calls = {part.id: None for message in told for part in message.parts if isinstance(part, ToolUse)}
    assert len(calls) == 4
    assert all(id.replace("_", "").replace("-", "").isalnum() and len(id) <= 40 for id in calls)
    outputs = {part.id: part.output for message in told for part in message.parts if isinstance(part, ToolOutput)}
    assert [outputs[id] for id in calls] == ["first", "second", "third", "fourth"]
    assert "fits" in calls
    assert with_fit_ids(told) == told


@pytest.mark.parametrize("api", ["anthropic", "responses", "chat"])
async def test_a_conversation_of_another_provider_is_sent_with_valid_ids(api: Api) -> None:
    asked = turn(messages=[user("Go."), *FOREIGN], tools=[ToolSpec("look")])
    _, [body] = await ask(api, SAYING[api]("ok"), asked=asked)
    text = json.dumps(body)
    assert "functions.look:0" not in text
    assert "x" * 50 not in text


@pytest.mark.parametrize("api", APIS)
async def test_words_of_one_message_are_one_text(api: Api) -> None:
    parts = [Text('{"a": '), Text("1"), Text("}")]
    _, [body] = await ask(api, SAYING[api]("ok"), asked=turn(messages=[Message("user", [*parts])]))
    assert '{\\"a\\": 1}' in json.dumps(body)


# -- parameters -------------------------------------------------------------------------------------------------------

PARAMETERS = {
    "top_p": 0.9,
    "top_k": 40,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.2,
    "stop_sequences": ["END"],
    "seed": 7,
    "safety_settings": {"harassment": "BLOCK_ONLY_HIGH"},
}
SENT: Mapping[Api, Any] = {
    "anthropic": {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["END"]},
    "responses": {"temperature": 0.5, "top_p": 0.9},
    "chat": {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "stop": ["END"],
        "seed": 7,
    },
    "gemini": {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40.0,
        "frequencyPenalty": 0.1,
        "presencePenalty": 0.2,
        "stopSequences": ["END"],
        "seed": 7,
    },
}


@pytest.mark.parametrize("api", APIS)
async def test_the_parameters_that_an_api_has_are_passed_on(api: Api) -> None:
    _, [body] = await ask(api, SAYING[api]("ok"), asked=turn(temperature=0.5, parameters=PARAMETERS))
    known = {"model", "messages", "input", "max_tokens", "stream", "store", "stream_options"}
    found = body["generationConfig"] if api == "gemini" else {name: body[name] for name in body if name not in known}
    assert found == SENT[api]
    if api == "gemini":
        assert body["safetySettings"] == [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}]


# -- usage ------------------------------------------------------------------------------------------------------------


async def test_the_usage_of_each_request_of_a_turn_is_reported() -> None:
    half = streaming(messages_api.start(input_tokens=60_000), "short")
    reply, _ = await ask("anthropic", half, messages_api.saying("ok", input_tokens=60_000))
    assert [one.input_tokens for one in reply.requests] == [60_000, 60_000]
    assert reply.usage.input_tokens == 120_000


async def test_an_answer_without_usage_says_so() -> None:
    answer = streaming([*openai_api.text_chunks("ok"), openai_api.chunk(finish_reason="stop"), openai_api.DONE])
    reply, _ = await ask("chat", answer)
    assert (reply.text, reply.usage, reply.unmetered, reply.requests) == ("ok", Usage(), True, [])


async def test_a_broken_piece_of_a_stream_is_tried_again_and_counts() -> None:
    broken = streaming([*messages_api.start(), "event: content_block_delta\ndata: {oops\n\n"])
    reply, _ = await ask("anthropic", broken, messages_api.saying("ok"))
    assert (reply.text, reply.tries, len(reply.requests)) == ("ok", 2, 2)


def test_a_failure_of_the_port_has_its_requests() -> None:
    failed = ModelTurnFailed(Failure("x"), requests=[Usage(1, 1)])
    assert failed.requests == [Usage(1, 1)]
