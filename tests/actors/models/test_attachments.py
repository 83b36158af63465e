"""Attachments to messages and calls are recorded with the turn and sent back unchanged, over each API.

An answer that a provider pauses is continued.
"""

from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callboard.actors.models.anthropic import AnthropicModel
from callboard.actors.models.catalog import API
from callboard.actors.models.gemini import GeminiModel
from callboard.actors.models.model import Model, ModelTurn, ModelTurnFailed, ProviderReply
from callboard.actors.models.openai import OpenAIModel
from callboard.actors.models.provider_model import COMMENTARIES_MAX, PAUSES_MAX
from callboard.actors.models.request_parts import SUBSTITUTE
from callboard.actors.models.request_retries import RetryPolicy
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse, user
from tests.support import gemini_api, messages_api, openai_api
from tests.support.messages_api import redacted_block, start, stop, text_block, thinking_block, tool_block
from tests.support.model_api import Answer, ModelApi, model_api, refusing, streaming
from tests.support.openai_api import call_chunks, call_item, chunk, completed, created, finish, text_chunks

QUICK = RetryPolicy(tries_max=3, total_s=60.0, delay_first_s=0.001, delay_max_s=0.001)

DONE: dict[str, Answer] = {
    "anthropic": messages_api.saying("Done."),
    "openai": openai_api.responding("Done."),
    "openai-chat": openai_api.chatting("Done."),
    "gemini": gemini_api.saying("Done."),
}


@asynccontextmanager
async def provider(api: API, *answers: Answer) -> AsyncGenerator[tuple[Model, ModelApi]]:
    async with model_api() as server:
        server.will(*answers)
        match api:
            case "anthropic":
                model = AnthropicModel(api_key="k", base_url=server.url, retry=QUICK)
            case "gemini":
                model = GeminiModel(api_key="k", base_url=server.url, retry=QUICK)
            case "openai" | "openai-chat":
                spoken = "chat" if api == "openai-chat" else "responses"
                model = OpenAIModel(api_key="k", base_url=f"{server.url}/v1", api=spoken, retry=QUICK)
        try:
            yield model, server
        finally:
            await model.aclose()


def a_turn(*messages: Message) -> ModelTurn:
    return ModelTurn(
        model="m",
        path="a",
        key="a#1.1!turn.1",
        ordinal=0,
        idempotency_key="i",
        tools=[ToolSpec("f"), ToolSpec("g")],
        messages=[user("Go."), *messages],
    )


def going_on(reply: ProviderReply) -> ModelTurn:
    """The turn after a reply, as a run puts it together from its log."""
    said = Message("assistant", [Text(reply.text), *reply.tool_calls], reply.thought)
    answers = [ToolOutput(call.id, output="ok") for call in reply.tool_calls]
    return a_turn(said, Message("user", [*answers, Text("Go on.")]))


async def ask(model: Model, turn: ModelTurn) -> ProviderReply:
    reply = await model.turn(turn, lambda _text: None)
    assert isinstance(reply, ProviderReply)
    return reply


async def sent_back(api: API, events: list[Any] | Answer) -> tuple[ProviderReply, Any]:
    """Return the reply that an answer makes, and what of it the next request has."""
    answer = events if isinstance(events, Answer) else streaming(events)
    async with provider(api, answer, DONE[api]) as (model, server):
        reply = await ask(model, a_turn())
        await ask(model, going_on(reply))
    body = server.requests[1].body
    match api:
        case "gemini":
            return reply, next(content["parts"] for content in body["contents"] if content["role"] == "model")
        case "openai":
            return reply, [item for item in body["input"] if item.get("role") != "user" and "output" not in item]
        case "anthropic":
            return reply, next(one["content"] for one in body["messages"] if one["role"] == "assistant")
        case "openai-chat":
            return reply, next(one for one in body["messages"] if one["role"] == "assistant")


# -- chat completions -------------------------------------------------------------------------------------------------


