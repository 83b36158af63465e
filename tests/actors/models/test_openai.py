"""OpenAI through the real SDK, over both of its APIs, against a local server that speaks them."""

import importlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.models import openai_errors
from callboard.actors.models.catalog import PROVIDERS, open_model
from callboard.actors.models.model import ModelTurn, ModelTurnFailed
from callboard.actors.models.openai import Api, OpenAIModel
from callboard.actors.models.openai_chat import ChatFold
from callboard.actors.models.openai_response_fold import ResponseFold
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
from tests.support.model_api import Answer, Ending, ModelApi, model_api, refusing, streaming
from tests.support.openai_api import (
    DONE,
    call_chunks,
    call_item,
    chatting,
    chunk,
    completed,
    created,
    failed,
    failing,
    finish,
    incomplete,
    responding,
    response,
    text_chunks,
    text_item,
)

QUICK = RetryPolicy(tries_max=3, total_s=60.0, delay_first_s=0.001, delay_max_s=0.001)

APIS: tuple[Api, ...] = ("responses", "chat")
SAYING: Mapping[Api, Callable[[str], Answer]] = {"responses": responding, "chat": chatting}


def a_turn(**fields: Any) -> ModelTurn:
    given: dict[str, Any] = {"messages": [user("Count.")], **fields}
    return ModelTurn(
        model="gpt-x", path="gather", key="gather#1.1!turn.0", ordinal=0, idempotency_key="idem-1", **given
    )


@asynccontextmanager
async def openai(
    api: Api, *answers: Answer, retry: RetryPolicy = QUICK, silence_s: float = 60.0
) -> AsyncGenerator[tuple[OpenAIModel, ModelApi]]:
    async with model_api() as server:
        server.will(*answers)
        model = OpenAIModel(api_key="sk-test", base_url=f"{server.url}/v1", api=api, retry=retry, silence_s=silence_s)
        try:
            yield model, server
        finally:
            await model.aclose()


async def ask(api: Api, answer: Answer, turn: ModelTurn | None = None, pieces: list[str] | None = None) -> ModelReply:
    async with openai(api, answer) as (model, _):
        return await model.turn(turn or a_turn(), (pieces if pieces is not None else []).append)


async def fail(api: Api, *answers: Answer, turn: ModelTurn | None = None, retry: RetryPolicy = QUICK) -> Failure:
    async with openai(api, *answers, retry=retry) as (model, server):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(turn or a_turn(), lambda _: None)
        assert not server.answers, "not every scripted answer was asked for"
        return caught.value.failure


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "id", "reason"), [("responses", "resp_1", "completed"), ("chat", "chatcmpl-1", "stop")]
)
async def test_a_turn_is_streamed_and_its_reply_names_its_source(api: Api, id: str, reason: str) -> None:
    pieces: list[str] = []
    reply = await ask(api, SAYING[api]("Three of them."), pieces=pieces)
    assert pieces == ["Three", " of t", "hem."]
    assert reply.text == "Three of them."
    assert reply.data is None
    assert reply.usage == Usage(330, 7, cache_read_tokens=300, cache_write_tokens=20)
    assert (reply.stop_reason, reply.response_id, reply.response_model) == (reason, id, "gpt-served")
    assert (reply.provider, reply.tries) == ("openai", 1)
    assert reply.first_chunk_ms is not None
    assert reply.first_chunk_ms > 0


SEARCH = ToolSpec("web.search", "Searches.", {"properties": {"q": {"type": "string"}}}, server="web")
CONVERSATION = [
    user("Find it."),
    Message("assistant", [Text("I look."), Text(" "), ToolUse("call_1", "web.search", {"q": "x"})]),
    Message("user", [Text("Go on."), ToolOutput("call_1", output={"b": 1, "a": [2]})]),
    Message("assistant", []),
    Message("user", [ToolOutput("call_2", error=Failure("tool.timeout", "too slow")), ToolOutput("c", output="o")]),
]
PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}}


