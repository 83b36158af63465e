"""Anthropic's Messages API without its socket: converts a turn to a request.

Pure. The API is version 2026-10-21, described at platform.claude.com under "Messages".
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from callboard.actors.models.anthropic_blocks import THINKING, parts_of, with_blocks
from callboard.actors.models.attachments import Attached, Placed, in_place
from callboard.actors.models.call_ids import with_fit_ids
from callboard.actors.models.model import ModelTurn
from callboard.actors.models.request_parts import (
    ANTHROPIC_PARAMETERS,
    ATTACHED,
    SdkRequest,
    api_names,
    asked_schema,
    input_of,
    passed_on,
    request,
    system_texts,
    tool_answer_text,
)
from callboard.actors.models.schemas import ANTHROPIC, native_schema
from callboard.actors.models.tool_schemas import with_object_schema
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse

OUTPUT_TOKENS = 16_384
"""Output tokens of a turn that sets no limit; the model's thinking counts among them."""

SCHEMA = "output_config"
"""The parameter with the schema of an answer."""

DISPENSABLE = frozenset({*ANTHROPIC_PARAMETERS.values(), SCHEMA})
"""Parameters that some models and servers refuse: a refused one is omitted."""

_CACHE = {"type": "ephemeral"}


def build_request(turn: ModelTurn, without: Collection[str] = ()) -> SdkRequest:
    """Convert a turn to a request, ``without`` the parameters that the model refused.

    A schema is enforced by the API's structured output if that can express it; otherwise the model is asked in words
    and the answer is read leniently. A forced tool, the older way to any schema, is refused with status 400 by Claude
    Sonnet 5.5 and its generation.

    :raises ValueError: if a part of a message is not resolved
    """
    native = None if SCHEMA in without else native_schema(asked_schema(turn), ANTHROPIC)
    names = api_names(turn)
    params: dict[str, Any] = {
        "model": turn.model,
        "max_tokens": turn.max_output_tokens or OUTPUT_TOKENS,
        "messages": _messages(with_fit_ids(turn.messages), names, attached=ATTACHED not in without),
    }
    if blocks := [{"type": "text", "text": text} for text in system_texts(turn, tell_schema=native is None)]:
        params["system"] = _mark_cached(blocks)
    if turn.tools:
        params["tools"] = _mark_cached([_tool(spec, names) for spec in turn.tools])
    if native is not None:
        params["output_config"] = {"format": {"type": "json_schema", "schema": native}}
    if params["messages"] and (turn.tools or len(turn.messages) > 1):
        # A conversation that continues, or is likely to: the next turn reads this one from the cache.
        last = params["messages"][-1]
        last["content"] = _mark_cached(last["content"])
    if own := passed_on(turn, ANTHROPIC_PARAMETERS, without):
        params["extra_body"] = own
    return request(turn, params, names)


def _mark_cached(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the last block, so that everything up to it is kept in the provider's cache. Thinking cannot be marked."""
    last = max((at for at, block in enumerate(blocks) if block.get("type") not in THINKING), default=None)
    return [{**block, "cache_control": _CACHE} if at == last else block for at, block in enumerate(blocks)]


def _tool(spec: ToolSpec, names: Mapping[str, str]) -> dict[str, Any]:
    shaped = with_object_schema(spec)
    tool: dict[str, Any] = {"name": names[spec.name], "input_schema": shaped.input_schema}
    if shaped.description:
        tool["description"] = shaped.description
    return tool


def _messages(messages: Sequence[Message], names: Mapping[str, str], *, attached: bool) -> list[dict[str, Any]]:
    """Return the messages with content; the API refuses empty ones."""
    shaped = [(message.role, _content(message, names, attached=attached)) for message in messages]
    return [{"role": role, "content": content} for role, content in shaped if not THINKING.keys() >= _types(content)]


def _types(content: Sequence[Mapping[str, Any]]) -> set[str]:
    return {block.get("type", "") for block in content}


def _content(message: Message, names: Mapping[str, str], *, attached: bool) -> list[dict[str, Any]]:
    placed = in_place(message, parts_of if attached else lambda _thought: [])
    return [{**_block(part, names), **more} for part, more in with_blocks(placed)]


def _block(part: Placed, names: Mapping[str, str]) -> dict[str, Any]:
    match part:
        case Attached(members):
            return members
        case Text(text):
            return {"type": "text", "text": text}
        case ToolUse(id, tool):
            return {"type": "tool_use", "id": id, "name": names[tool], "input": input_of(part)}
        case ToolOutput(id=id, error=None):
            return {"type": "tool_result", "tool_use_id": id, "content": tool_answer_text(part)}
        case ToolOutput(id=id):
            return {"type": "tool_result", "tool_use_id": id, "content": tool_answer_text(part), "is_error": True}