async def test_the_reasoning_of_a_chat_completion_is_sent_back_with_its_calls() -> None:
    events = [
        chunk({"role": "assistant", "reasoning_content": ""}),
        *[chunk({"reasoning_content": piece, "content": None}) for piece in ("I should ", "look.")],
        *call_chunks(0, "a", "f", "{}"),
        *call_chunks(1, "b", "g", '{"x": 1}'),
        *finish("tool_calls"),
    ]
    reply, sent = await sent_back("openai-chat", events)
    assert [call.thought for call in reply.tool_calls] == ["", ""]
    assert sent["reasoning_content"] == "I should look."
    assert [call["id"] for call in sent["tool_calls"]] == ["a", "b"]


async def test_the_reasoning_of_a_final_chat_message_is_sent_back() -> None:
    message = {"role": "assistant", "content": "Done.", "reasoning": "Hm.", "annotations": [], "audio": None}
    whole = {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "stop"}]}
    streamed = [chunk({"reasoning": "H"}), chunk({"reasoning": "m."}), *text_chunks("Done."), *finish()]
    for answer in (streaming(streamed), refusing(200, whole)):
        _, sent = await sent_back("openai-chat", answer)
        assert sent == {"role": "assistant", "content": "Done.", "reasoning": "Hm."}


async def test_details_of_reasoning_that_come_in_pieces_are_joined() -> None:
    def details(**members: Any) -> Any:
        return chunk({"reasoning_details": [{"index": 0, "type": "reasoning.text", **members}]})

    sealed = {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 1}
    blocks = [
        chunk({"thinking_blocks": [one]}) for one in ({"type": "thinking", "thinking": "A"}, {"type": "thinking"})
    ]
    events = [
        details(text="A, ", signature=None, format="anthropic"),
        details(text="A", signature=None, format="anthropic"),
        details(signature="sig"),
        chunk({"reasoning_details": [sealed]}),
        blocks[0],
        chunk({"thinking_blocks": [{"type": "thinking", "thinking": "B", "signature": "s1"}]}),
        chunk({"thinking_blocks": [{"type": "thinking", "thinking": "C", "signature": "s2"}]}),
        *call_chunks(0, "a", "f", "{}"),
        *finish("tool_calls"),
    ]
    _, sent = await sent_back("openai-chat", events)
    text = {"index": 0, "type": "reasoning.text", "text": "A, A", "signature": "sig", "format": "anthropic"}
    assert sent["reasoning_details"] == [text, sealed]
    thinking = {"type": "thinking"}
    assert sent["thinking_blocks"] == [
        {**thinking, "thinking": "AB", "signature": "s1"},
        {**thinking, "thinking": "C", "signature": "s2"},
    ]


async def test_members_of_chat_calls_are_sent_back_with_their_call() -> None:
    """Google sends a signature with the call or after it, LiteLLM within the function."""
    signed = [{"google": {"thought_signature": name}} for name in ("c2ln", "b3RoZXI=")]
    calls: list[dict[str, Any]] = [
        {"index": n, "id": id, "function": {"name": "f", "arguments": "{}"}} for n, id in enumerate("ab")
    ]
    first, second = calls
    second["function"] = {**second["function"], "provider_specific_fields": {"x": 1}}
    events = [
        chunk({"tool_calls": [{**first, "extra_content": signed[0]}]}),
        chunk({"tool_calls": [second]}),
        chunk({"tool_calls": [{"index": 1, "extra_content": signed[1]}]}),
        *finish("tool_calls"),
    ]
    _, sent = await sent_back("openai-chat", events)
    assert [call["extra_content"] for call in sent["tool_calls"]] == signed
    assert [call["function"].get("provider_specific_fields") for call in sent["tool_calls"]] == [None, {"x": 1}]