async def test_a_request_of_a_response() -> None:
    turn = a_turn(system="Be brief.", tools=[SEARCH], messages=CONVERSATION, temperature=0.3, max_output_tokens=50)
    async with openai("responses", responding("ok")) as (model, server):
        with within(sent_as("ab" * 16, "cd" * 8)):
            await model.turn(turn, lambda _: None)
    [request] = server.requests
    assert request.path == "/v1/responses"
    assert request.headers["idempotency-key"] == "idem-1"
    assert request.headers["traceparent"] == f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert request.headers["authorization"] == "Bearer sk-test"
    assert request.body == {
        "model": "gpt-x",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "max_output_tokens": 50,
        "temperature": 0.3,
        "tools": [
            {
                "type": "function",
                "name": "web_search",
                "description": "Searches.",
                "parameters": PARAMETERS,
                "strict": False,
            }
        ],
        "input": [
            {"role": "user", "content": "Find it."},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "call_1", "name": "web_search", "arguments": '{"q":"x"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": '{"a":[2],"b":1}'},
            {"role": "user", "content": "Go on."},
            {"type": "function_call_output", "call_id": "call_2", "output": "tool.timeout: too slow"},
            {"type": "function_call_output", "call_id": "c", "output": "o"},
        ],
    }


async def test_a_request_of_a_chat_completion() -> None:
    turn = a_turn(system="Be brief.", tools=[SEARCH], messages=CONVERSATION, temperature=0.3, max_output_tokens=50)
    async with openai("chat", chatting("ok")) as (model, server):
        await model.turn(turn, lambda _: None)
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["idempotency-key"] == "idem-1"
    call = {"id": "call_1", "type": "function", "function": {"name": "web_search", "arguments": '{"q":"x"}'}}
    assert request.body == {
        "model": "gpt-x",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "temperature": 0.3,
        "tools": [
            {
                "type": "function",
                "function": {"name": "web_search", "description": "Searches.", "parameters": PARAMETERS},
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Find it."},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"a":[2],"b":1}'},
            {"role": "user", "content": "Go on."},
            {"role": "tool", "tool_call_id": "call_2", "content": "tool.timeout: too slow"},
            {"role": "tool", "tool_call_id": "c", "content": "o"},
        ],
    }


async def test_a_server_without_authentication_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-worker")
    async with model_api() as server:
        server.will(chatting("ok"))
        model = OpenAIModel(base_url=server.url, api="chat", provider="local")
        reply = await model.turn(a_turn(), lambda _: None)
        await model.aclose()
    assert "sk-of-the-worker" not in str(server.requests)
    assert reply.provider == "local"


# -- tools ------------------------------------------------------------------------------------------------------------

CALLS: Mapping[Api, list[Any]] = {
    "responses": [
        *created(),
        *text_item(0, "I look."),
        *call_item(1, "call_1", "web_search", '{"q": "timeout"}'),
        *call_item(2, "call_2", "web_search_2", ""),
        *completed(),
    ],
    "chat": [
        *text_chunks("I look."),
        *call_chunks(0, "call_1", "web_search", '{"q": "timeout"}'),
        *call_chunks(1, "call_2", "web_search_2", ""),
        *finish("tool_calls"),
    ],
}


@pytest.mark.parametrize("api", APIS)
async def test_tool_calls_are_returned_with_their_original_names_and_input(api: Api) -> None:
    turn = a_turn(tools=[ToolSpec("web.search"), ToolSpec("web/search")])
    reply = await ask(api, streaming(CALLS[api]), turn)
    assert reply.text == "I look."
    assert reply.tool_calls == [
        ToolUse("call_1", "web.search", {"q": "timeout"}),
        ToolUse("call_2", "web/search", {}),
    ]
    assert reply.stop_reason == "tool_calls"


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_call_in_a_turn_with_a_schema_is_not_the_structured_answer(api: Api) -> None:
    reply = await ask(api, streaming(CALLS[api]), a_turn(schema=FOUND))
    assert reply.data is None
    assert [call.tool for call in reply.tool_calls] == ["web_search", "web_search_2"]


async def test_calls_with_the_same_index_are_distinguished_by_their_ids() -> None:
    """And input that comes as an object, and an index that is missing, are taken as they are meant."""
    whole = {"id": "c", "function": {"name": "h", "arguments": {"z": 3}}}
    events = [
        *call_chunks(0, "a", "f", '{"x": 1}'),
        *call_chunks(0, "b", "g", '{"y": 2}'),
        chunk({"tool_calls": [whole]}),
        *finish("tool_calls"),
    ]
    assert (await ask("chat", streaming(events))).tool_calls == [
        ToolUse("a", "f", {"x": 1}),
        ToolUse("b", "g", {"y": 2}),
        ToolUse("c", "h", {"z": 3}),
    ]


def reasoning(index: int, id: str, **fields: Any) -> dict[str, Any]:
    item = {"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": "hm"}], **fields}
    return {"type": "response.output_item.done", "output_index": index, "item": item}


