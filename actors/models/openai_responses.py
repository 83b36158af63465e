"""OpenAI's Responses API without its socket: converts a turn to a request.

Pure. The provider stores nothing (``store`` is false): the log is the conversation.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from callboard.actors.models.attachments import Attached, in_place
from callboard.actors.models.call_ids import with_fit_ids
from callboard.actors.models.model import ModelTurn
from callboard.actors.models.openai_response_items import API, parts_of
from callboard.actors.models.request_parts import (
    ATTACHED,
    OPENAI_PARAMETERS,
    SdkRequest,
    api_names,
    asked_schema,
    input_of,
    passed_on,
    request,
    system_texts,
    tool_answer_text,
)
from callboard.actors.models.schemas import OPENAI, native_schema
from callboard.actors.models.tool_schemas import with_object_schema
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

SEALED_AS = API
"""The name of this API in the log."""

SCHEMA = "text"
"""The parameter with the schema of an answer."""

DISPENSABLE = frozenset({*OPENAI_PARAMETERS.values(), SCHEMA})
"""Parameters that some models refuse: a refused one is omitted, and a schema asked for in words."""


ABOUT_ATTACHMENTS = re.compile(r"encrypted|reasoning|phase|\brs_|caller|namespace", re.IGNORECASE)
"""Finds errors about items that are sent back, such as thinking that belongs to another conversation."""


def build_request(turn: ModelTurn, without: Collection[str] = ()) -> SdkRequest:
    """Convert a turn to a request, ``without`` the parameters that the model refused.

    :raises ValueError: if a part of a message is not resolved
    """
    native = None if SCHEMA in without else native_schema(asked_schema(turn), OPENAI)
    names = api_names(turn)
    params: dict[str, Any] = {
        "model": turn.model,
        "input": [
            item
            for message in with_fit_ids(turn.messages)
            for item in _items(message, names, attached=ATTACHED not in without)
        ],
        "store": False,
    }
    if texts := system_texts(turn, tell_schema=native is None):
        params["instructions"] = "\n\n".join(texts)
    if turn.tools:
        params["tools"] = [_tool(spec, names) for spec in turn.tools]
    if native is not None:
        params["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": native, "strict": True}}
    if turn.max_output_tokens:
        params["max_output_tokens"] = turn.max_output_tokens
    params |= passed_on(turn, OPENAI_PARAMETERS, without)
    return request(turn, params, names)


def _tool(spec: ToolSpec, names: Mapping[str, str]) -> dict[str, Any]:
    # Not strict, which is the API's default: strict mode accepts only a part of JSON Schema. Tools check their input.
    shaped = with_object_schema(spec)
    parameters: JSON = {"properties": {}, **shaped.input_schema}
    tool: dict[str, Any] = {"type": "function", "name": names[spec.name], "parameters": parameters, "strict": False}
    if shaped.description:
        tool["description"] = shaped.description
    return tool


def _items(message: Message, names: Mapping[str, str], *, attached: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    for part in in_place(message, parts_of if attached else lambda _thought: []):
        match part:
            case Text(text):
                items += [{"role": message.role, "content": text}] if text.strip() else []
            case Attached({"type": "message", **members}, text):
                text = text or members.pop("text", "")
                items += [{**members, "role": message.role, "content": text}] if text.strip() else []
            case Attached({"type": "function_call", **members}):
                more = members
            case Attached(members):
                items.append(members)
            case ToolUse(id, tool):
                arguments = canonical(input_of(part)).decode()
                call = {"type": "function_call", "call_id": id, "name": names[tool], "arguments": arguments}
                items.append({**more, **call})
                more = {}
            case ToolOutput(id=id):
                items.append({"type": "function_call_output", "call_id": id, "output": tool_answer_text(part)})
    # The API refuses thinking that nothing follows.
    return items if any(item.get("type") != "reasoning" for item in items) else []