async def test_thinking_among_the_content_of_a_chat_message_is_sent_back_before_its_text() -> None:
    def thinking(text: str) -> Any:
        return chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]})

    events = [thinking("A "), thinking("B"), chunk({"content": [{"type": "text", "text": "Done."}]}), *finish()]
    reply, sent = await sent_back("openai-chat", events)
    assert reply.text == "Done."
    assert [part["type"] for part in sent["content"]] == ["thinking", "text"]
    assert "".join(part["text"] for part in sent["content"][0]["thinking"]) == "A B"


async def test_a_server_that_never_accepts_reasoning_gets_none_in_further_turns() -> None:
    words = "body.messages.1.reasoning: Extra inputs are not permitted"
    events = [chunk({"reasoning": "Hm."}), *text_chunks("Done."), *finish()]
    refused = openai_api.failing(400, None, words)
    async with provider("openai-chat", streaming(events), refused, DONE["openai-chat"], DONE["openai-chat"]) as place:
        model, server = place
        turn = going_on(await ask(model, a_turn()))
        assert [(await ask(model, turn)).tries for _ in range(2)] == [2, 1]
    told = ["reasoning" in request.body["messages"][1] for request in server.requests[1:]]
    assert told == [True, False, False]


@pytest.mark.parametrize(
    ("reason", "code"), [("insufficient_system_resource", "model.bad_reply"), ("sensitive", "model.refused")]
)
async def test_an_incomplete_chat_message_is_not_an_answer(reason: str, code: str) -> None:
    answers = [streaming([*text_chunks("Once"), *finish(reason)]) for _ in range(6)]
    async with provider("openai-chat", *answers) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.turn(a_turn(), lambda _text: None)
    assert caught.value.failure.code == code


# -- responses --------------------------------------------------------------------------------------------------------