async def test_reasoning_before_a_call_is_sent_back_only_to_its_provider() -> None:
    """The provider keeps nothing, so it comes back sealed; what is not sealed could not be read there."""
    events = [
        *created(),
        reasoning(0, "rs_1", encrypted_content="sealed-1"),
        reasoning(1, "rs_2", encrypted_content="sealed-2"),
        *call_item(2, "call_1", "f", "{}"),
        *call_item(3, "call_2", "g", "{}"),
        reasoning(4, "rs_3"),
        *completed(output=[reasoning(0, "rs_1", encrypted_content="sealed-1")["item"]]),
    ]
    said = await ask("responses", streaming(events))
    assert [bool(call.thought) for call in said.tool_calls] == [True, False]
    strange = [ToolUse("c", "h", {}, thought=thought) for thought in ("bm90IG91cnM=", "5", '[{"type":"message"}]', "{")]
    turn = a_turn(messages=[user("Go."), Message("assistant", [*said.tool_calls, *strange])])
    async with openai("responses", responding("ok")) as (model, server):
        await model.turn(turn, lambda _: None)
    sealed = {"type": "reasoning", "summary": []}
    assert [item for item in server.requests[0].body["input"] if item.get("type") != "function_call"] == [
        {"role": "user", "content": "Go."},
        {**sealed, "id": "rs_1", "encrypted_content": "sealed-1"},
        {**sealed, "id": "rs_2", "encrypted_content": "sealed-2"},
    ]
    assert [item.get("name") for item in server.requests[0].body["input"]][3:] == ["f", "g", "h", "h", "h", "h"]


@pytest.mark.parametrize("raw", ['{"q": ', "[1]", "{]"])
@pytest.mark.parametrize("api", APIS)
async def test_a_tool_call_with_invalid_input_has_the_reason(api: Api, raw: str) -> None:
    broken: Mapping[Api, list[Any]] = {
        "responses": [*created(), *call_item(0, "call_1", "search", raw), *completed()],
        "chat": [*call_chunks(0, "call_1", "search", raw), *finish("tool_calls")],
    }
    reply = await ask(api, streaming(broken[api]))
    [call] = reply.tool_calls
    assert (call.id, call.tool, call.input) == ("call_1", "search", {})
    assert raw in call.fault
    assert reply.usage.tokens == 337


HALF: Mapping[Api, list[Any]] = {
    "responses": [*created(), *call_item(0, "call_1", "search", '{"q": "time')[:-1], *incomplete("max_output_tokens")],
    "chat": [*call_chunks(0, "call_1", "search", '{"q": "time'), *finish("length")],
}


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_call_cut_at_the_token_limit_is_a_bad_reply_with_a_remedy(api: Api) -> None:
    failure = await fail(api, streaming(HALF[api]))
    assert failure.code == "model.bad_reply"
    assert "max_output_tokens" in failure.message
    assert failure.retryable is False


