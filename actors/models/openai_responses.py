"""OpenAI's Responses API without its socket: a turn becomes a request, the events of a stream become a reply.

Pure. The provider stores nothing (``store`` is false): the log is the conversation.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from callboard.actors.models.call_ids import with_fit_ids
from callboard.actors.models.draft import Call, Draft, count_of
from callboard.actors.models.model import ModelTurn, ProviderReply
from callboard.actors.models.openai_errors import failure_in_stream as error_told
from callboard.actors.models.request_parts import (
    Request,
    api_names,
    asked_schema,
    in_order,
    input_of,
    passed_on,
    request,
    system_texts,
    tool_answer_text,
)
from callboard.actors.models.schemas import OPENAI, native_schema
from callboard.actors.models.tool_schemas import with_object_schema
from callboard.actors.models.trouble import MESSAGE_CHARS_MAX
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse, Usage
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

SCHEMA = "text"
"""The parameter with the schema of an answer."""

PARAMETERS: Mapping[str, str] = {name: name for name in ("temperature", "top_p")}
"""The parameters of a turn that the API has, with their names there."""

DISPENSABLE = frozenset({*PARAMETERS.values(), SCHEMA})
"""Parameters that some models refuse: a refused one is omitted, and a schema asked for in words."""


def request_of(turn: ModelTurn, without: Collection[str] = ()) -> Request:
    """Convert a turn to a request, ``without`` the parameters that the model refused.

    :raises ValueError: if a part of a message is not resolved
    """
    native = None if SCHEMA in without else native_schema(asked_schema(turn), OPENAI)
    names = api_names(turn)
    params: dict[str, Any] = {
        "model": turn.model,
        "input": [item for message in with_fit_ids(turn.messages) for item in _items(message, names)],
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
    params |= passed_on(turn, PARAMETERS, without)
    return request(turn, params, names)


def _tool(spec: ToolSpec, names: Mapping[str, str]) -> dict[str, Any]:
    # Not strict, which is the API's default: strict mode accepts only a part of JSON Schema. Tools check their input.
    shaped = with_object_schema(spec)
    parameters: JSON = {"properties": {}, **shaped.input_schema}
    tool: dict[str, Any] = {"type": "function", "name": names[spec.name], "parameters": parameters, "strict": False}
    if shaped.description:
        tool["description"] = shaped.description
    return tool


def _items(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for part in in_order(message):
        match part:
            case Text(text):
                items.append({"role": message.role, "content": text})
            case ToolUse(id, tool):
                arguments = canonical(input_of(part)).decode()
                items += _thinking_items(part)
                items.append({"type": "function_call", "call_id": id, "name": names[tool], "arguments": arguments})
            case ToolOutput(id=id):
                items.append({"type": "function_call_output", "call_id": id, "output": tool_answer_text(part)})
    return items


def _thinking_items(use: ToolUse) -> list[dict[str, Any]]:
    """Return the items of the model's thinking before a call; items that are not thinking are left out."""
    try:
        items = decode_json(use.thought) if use.thought else []
    except msgspec.DecodeError:
        return []
    return [item for item in items if _is_sealed(item)] if isinstance(items, list) else []


def _is_sealed(item: object) -> bool:
    """Return whether an item is complete, encrypted thinking, so that the provider need not store it."""
    match item:
        case {"type": "reasoning", "id": str(), "encrypted_content": str()}:
            return True
        case _:
            return False


