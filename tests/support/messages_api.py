"""What Anthropic's Messages API answers, as a test has `tests.support.model_api` say it."""

from collections.abc import Mapping
from typing import Any

from tests.support.model_api import Answer, refusing, streaming


def failing(status: int, kind: str, message: str = "scripted", headers: Mapping[str, str] | None = None) -> Answer:
    """An error as the API words it."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return refusing(status, body, {"request-id": "req_1", **(headers or {})})


def saying(text: str, **usage: int) -> Answer:
    """A whole reply of plain text, streamed in pieces of five characters."""
    return streaming([*start(**usage), *text_block(0, text), *stop("end_turn")])


def start(**usage: int) -> list[dict[str, Any]]:
    """How every stream begins; ``usage`` as the API counts: fresh, written to and read from the cache apart."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-served",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1, **usage},
    }
    return [{"type": "message_start", "message": message}, {"type": "ping"}]


def text_block(index: int, text: str) -> list[dict[str, Any]]:
    """A block of text."""
    deltas = [{"type": "text_delta", "text": text[at : at + 5]} for at in range(0, len(text), 5)]
    return _block(index, {"type": "text", "text": ""}, deltas)


def thinking_block(index: int, text: str, signature: str) -> list[dict[str, Any]]:
    """A block of thinking, its text in pieces and its signature after it."""
    deltas = [{"type": "thinking_delta", "thinking": text[at : at + 5]} for at in range(0, len(text), 5)]
    sealed = {"type": "signature_delta", "signature": signature}
    return _block(index, {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, sealed])


def redacted_block(index: int, data: str) -> list[dict[str, Any]]:
    """A block of thinking that is encrypted."""
    return _block(index, {"type": "redacted_thinking", "data": data}, [])


def tool_block(index: int, id: str, name: str, raw_input: str) -> list[dict[str, Any]]:
    """A tool call whose input is streamed as the given text, JSON or not."""
    deltas = [
        {"type": "input_json_delta", "partial_json": raw_input[at : at + 7]} for at in range(0, len(raw_input), 7)
    ]
    return _block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, deltas)


def stop(reason: str | None, output_tokens: int = 7, **delta: Any) -> list[dict[str, Any]]:
    """How a whole stream ends."""
    usage = {"output_tokens": output_tokens}
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None, **delta}, "usage": usage},
        {"type": "message_stop"},
    ]


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]