@pytest.mark.parametrize("arguments", ["", "{}"])
@pytest.mark.parametrize("reason", ["max_output_tokens", None])
async def test_a_tool_call_that_its_provider_calls_incomplete_is_not_made(arguments: str, reason: str | None) -> None:
    *opened, done = call_item(0, "call_1", "search", arguments)
    item = {**done["item"], "status": "incomplete"}
    cut = response("incomplete", incomplete_details=reason and {"reason": reason}, output=[item])
    over = {"type": "response.incomplete", "response": cut}
    failure = await fail("responses", streaming([*created(), *opened, {**done, "item": item}, over]))
    assert failure.code == "model.bad_reply"
    assert f"was cut off ({reason or 'incomplete'}) within a call of search" in failure.message


CUT: Mapping[Api, list[Any]] = {
    "responses": [*created(), *text_item(0, "Once upon"), *incomplete("max_output_tokens")],
    "chat": [*text_chunks("Once upon"), *finish("length")],
}


@pytest.mark.parametrize(("api", "reason"), [("responses", "max_output_tokens"), ("chat", "length")])
async def test_text_cut_at_the_token_limit_is_a_reply_with_that_stop_reason(api: Api, reason: str) -> None:
    reply = await ask(api, streaming(CUT[api]))
    assert (reply.text, reply.stop_reason) == ("Once upon", reason)


# -- structured answers -----------------------------------------------------------------------------------------------

