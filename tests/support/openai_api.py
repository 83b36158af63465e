"""What OpenAI's two APIs answer, as a test has `tests.support.model_api` say it."""

from collections.abc import Mapping
from typing import Any

from tests.support.model_api import Answer, refusing, streaming

USAGE = {
    "input_tokens": 330,
    "input_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 20},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 337,
}


def failing(
    status: int, code: str | None, message: str = "scripted", headers: Mapping[str, str] | None = None, **error: Any
) -> Answer:
    """An error as both APIs word it."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code, **error}}
    return refusing(status, body, {"x-request-id": "req_1", **(headers or {})})


# -- responses --------------------------------------------------------------------------------------------------------


def response(status: str, **fields: Any) -> dict[str, Any]:
    """A response as the events carry it."""
    return {"id": "resp_1", "object": "response", "model": "gpt-served", "status": status, "output": [], **fields}


def created() -> list[dict[str, Any]]:
    """How every stream of events begins."""
    return [{"type": "response.created", "sequence_number": 0, "response": response("in_progress", usage=None)}]


def text_item(index: int, text: str) -> list[dict[str, Any]]:
    """A message, streamed in pieces of five characters."""
    deltas = [
        {"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": text[at : at + 5]}
        for at in range(0, len(text), 5)
    ]
    item = {"type": "message", "role": "assistant", "id": "msg_1"}
    whole = {**item, "content": [{"type": "output_text", "text": text}]}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}},
        *deltas,
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


def call_item(index: int, id: str, name: str, arguments: str) -> list[dict[str, Any]]:
    """A call of a function whose arguments are streamed as the given text, JSON or not."""
    deltas = [
        {"type": "response.function_call_arguments.delta", "output_index": index, "delta": arguments[at : at + 7]}
        for at in range(0, len(arguments), 7)
    ]
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": id, "name": name, "arguments": ""}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        *deltas,
        {"type": "response.output_item.done", "output_index": index, "item": {**item, "arguments": arguments}},
    ]


def completed(**fields: Any) -> list[dict[str, Any]]:
    """How a whole stream ends."""
    return [{"type": "response.completed", "response": response("completed", usage=USAGE, **fields)}]


def incomplete(reason: str) -> list[dict[str, Any]]:
    """How a stream ends that was cut off."""
    cut = response("incomplete", usage=USAGE, incomplete_details={"reason": reason})
    return [{"type": "response.incomplete", "response": cut}]


def failed(code: str, message: str = "scripted") -> list[dict[str, Any]]:
    """How a stream ends in which the provider failed."""
    return [{"type": "response.failed", "response": response("failed", error={"code": code, "message": message})}]


def responding(text: str) -> Answer:
    """A whole response of plain text."""
    return streaming([*created(), *text_item(0, text), *completed()])


# -- chat completions -------------------------------------------------------------------------------------------------

DONE = "data: [DONE]\n\n"


def chunk(delta: Mapping[str, Any] | None = None, finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of the one choice that there is; without a delta and a reason, of none."""
    choices: list[Any] = []
    if delta is not None or finish_reason is not None:
        choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-served"}
    return {**head, "choices": choices, **fields}


def text_chunks(text: str) -> list[dict[str, Any]]:
    """Text in pieces of five characters."""
    return [chunk({"content": text[at : at + 5]}) for at in range(0, len(text), 5)]


def call_chunks(index: int, id: str, name: str, arguments: str) -> list[dict[str, Any]]:
    """A call whose arguments are streamed as the given text, JSON or not."""
    head = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [arguments[at : at + 7] for at in range(0, len(arguments), 7)]
    calls = [head, *({"index": index, "function": {"arguments": piece}} for piece in rest)]
    return [chunk({"tool_calls": [call]}) for call in calls]


def finish(reason: str = "stop") -> list[dict[str, Any] | str]:
    """How a whole stream ends: the reason, the usage, the end."""
    usage = {
        "prompt_tokens": 330,
        "completion_tokens": 7,
        "total_tokens": 337,
        "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 20},
    }
    return [chunk(finish_reason=reason), chunk(usage=usage), DONE]


def chatting(text: str) -> Answer:
    """A whole completion of plain text."""
    return streaming([*text_chunks(text), *finish()])
