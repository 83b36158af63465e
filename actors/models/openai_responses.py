"""OpenAI's Responses API without its socket: converts a turn to a request, and the items of a response to records.

Pure. The provider stores nothing (``store`` is false): the log is the conversation. So it needs its thinking back with
the tools' answers, encrypted; the ``phase`` of each message; and the items of the tools that it runs itself.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from callboard.actors.models.attachments import Attached, in_place, seal, unseal
from callboard.actors.models.draft import PARTS_BETWEEN, DraftCall
from callboard.actors.models.model import ModelTurn
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
    with_fit_ids,
)
from callboard.actors.models.schemas import OPENAI, native_schema, with_object_schema
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

API = "openai"

COMMENTARY = "commentary"
"""The phase of a message that is not the answer."""

_OF_CALL = frozenset({"type", "id", "call_id", "name", "arguments", "status"})


class MessageItem(Struct):
    """A message: its pieces and its phase, if it has one. One that is ``aside`` is not part of the answer."""

    pieces: list[str] = field(default_factory=list[str])
    phase: str = ""
    aside: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


Item = MessageItem | DraftCall | dict[str, Any]
"""An item of a response; a mapping is one that is sent back as it is."""


def to_input_item(item: Mapping[str, JSON]) -> dict[str, Any] | None:
    """Return an item, neither message nor call, as it is sent back; None if the provider could not read it."""
    match item:
        case {"type": "reasoning"}:
            if not _is_thinking(item):
                return None
            sealed = {name: item.get(name) for name in ("type", "id", "encrypted_content", "content")}
            return {name: value for name, value in sealed.items() if value} | {"summary": []}
        case {"type": "image_generation_call"}:
            return None
        case {"type": str()}:
            return {name: value for name, value in item.items() if value is not None}
        case _:
            return None


def _is_thinking(item: object) -> bool:
    """Return whether an item is complete thinking: encrypted, or in words, so that the provider need not store it."""
    match item:
        case {"type": "reasoning", "id": str(), "encrypted_content": str()}:
            return True
        case {"type": "reasoning", "id": str(), "content": [_, *_]}:
            return True
        case _:
            return False


def parts_of(thought: str) -> list[Any]:
    """Return the parts of a recorded text."""
    return unseal(API, thought)


def more_of_call(item: Mapping[str, JSON]) -> dict[str, Any]:
    """Return the members of a call that are sent back besides those that are recorded as such."""
    return {name: value for name, value in item.items() if name not in _OF_CALL and value is not None}


def attach(items: Sequence[Item], more: Mapping[int, Mapping[str, Any]]) -> str:
    """Record with each call what precedes it and its further members (by its number); return what follows the last."""
    since: list[JSON] = []
    calls, has_text = 0, False
    for item in items:
        match item:
            case DraftCall():
                own = more.get(calls)
                item.thought = seal(API, [*since, {"type": "function_call", **own}] if own else since)
                since, calls = [], calls + 1
            case MessageItem(aside=True):
                since.append({"type": "message", "phase": item.phase, "text": item.text})
            case MessageItem():
                chars = len(item.text)
                if chars and has_text:
                    since.append(len(PARTS_BETWEEN))
                if chars:
                    since.append({"type": "message", "phase": item.phase, "chars": chars} if item.phase else chars)
                has_text = has_text or chars > 0
            case _:
                since.append(item)
    return seal(API, since)


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