class ResponseFold:
    """An unfinished response: items by their index, each opened, extended and finished."""

    def __init__(self) -> None:
        self.draft = Draft()
        self._calls: dict[int, Call] = {}
        self._heard: set[int] = set()
        """Items whose text has come in pieces."""
        self._thoughts: list[JSON] = []
        """The thinking of the model since its last call."""
        self._refusal = ""

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return the events of a whole response, as `callboard.actors.models.draft.Fold.whole`."""
        match body:
            case {"object": "response", "status": "completed" | "incomplete" | "failed" as status}:
                return [{"type": f"response.{status}", "response": dict(body)}]
            case _:
                return None

    def take(self, event: object) -> str | None:
        """Add the next event, as `callboard.actors.models.draft.Fold.take`."""
        match event:
            case {"type": "response.output_text.delta", "output_index": int(index), "delta": str(piece)}:
                self._heard.add(index)
                return self.draft.say(piece)
            case {"type": "response.refusal.delta", "delta": str(piece)}:
                self._refusal = (self._refusal + piece)[:MESSAGE_CHARS_MAX]
            case {"type": "response.output_item.added", "output_index": int(index), "item": {**item}}:
                if item.get("type") == "function_call":
                    self._call(index, item)
            case {"type": "response.function_call_arguments.delta", "output_index": int(index), "delta": str(piece)}:
                call = self._calls.get(index)
                return self.draft.extend(call, piece) if call is not None else ""
            case {"type": "response.output_item.done", "output_index": int(index), "item": {**item}}:
                return self._done(index, item)
            case {"type": "response.created" | "response.in_progress", "response": {**response}}:
                self._about(response)
            case {"type": "response.completed" | "response.incomplete", "response": {**response}}:
                return self._find_stop_reason(response)
            case {"type": "response.failed", "response": {**response}}:
                self._about(response)
                error = response.get("error")
                raise error_told(error if isinstance(error, Mapping) else {})
            case {"type": "error", **error}:
                raise error_told({**error, "type": None})
            case _:
                return None
        return None

    def reply(self, request: Request) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self.draft.ended and (self._refusal or self.draft.stop_reason == "content_filter"):
            raise self.draft.refusal(self._refusal)
        return self.draft.reply(request)

    def _call(self, index: int, item: Mapping[str, JSON]) -> Call:
        call = self._calls.get(index)
        if call is None:
            thought = canonical(self._thoughts).decode() if self._thoughts else ""
            call = self._calls[index] = Call(thought=thought)
            self._thoughts = []
            self.draft.calls.append(call)
        for name, own in (("call_id", "id"), ("name", "name")):
            if isinstance(value := item.get(name), str):
                setattr(call, own, value)
        return call

    def _done(self, index: int, item: Mapping[str, JSON]) -> str | None:
        """Add a complete item: its text counts, unless it has come in pieces."""
        match item:
            case {"type": "function_call", **rest}:
                call = self._call(index, rest)
                call.whole = rest.get("status") != "incomplete"
                arguments = rest.get("arguments")
                if isinstance(arguments, str) and not call.pieces:
                    return self.draft.extend(call, arguments)
            case {"type": "reasoning"} if index not in self._heard and _is_sealed(item):
                self._heard.add(index)
                self._thoughts.append(
                    {name: item.get(name) for name in ("type", "id", "encrypted_content")} | {"summary": []}
                )
            case {"type": "message", "content": list() as parts} if index not in self._heard:
                self._heard.add(index)
                return "".join(self._to_text(part) for part in parts) or None
            case _:
                return None
        return None

    def _to_text(self, part: JSON) -> str:
        match part:
            case {"type": "output_text", "text": str(text)}:
                return self.draft.say(text)
            case {"type": "refusal", "refusal": str(text)}:
                self._refusal = self._refusal or text[:MESSAGE_CHARS_MAX]
                return ""
            case _:
                return ""

    def _about(self, response: Mapping[str, JSON]) -> None:
        id, model, usage = response.get("id"), response.get("model"), response.get("usage")
        self.draft.id = id if isinstance(id, str) else self.draft.id
        self.draft.model = model if isinstance(model, str) else self.draft.model
        if isinstance(usage, Mapping):
            details = usage.get("input_tokens_details")
            cached: Mapping[str, JSON] = details if isinstance(details, Mapping) else {}
            self.draft.usage = Usage(
                count_of(usage.get("input_tokens")),
                count_of(usage.get("output_tokens")),
                cache_read_tokens=count_of(cached.get("cached_tokens")),
                cache_write_tokens=count_of(cached.get("cache_write_tokens")),
            )

    def _find_stop_reason(self, response: Mapping[str, JSON]) -> str | None:
        self._about(response)
        output = response.get("output")
        said = [self._done(index, item) for index, item in enumerate(output)] if isinstance(output, list) else []
        match response:
            case {"status": "incomplete", "incomplete_details": {"reason": str(reason)}}:
                self.draft.stop_reason = reason
            case {"status": str(status)}:
                self.draft.stop_reason = "tool_calls" if status == "completed" and self.draft.calls else status
            case _:
                pass
        self.draft.ended = True
        return "".join(piece for piece in said if piece) or None