FOUND = {"type": "object", "properties": {"found": {"type": "integer", "minimum": 0}}, "required": ["found"]}
NATIVE = {
    "type": "object",
    "properties": {"found": {"type": "integer", "description": "(minimum: 0)"}},
    "required": ["found"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("api", APIS)
async def test_a_schema_with_a_closed_shape_is_enforced_by_the_api(api: Api) -> None:
    async with openai(api, SAYING[api]('{"found": 3}')) as (model, server):
        reply = await model.turn(a_turn(schema=FOUND), lambda _: None)
    assert (reply.data, reply.text) == ({"found": 3}, '{"found": 3}')
    [request] = server.requests
    answer = {"name": "answer", "schema": NATIVE, "strict": True}
    if api == "chat":
        assert request.body["response_format"] == {"type": "json_schema", "json_schema": answer}
        assert [message["role"] for message in request.body["messages"]] == ["user"]
    else:
        assert request.body["text"] == {"format": {"type": "json_schema", **answer}}
        assert "instructions" not in request.body


OPTIONAL = {"type": "object", "properties": {"any": {"type": "integer"}}}


@pytest.mark.parametrize("schema", [OPTIONAL, {"type": "array", "items": {"type": "object"}}])
@pytest.mark.parametrize("api", APIS)
async def test_a_schema_that_the_api_cannot_enforce_is_put_into_the_prompt(api: Api, schema: dict[str, Any]) -> None:
    text = 'Here it is:\n```json\n{"any": 1}\n```\nDone.'
    async with openai(api, SAYING[api](text)) as (model, server):
        reply = await model.turn(a_turn(schema=schema, system="Be brief."), lambda _: None)
    assert reply.data == {"any": 1}
    [request] = server.requests
    body = request.body
    told = body["messages"][0]["content"] if api == "chat" else body["instructions"]
    assert not {"text", "response_format"} & body.keys()
    assert told.startswith("Be brief.\n\n")
    assert f'"type":"{schema["type"]}"' in told


@pytest.mark.parametrize("api", APIS)
async def test_a_structured_answer_that_is_not_json_is_returned_as_text(api: Api) -> None:
    reply = await ask(api, SAYING[api]('{"found": '), a_turn(schema=FOUND))
    assert (reply.text, reply.data) == ('{"found": ', None)
    assert "cut off" in (await fail(api, streaming(CUT[api]), turn=a_turn(schema=FOUND))).message


@pytest.mark.parametrize("api", APIS)
async def test_a_routing_question_is_answered_with_one_of_its_choices(api: Api) -> None:
    turn = a_turn(purpose="route", choices=[Choice("create_issue", "if there is a bug"), Choice("end", "otherwise")])
    reply = await ask(api, SAYING[api]('{"choice": "end"}'), turn)
    assert (reply.data, reply.text) == ({"choice": "end"}, "end")
    other = await ask(api, SAYING[api]('{"choice": "neither"}'), turn)
    assert (other.data, other.text) == ({"choice": "neither"}, '{"choice": "neither"}')


# -- parameters that a model refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["unsupported_parameter", "unsupported_value"])
@pytest.mark.parametrize(
    ("api", "param", "told"),
    [
        ("responses", "temperature", "temperature"),
        ("responses", "text", "text.format.schema"),
        ("chat", "temperature", "temperature"),
        ("chat", "max_tokens", "max_tokens"),
        ("chat", "stream_options", "stream_options"),
        ("chat", "response_format", "response_format"),
    ],
)
async def test_a_refused_parameter_is_omitted_from_then_on(api: Api, param: str, told: str, code: str) -> None:
    turn = a_turn(temperature=0.5, max_output_tokens=9, schema=FOUND)
    answer = SAYING[api]('{"found": 1}')
    refused = failing(400, code, f"no {param} here", param=told)
    async with openai(api, refused, answer, answer, answer) as (model, server):
        first = await model.turn(turn, lambda _: None)
        again = await model.turn(turn, lambda _: None)
        other = await model.turn(a_turn(temperature=0.5, max_output_tokens=9, schema=FOUND), lambda _: None)
    assert [first.tries, again.tries, other.tries] == [2, 1, 1]
    assert first.data == {"found": 1}
    assert [param in request.body for request in server.requests] == [True, False, False, False]
    if param == "max_tokens":
        assert server.requests[1].body["max_completion_tokens"] == 9
    if param in ("text", "response_format"):
        assert "JSON Schema" in str(server.requests[1].body)


@pytest.mark.parametrize(("api", "param"), [("responses", "text"), ("chat", "response_format")])
async def test_a_schema_with_refused_content_is_put_into_the_prompt_in_that_turn_only(api: Api, param: str) -> None:
    answer = SAYING[api]('{"found": 1}')
    async with openai(api, failing(400, "invalid_json_schema", param=f"{param}.schema"), answer, answer) as (
        model,
        server,
    ):
        first = await model.turn(a_turn(schema=FOUND), lambda _: None)
        again = await model.turn(a_turn(schema=FOUND), lambda _: None)
    assert [first.tries, again.tries, first.data] == [2, 1, {"found": 1}]
    assert [param in request.body for request in server.requests] == [True, False, True]
    assert "JSON Schema" in str(server.requests[1].body)


@pytest.mark.parametrize("code", ["invalid_value", None])
@pytest.mark.parametrize("api", APIS)
async def test_a_wrong_value_in_one_turn_does_not_disable_the_parameter(api: Api, code: str | None) -> None:
    async with openai(api, failing(400, code, param="temperature"), SAYING[api]("ok")) as (model, server):
        with pytest.raises(ModelTurnFailed, match=r"model\.bad_request"):
            await model.turn(a_turn(temperature=7.0), lambda _: None)
        await model.turn(a_turn(temperature=0.5), lambda _: None)
    assert [request.body["temperature"] for request in server.requests] == [7.0, 0.5]


@pytest.mark.parametrize("api", APIS)
async def test_a_refused_parameter_that_is_required_is_a_bad_request(api: Api) -> None:
    for param in ("model", "temperature", "text.format"):  # the last two are not sent
        failure = await fail(api, failing(400, None, "no", param=param))
        assert (failure.code, failure.details["param"]) == ("model.bad_request", param)


# -- hostile streams --------------------------------------------------------------------------------------------------


async def test_unknown_members_of_a_response_are_ignored() -> None:
    events = [
        {"type": "invented_event", "deep": {"er": [1]}},
        {"no": "type"},
        *created(),
        {"type": "response.output_item.added", "output_index": "one", "item": 5},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "summary": []}},
        {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "hm"},
        {"type": "response.function_call_arguments.delta", "output_index": 9, "delta": "lost"},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "invented"}},
        "event: x\ndata: 5\n\n",
        "data: null\n\n",
        ": a comment\n\n",
        *text_item(1, "Fine."),
        *completed(output=[None, {"type": "message", "content": [5, {"type": "output_text", "text": "Fine."}]}]),
    ]
    pieces: list[str] = []
    reply = await ask("responses", streaming(events), pieces=pieces)
    assert "".join(pieces) == reply.text == "Fine."


