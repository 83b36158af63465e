"""Anthropic's Messages API without its socket: a turn becomes a request, the events of a stream become a reply.

Pure. The API is version 2026-10-21, described at platform.claude.com under "Messages".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard.actors.models.anthropic_schema import native_schema
from callboard.actors.models.model import ModelTurn
from callboard.bus.effects import (
    JSON,
    Choice,
    Failure,
    JsonSchema,
    Message,
    Part,
    Recall,
    Text,
    ToolOutput,
    ToolSpec,
    ToolUse,
    canonical,
)

OUTPUT_TOKENS = 16_384
"""Output tokens of a turn that names no limit of its own; the model's thinking counts among them."""

TOOL_NAME_CHARS_MAX = 64

_CACHE = {"type": "ephemeral"}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the SDK takes it; ``tools`` maps the names the API saw back to ours, ``structured`` says whether
    the answer's text is to be read as JSON, ``choices`` are the ids a choice is made from."""

    params: dict[str, Any]
    tools: dict[str, str]
    structured: bool
    choices: frozenset[str]


def request_of(turn: ModelTurn) -> Request:
    """Put a turn into the API's words.

    A schema is enforced by the API's structured output where that has its shape; otherwise the model is asked in words
    and the answer read leniently. A forced tool, the older way to any schema, is refused with status 400 by Claude
    Sonnet 5.5 and its generation. ``temperature`` is not sent: this version of the API refuses it for every model.

    :raises ValueError: if a part of a message is not resolved
    """
    schema = _choice_schema(turn.choices) if turn.choices else turn.schema
    native = None if schema is None else native_schema(schema)
    names = _api_names(turn)
    system = [turn.system, _choices_text(turn.choices), "" if native is not None else _schema_text(schema)]
    params: dict[str, Any] = {
        "model": turn.model,
        "max_tokens": turn.max_output_tokens or OUTPUT_TOKENS,
        "messages": _messages(turn.messages, names),
    }
    if blocks := [{"type": "text", "text": text} for text in system if text.strip()]:
        params["system"] = _cached(blocks)
    if turn.tools:
        params["tools"] = _cached([_tool(spec, names) for spec in turn.tools])
    if native is not None:
        params["output_config"] = {"format": {"type": "json_schema", "schema": native}}
    if params["messages"] and (turn.tools or len(turn.messages) > 1):
        # A conversation that goes on, or is likely to: the next turn reads this one from the cache.
        last = params["messages"][-1]
        last["content"] = _cached(last["content"])
    return Request(
        params,
        {api: ours for ours, api in names.items()},
        schema is not None,
        frozenset(choice.id for choice in turn.choices),
    )


def _cached(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the last block: everything up to it is kept in the provider's cache."""
    return [*blocks[:-1], {**blocks[-1], "cache_control": _CACHE}]


def _api_names(turn: ModelTurn) -> dict[str, str]:
    """Map our tool names to names the API takes (``[a-zA-Z0-9_-]{1,64}``), distinct ones to distinct ones."""
    used = [part.tool for message in turn.messages for part in message.parts if isinstance(part, ToolUse)]
    names: dict[str, str] = {}
    taken: set[str] = set()
    # Names that fit as they are come first, so that none of them has to give way.
    for name in sorted(dict.fromkeys([*(spec.name for spec in turn.tools), *used]), key=lambda name: not _fits(name)):
        plain = candidate = _NOT_IN_NAMES.sub("_", name)[:TOOL_NAME_CHARS_MAX] or "_"
        count = 1
        while candidate in taken:
            count += 1
            candidate = f"{plain[: TOOL_NAME_CHARS_MAX - len(str(count)) - 1]}_{count}"
        names[name] = candidate
        taken.add(candidate)
    return names


def _fits(name: str) -> bool:
    return 0 < len(name) <= TOOL_NAME_CHARS_MAX and _NOT_IN_NAMES.search(name) is None


def _tool(spec: ToolSpec, names: Mapping[str, str]) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": names[spec.name], "input_schema": {"type": "object", **spec.input_schema}}
    if spec.description:
        tool["description"] = spec.description
    return tool


def _messages(messages: Sequence[Message], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Messages with content; the API refuses empty ones, and wants tools' answers before words."""
    shaped: list[dict[str, Any]] = []
    for message in messages:
        parts = sorted(message.parts, key=lambda part: not isinstance(part, ToolOutput))
        if content := [block for part in parts if (block := _block(part, names)) is not None]:
            shaped.append({"role": message.role, "content": content})
    return shaped


def _block(part: Part, names: Mapping[str, str]) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case ToolUse(id, tool, input):
            shaped: JSON = input if isinstance(input, dict) else {}
            return {"type": "tool_use", "id": id, "name": names[tool], "input": shaped}
        case ToolOutput(id=id, error=Failure(code=code, message=message)):
            return {"type": "tool_result", "tool_use_id": id, "content": f"{code}: {message}", "is_error": True}
        case ToolOutput(id=id, output=output):
            text = output if isinstance(output, str) else canonical(output).decode()
            return {"type": "tool_result", "tool_use_id": id, "content": text}
        case Recall(of, at):
            raise ValueError(f"a recall is not resolved: {at} of {of}")


def _choice_schema(choices: Sequence[Choice]) -> JsonSchema:
    return {
        "type": "object",
        "properties": {"choice": {"type": "string", "enum": [choice.id for choice in choices]}},
        "required": ["choice"],
        "additionalProperties": False,
    }


def _choices_text(choices: Sequence[Choice]) -> str:
    if not choices:
        return ""
    lines = [f"- {canonical(choice.id).decode()}: {choice.description}" for choice in choices]
    return "\n".join(["Choose exactly one of these and answer with its id as `choice`:", *lines])


def _schema_text(schema: JsonSchema | None) -> str:
    if schema is None:
        return ""
    return (
        "Your final answer must be a single JSON value that conforms to the JSON Schema below, and nothing else: "
        f"no words around it and no code fence.\n{canonical(schema).decode()}"
    )