def item(index: int, **members: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": members}


def thinking(index: int, id: str) -> dict[str, Any]:
    return item(index, type="reasoning", id=id, summary=[], encrypted_content=f"sealed {id}", status=None)


def message(index: int, text: str, phase: str | None = None) -> list[dict[str, Any]]:
    first, *pieces, last = openai_api.text_item(index, text)
    return [
        {**one, "item": {**one["item"], "phase": phase}} if one in (first, last) else one
        for one in (first, *pieces, last)
    ]


def told(id: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": id, "encrypted_content": f"sealed {id}", "summary": []}


async def test_the_phase_of_a_message_is_sent_back_and_a_commentary_is_not_the_answer() -> None:
    events = [
        *created(),
        thinking(0, "rs_1"),
        *message(1, "Now I sum up.", "commentary"),
        thinking(2, "rs_2"),
        *message(3, "The answer is 5.", "final_answer"),
        *completed(),
    ]
    reply, sent = await sent_back("openai", events)
    assert (reply.text, reply.progress) == ("The answer is 5.", "Now I sum up.")
    assert sent == [
        told("rs_1"),
        {"role": "assistant", "content": "Now I sum up.", "phase": "commentary"},
        told("rs_2"),
        {"role": "assistant", "content": "The answer is 5.", "phase": "final_answer"},
    ]


async def test_a_commentary_beside_calls_keeps_its_phase_and_its_place() -> None:
    events = [
        *created(),
        *message(0, "I look.", "commentary"),
        *call_item(1, "c1", "f", "{}"),
        *message(2, "And again.", "commentary"),
        thinking(3, "rs_1"),
        *call_item(4, "c2", "g", "{}"),
        *completed(),
    ]
    reply, sent = await sent_back("openai", events)
    assert reply.text == "I look.\n\nAnd again."
    commentary = {"role": "assistant", "phase": "commentary"}
    call = {"type": "function_call", "arguments": "{}"}
    assert sent == [
        {**commentary, "content": "I look."},
        {**call, "call_id": "c1", "name": "f"},
        {**commentary, "content": "And again."},
        told("rs_1"),
        {**call, "call_id": "c2", "name": "g"},
    ]


async def test_messages_without_a_phase_are_separated_by_a_blank_line() -> None:
    pieces: list[str] = []
    events = [*created(), *message(0, "One."), *message(1, "Two."), *completed()]
    async with provider("openai", streaming(events)) as (model, _):
        reply = await model.turn(a_turn(), pieces.append)
    assert reply.text == "".join(pieces) == "One.\n\nTwo."


async def test_a_response_with_only_a_commentary_is_continued() -> None:
    only = streaming([*created(), thinking(0, "rs_1"), *message(1, "I sum up.", "commentary"), *completed()])
    last = streaming([*created(), thinking(0, "rs_2"), *message(1, "It is 5.", "final_answer"), *completed()])
    async with provider("openai", only, last, DONE["openai"]) as (model, server):
        reply = await ask(model, a_turn())
        await ask(model, going_on(reply))
    assert (reply.text, reply.progress, reply.tries) == ("It is 5.", "I sum up.", 2)
    commentary = [told("rs_1"), {"role": "assistant", "content": "I sum up.", "phase": "commentary"}]
    assert server.requests[1].body["input"][1:] == commentary
    final = [told("rs_2"), {"role": "assistant", "content": "It is 5.", "phase": "final_answer"}]
    assert server.requests[2].body["input"][1:-1] == [*commentary, *final]


async def test_a_commentary_is_the_answer_if_no_other_follows() -> None:
    only = streaming([*created(), *message(0, "I sum up.", "commentary"), *completed()])
    nothing = streaming([*created(), *completed()])
    for answers, said in (([only, nothing], 1), ([only] * (COMMENTARIES_MAX + 1), COMMENTARIES_MAX + 1)):
        async with provider("openai", *answers, DONE["openai"]) as (model, server):
            reply = await ask(model, a_turn())
            await ask(model, going_on(reply))
        text = "\n\n".join(["I sum up."] * said)
        assert (reply.text, reply.progress, reply.tries) == (text, "", len(answers))
        assert server.requests[-1].body["input"][1] == {"role": "assistant", "content": text}


async def test_items_of_the_providers_own_tools_and_members_of_calls_are_sent_back() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    *opened, done = call_item(1, "c1", "f", "{}")
    done["item"] |= {"namespace": "n", "caller": None}
    events = [*created(), item(0, **search), *opened, done, *completed(output=[search, done["item"]])]
    reply, sent = await sent_back("openai", events)
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "namespace": "n"}
    assert sent == [search, call]
    assert len(reply.tool_calls) == 1


async def test_thinking_of_another_conversation_is_left_out_once_it_is_refused() -> None:
    events = [*created(), thinking(0, "rs_1"), *message(1, "Hm."), *completed()]
    refused = openai_api.failing(400, "invalid_encrypted_content", "The encrypted content could not be verified.")
    async with provider("openai", streaming(events), refused, DONE["openai"]) as (model, server):
        assert (await ask(model, going_on(await ask(model, a_turn())))).tries == 2
    assert server.requests[2].body["input"][1] == {"role": "assistant", "content": "Hm."}


async def test_calls_of_one_place_are_not_merged() -> None:
    """Each has an id; the list at the end has them in another place."""
    items = [call["item"] for call in (call_item(0, "c1", "f", '{"x":1}')[-1], call_item(0, "c2", "g", '{"y":2}')[-1])]
    events = [
        *created(),
        *call_item(0, "c1", "f", '{"x":1}'),
        *call_item(0, "c2", "g", '{"y":2}'),
        *completed(output=[{"type": "reasoning"}, *reversed(items)]),
    ]
    reply, _ = await sent_back("openai", events)
    assert [(call.tool, call.input) for call in reply.tool_calls] == [("f", {"x": 1}), ("g", {"y": 2})]


async def test_an_input_that_differs_from_its_pieces_is_a_bad_reply() -> None:
    *opened, done = call_item(0, "c1", "f", '{"x":1}')
    done = {**done, "item": {**done["item"], "arguments": '{"x":2}'}}
    answers = [streaming([*created(), *opened, done, *completed()]) for _ in range(6)]
    async with provider("openai", *answers) as (model, _):
        with pytest.raises(ModelTurnFailed, match="ambiguous"):
            await model.turn(a_turn(), lambda _text: None)


# -- Anthropic --------------------------------------------------------------------------------------------------------


async def test_the_thinking_before_a_final_text_is_sent_back() -> None:
    events = [*start(), *thinking_block(0, "Which?", "sig"), *text_block(1, "This."), *stop("end_turn")]
    reply, sent = await sent_back("anthropic", events)
    assert "This." not in reply.thought
    thought = {"type": "thinking", "thinking": "Which?", "signature": "sig"}
    assert sent == [thought, {"type": "text", "text": "This."}]


async def test_thinking_between_and_after_calls_is_sent_back_at_its_place() -> None:
    events = [
        *start(),
        *text_block(0, "One."),
        *tool_block(1, "a", "f", "{}"),
        *text_block(2, "Two."),
        *thinking_block(3, "Hm", "s1"),
        *tool_block(4, "b", "g", "{}"),
        *redacted_block(5, "s2"),
        *stop("tool_use"),
    ]
    _, sent = await sent_back("anthropic", events)
    assert [block["type"] for block in sent] == [
        *("text", "tool_use", "text", "thinking", "tool_use", "redacted_thinking")
    ]
    assert [block["text"] for block in sent if block["type"] == "text"] == ["One.", "Two."]


CITED = {"type": "web_search_result_location", "url": "u", "encrypted_index": "e", "cited_text": "c", "title": "t"}


def searching() -> list[dict[str, Any]]:
    """A text, and a search that the provider makes itself."""
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    opened, closed = text_block(1, "")
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"q', '": 1}')]
    return [
        *text_block(0, "Let me search."),
        {**opened, "content_block": search},
        *({"type": "content_block_delta", "index": 1, "delta": piece} for piece in pieces),
        closed,
    ]