async def test_unknown_members_of_a_completion_are_ignored() -> None:
    events = [
        {"choices": "none"},
        {"choices": [5]},
        {"choices": [{"delta": 5, "finish_reason": 7}]},
        chunk({"content": [1], "refusal": None, "tool_calls": "many", "reasoning_content": "hm"}),
        chunk({"tool_calls": [7]}, usage={"prompt_tokens": "many", "completion_tokens": -4}),
        "data: 5\n\n",
        ": a comment\n\n",
        *text_chunks("Fine."),
        chunk(finish_reason="stop"),
        DONE,
    ]
    pieces: list[str] = []
    reply = await ask("chat", streaming(events), pieces=pieces)
    assert "".join(pieces) == reply.text == "Fine."
    assert reply.usage == Usage()


async def test_a_response_is_read_from_its_final_event_alone() -> None:
    output = [
        {"type": "message", "content": [{"type": "output_text", "text": "All of it."}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"x": 1}'},
    ]
    pieces: list[str] = []
    reply = await ask("responses", streaming([*completed(output=output)]), pieces=pieces)
    assert pieces == [reply.text] == ["All of it."]
    assert reply.tool_calls == [ToolUse("call_1", "f", {"x": 1})]


REFUSALS: dict[str, tuple[Api, Answer, str]] = {
    "told by a response": (
        "responses",
        streaming(
            [*created(), {"type": "response.refusal.delta", "output_index": 0, "delta": "I won't."}, *completed()]
        ),
        "I won't.",
    ),
    "told at the end": (
        "responses",
        streaming(completed(output=[{"type": "message", "content": [{"type": "refusal", "refusal": "I won't."}]}])),
        "I won't.",
    ),
    "told by a completion": (
        "chat",
        streaming([chunk({"refusal": "I "}), chunk({"refusal": "won't."}), *finish()]),
        "I won't.",
    ),
    "filtered response": ("responses", streaming([*created(), *incomplete("content_filter")]), "refused"),
    "filtered completion": ("chat", streaming([*text_chunks("I "), *finish("content_filter")]), "refused"),
    "filtered prompt": ("chat", failing(400, "content_filter", "filtered"), "filtered"),
    "failed response": ("responses", streaming([*created(), *failed("bio_policy", "harmful")]), "harmful"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_is_a_failure_with_the_providers_reason(case: str) -> None:
    api, answer, words = REFUSALS[case]
    failure = await fail(api, answer)
    assert (failure.code, failure.retryable, failure.details["tries"]) == ("model.refused", False, 1)
    assert words in failure.message


BROKEN: dict[str, tuple[Api, Callable[[], Answer], str]] = {
    "response ends early": (
        "responses",
        lambda: streaming([*created(), *text_item(0, "Half a ")], "short"),
        "model.bad_reply",
    ),
    "completion ends early": ("chat", lambda: streaming(text_chunks("Half a "), "short"), "model.bad_reply"),
    "response lost": ("responses", lambda: streaming([*created()], "reset"), "model.unreachable"),
    "completion lost": ("chat", lambda: streaming(text_chunks("Half a "), "reset"), "model.unreachable"),
    "response failed": ("responses", lambda: streaming([*created(), *failed("server_error")]), "model.overloaded"),
    "response limited": (
        "responses",
        lambda: streaming([*created(), {"type": "error", "code": "rate_limit_exceeded", "message": "slow"}]),
        "model.rate_limited",
    ),
    "completion failed": (
        "chat",
        lambda: streaming([*text_chunks("Half"), {"error": {"message": "out of memory"}}]),
        "model.overloaded",
    ),
    "no choices": ("chat", lambda: streaming([chunk(), DONE]), "model.bad_reply"),
    "nothing at all": ("chat", lambda: streaming([], "short"), "model.bad_reply"),
    "no stream": ("chat", lambda: refusing(200, {"choices": []}), "model.bad_reply"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_stream_that_breaks_off_is_retried(case: str) -> None:
    api, broken, code = BROKEN[case]
    async with openai(api, broken(), SAYING[api]("Whole.")) as (model, server):
        reply = await model.turn(a_turn(), lambda _: None)
    assert (reply.text, reply.tries) == ("Whole.", 2)
    assert [request.headers["idempotency-key"] for request in server.requests] == ["idem-1", "idem-1"]
    failure = await fail(api, *[broken() for _ in range(QUICK.tries_max)])
    assert (failure.code, failure.details["tries"], failure.retryable) == (code, QUICK.tries_max, True)


@pytest.mark.parametrize("ending", ["reset", "silent"])
@pytest.mark.parametrize("api", APIS)
async def test_a_complete_reply_is_kept_if_the_stream_breaks_off_after_it(api: Api, ending: Ending) -> None:
    said: Mapping[Api, list[Any]] = {
        "responses": [*text_item(0, "Whole."), *completed()],
        "chat": [*text_chunks("Whole."), chunk(finish_reason="stop")],
    }
    async with openai(api, streaming(said[api], ending), silence_s=1.0) as (model, server):
        reply = await model.turn(a_turn(), lambda _: None)
    assert (reply.text, reply.tries, len(server.requests)) == ("Whole.", 1, 1)


@pytest.mark.parametrize("api", APIS)
async def test_an_event_that_is_not_json_is_a_bad_reply_and_is_retried(api: Api) -> None:
    broken = streaming(["data: {oops\n\n"])
    assert (await fail(api, *[broken] * QUICK.tries_max)).code == "model.bad_reply"
    async with openai(api, broken, SAYING[api]("Whole.")) as (model, _):
        assert (await model.turn(a_turn(), lambda _: None)).text == "Whole."


MEMBERS = (
    *("type", "choices", "delta", "index", "tool_calls", "function", "id", "usage", "finish_reason"),
    *("response", "item", "output_index", "output", "content", "arguments"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "stop"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(json_values))
def test_any_sequence_of_events_is_folded_without_an_error(events: list[Any]) -> None:
    for fold in (ChatFold(), ResponseFold()):
        for event in events:
            fold.take(event)
        if not fold.draft.ended:
            with pytest.raises(TryFailed, match=r"model\.bad_reply"):
                fold.reply(SdkRequest({}))


# -- errors and tries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (408, "model.timeout"),
        (409, "model.overloaded"),
        (429, "model.rate_limited"),
        (500, "model.overloaded"),
        (503, "model.overloaded"),
        (504, "model.timeout"),
        (529, "model.overloaded"),
    ],
)
async def test_a_temporary_error_is_retried(status: int, code: str) -> None:
    error = failing(status, None, "scripted trouble", {"retry-after-ms": "1"})
    async with openai("responses", error, error, responding("At last.")) as (model, _):
        reply = await model.turn(a_turn(), lambda _: None)
    assert (reply.text, reply.tries) == ("At last.", 3)
    failure = await fail("responses", error, error, error)
    assert (failure.code, failure.message, failure.retryable) == (code, "scripted trouble", True)
    assert failure.details == {"status": status, "type": "invalid_request_error", "request_id": "req_1", "tries": 3}


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (400, None, "model.bad_request"),
        (400, "context_length_exceeded", "model.context_too_long"),
        (401, "invalid_api_key", "model.auth"),
        (402, None, "model.auth"),
        (403, None, "model.auth"),
        (404, "model_not_found", "model.unknown"),
        (413, None, "model.bad_request"),
        (418, "invented", "model.bad_request"),
        (422, None, "model.bad_request"),
        (429, "insufficient_quota", "model.auth"),
        (501, None, "model.bad_request"),
    ],
)
async def test_a_permanent_error_is_not_retried(status: int, word: str | None, code: str) -> None:
    failure = await fail("chat", failing(status, word, "no"))
    assert (failure.code, failure.message, failure.retryable) == (code, "no", False)
    assert failure.details["tries"] == 1


async def test_an_error_that_is_not_json_is_classified_by_its_status() -> None:
    failure = await fail("chat", *[Answer(b"<html>bad gateway</html>", 502)] * 3)
    assert failure.code == "model.overloaded"
    assert "502" in failure.message


@pytest.mark.parametrize("headers", [{"retry-after": "3600"}, {"retry-after": "Fri, 31 Dec 2100 23:59:59 GMT"}])
async def test_a_wait_longer_than_the_total_time_fails_at_once(headers: dict[str, str]) -> None:
    failure = await fail("responses", failing(429, None, "later", headers))
    assert (failure.code, failure.details["tries"]) == ("model.rate_limited", 1)


@pytest.mark.parametrize("api", APIS)
async def test_a_stream_that_falls_silent_times_out(api: Api) -> None:
    silent = streaming([chunk({"content": "Half"})], "silent")
    async with openai(api, silent, silent, silent, silence_s=0.05) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(a_turn(), lambda _: None)
    assert caught.value.failure.code == "model.timeout"
    assert caught.value.failure.details["tries"] == 3


async def test_an_address_without_a_listener_is_unreachable() -> None:
    async with model_api() as server:
        url = server.url
    model = OpenAIModel(api_key="sk-test", base_url=url, retry=QUICK)
    with pytest.raises(ModelTurnFailed) as caught:
        await model.turn(a_turn(), lambda _: None)
    await model.aclose()
    assert (caught.value.failure.code, caught.value.failure.details["tries"]) == ("model.unreachable", 3)
    assert f"(at {url.removesuffix('/v1')})" in caught.value.failure.message


def test_a_missing_key_fails_before_any_request() -> None:
    with pytest.raises(ModelTurnFailed, match="OPENAI_API_KEY") as caught:
        open_model("openai", env={})
    assert caught.value.failure.code == "model.auth"


async def test_the_environment_supplies_the_address_and_the_key() -> None:
    async with model_api() as server:
        server.will(responding("ok"))
        model: Any = open_model("openai", env={"OPENAI_API_KEY": "sk-env", "OPENAI_BASE_URL": f"{server.url}/v1"})[0]
        await model.turn(a_turn(), lambda _: None)
        await model.aclose()
    assert server.requests[0].headers["authorization"] == "Bearer sk-env"


# -- the SDK ----------------------------------------------------------------------------------------------------------


def test_every_exception_of_the_sdk_is_classified() -> None:
    module = importlib.import_module("openai")
    kinds: list[type[BaseException]] = [module.OpenAIError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert entry_of(kind, openai_errors.CODE_OF) is not None, f"{kind} has no code"
    known = {f"openai.{kind.__name__}" for kind in kinds}
    assert {name for name in openai_errors.CODE_OF if name.startswith("openai.")} <= known
    assert openai_errors.failure_of(KeyError("x")) is None


def test_every_classified_error_has_a_code_of_the_port() -> None:
    words = f"{ModelTurnFailed.__doc__}"
    for code in {*openai_errors.CODE_OF.values(), *openai_errors.CODE_OF_WORD.values()}:
        assert f"``{code}``" in words


def test_the_default_model_is_known_to_the_sdk() -> None:
    assert PROVIDERS["openai"].default in get_args(importlib.import_module("openai.types.shared.chat_model").ChatModel)