async def test_a_turn_that_claude_pauses_continues_with_its_content() -> None:
    paused = streaming([*start(), *searching(), *stop("pause_turn")])
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"encrypted_content": "E"}]}
    opened, closed = text_block(0, "")
    first, *pieces, last = text_block(1, "The answer.")
    cited = {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": CITED}}
    rest = [{**opened, "content_block": found}, closed, first, cited, *pieces, last]
    final = streaming([*start(), *rest, *stop("end_turn")])
    async with provider("anthropic", paused, final, DONE["anthropic"]) as (model, server):
        reply = await ask(model, a_turn())
        await ask(model, going_on(reply))
    assert (reply.text, reply.progress, reply.stop_reason) == ("The answer.", "Let me search.", "end_turn")
    assert (reply.tries, reply.usage.output_tokens, len(reply.requests)) == (2, 14, 2)
    said = [
        {"type": "text", "text": "Let me search."},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": 1}},
    ]
    [_, sent] = server.requests[1].body["messages"]
    assert sent["content"] == [said[0], {**said[1], "cache_control": {"type": "ephemeral"}}]
    assert server.requests[2].body["messages"][1]["content"] == [
        *said,
        found,
        {"type": "text", "text": "The answer.", "citations": [CITED]},
    ]


async def test_a_paused_turn_that_breaks_off_continues_after_the_pause() -> None:
    paused = streaming([*start(), *searching(), *stop("pause_turn")])
    broken = streaming([*start(), *text_block(0, "The an")], ending="reset")
    async with provider("anthropic", paused, broken, DONE["anthropic"]) as (model, server):
        reply = await ask(model, a_turn())
    assert (reply.text, reply.tries) == ("Done.", 3)
    assert server.requests[1].body["messages"] == server.requests[2].body["messages"]


async def test_a_turn_that_is_paused_too_often_fails() -> None:
    paused = [streaming([*start(), *searching(), *stop("pause_turn")])] * (PAUSES_MAX + 1)
    async with provider("anthropic", *paused) as (model, server):
        with pytest.raises(ModelTurnFailed, match="paused"):
            await model.turn(a_turn(), lambda _text: None)
    assert len(server.requests) == PAUSES_MAX + 1


async def test_further_members_of_a_call_are_sent_back() -> None:
    opened, *rest = tool_block(0, "a", "f", "{}")
    opened["content_block"] |= {"caller": {"type": "code", "tool_id": "srv_1"}, "toolset_name": None}
    _, sent = await sent_back("anthropic", [*start(), opened, *rest, *stop("tool_use")])
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    assert sent == [{**call, "caller": {"type": "code", "tool_id": "srv_1"}}]


async def test_pieces_of_two_calls_in_one_place_are_a_bad_reply() -> None:
    first, second = tool_block(0, "a", "f", '{"x":1}'), tool_block(0, "b", "g", '{"y":2}')
    events = [*start(), first[0], second[0], *first[1:-1], *stop("tool_use")]
    async with provider("anthropic", *[streaming(events)] * 6) as (model, _):
        with pytest.raises(ModelTurnFailed, match="ambiguous"):
            await model.turn(a_turn(), lambda _text: None)


# -- Gemini -----------------------------------------------------------------------------------------------------------


async def test_signatures_of_texts_and_calls_are_sent_back_at_their_parts() -> None:
    events = [
        gemini_api.chunk({"text": "I "}, {"text": "look."}),
        gemini_api.chunk({"text": " Now.", "thoughtSignature": "c2lnMQ=="}),
        gemini_api.chunk({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2lnMg=="}),
        gemini_api.chunk({"functionCall": {"name": "g", "args": {}}}),
        *gemini_api.end(),
    ]
    reply, sent = await sent_back("gemini", events)
    assert reply.text == "I look. Now."
    assert sent == [
        {"text": "I "},
        {"text": "look."},
        {"text": " Now.", "thoughtSignature": "c2lnMQ=="},
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2lnMg=="},
        {"functionCall": {"name": "g", "args": {}}},
    ]


UNSIGNED = "Function call is missing a thought_signature in functionCall parts."


async def test_calls_of_another_model_get_a_substitute_for_their_signature_once_it_is_required() -> None:
    calls = [ToolUse(id, "f", {}) for id in "ab"]
    turn = a_turn(Message("assistant", [*calls]), Message("user", [ToolOutput(id, output="ok") for id in "ab"]))
    refused = gemini_api.failing(400, "INVALID_ARGUMENT", UNSIGNED)
    async with provider("gemini", refused, DONE["gemini"]) as (model, server):
        assert (await ask(model, turn)).tries == 2
    first, second = server.requests[1].body["contents"][1]["parts"]
    assert (b64decode(first["thoughtSignature"]), "thoughtSignature" in second) == (SUBSTITUTE.encode(), False)
    async with provider("openai-chat", openai_api.failing(400, None, UNSIGNED), DONE["openai-chat"]) as (model, server):
        assert (await ask(model, turn)).tries == 2
    first, second = server.requests[1].body["messages"][1]["tool_calls"]
    assert first["extra_content"] == {"google": {"thought_signature": SUBSTITUTE}}
    assert "extra_content" not in second


async def test_a_signature_after_a_final_text_is_sent_back() -> None:
    events = [
        *gemini_api.text_chunks("Done."),
        gemini_api.chunk({"text": "", "thoughtSignature": "c2ln"}),
        *gemini_api.end(),
    ]
    reply, sent = await sent_back("gemini", events)
    assert reply.text == "Done."
    assert sent == [{"text": "Done."}, {"text": "", "thoughtSignature": "c2ln"}]


async def test_attachments_of_another_api_are_not_sent() -> None:
    """An endpoint may get another API; its name remains."""
    async with provider(
        "anthropic", streaming([*start(), *thinking_block(0, "Hm", "s"), *text_block(1, "Yes."), *stop("end_turn")])
    ) as (model, _):
        reply = await ask(model, a_turn())
    for api in ("gemini", "openai", "openai-chat"):
        async with provider(api, DONE[api]) as (model, server):
            await ask(model, going_on(reply))
        assert "Hm" not in str(server.requests[0].body)
