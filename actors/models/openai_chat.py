"""OpenAI's chat completions without their socket: a turn becomes a request, the chunks of a stream become a reply.

Pure. Others offer this API as well, each with deviations: Azure, Ollama, vLLM, LiteLLM. Therefore a request uses little
of it, and parameters that only some servers accept can be omitted.
"""

from collections.abc import Collection, Mapping
from typing import Any

from callboard.actors.models.call_ids import with_fit_ids
from callboard.actors.models.draft import Call, Draft, count_of
from callboard.actors.models.model import ModelTurn, ProviderReply
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
from callboard.lib.json_types import JSON

SCHEMA = "response_format"
"""The parameter with the schema of an answer."""

PARAMETERS: Mapping[str, str] = {
    **{name: name for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "top_k")},
    "stop_sequences": "stop",
}
"""The parameters of a turn that the API has, with their names there. ``top_k`` exists on other servers only."""

_FOREIGN = frozenset({"top_k"})
"""Parameters that the SDK does not know."""

DISPENSABLE = frozenset({*PARAMETERS.values(), "max_tokens", "stream_options", SCHEMA})
"""Parameters that some models and servers refuse: a refused one is omitted. ``max_tokens`` is then sent under its newer
name, ``max_completion_tokens``; a schema is asked for in words."""


def request_of(turn: ModelTurn, without: Collection[str] = ()) -> Request:
    """Convert a turn to a request, ``without`` the parameters that the model refused.

    :raises ValueError: if a part of a message is not resolved
    """
    native = None if SCHEMA in without else native_schema(asked_schema(turn), OPENAI)
    names = api_names(turn)
    messages = [{"role": "system", "content": text} for text in _system(turn, tell_schema=native is None)]
    messages += [shaped for message in with_fit_ids(turn.messages) for shaped in _messages(message, names)]
    params: dict[str, Any] = {"model": turn.model, "messages": messages}
    if "stream_options" not in without:
        params["stream_options"] = {"include_usage": True}
    if turn.tools:
        params["tools"] = [_tool(spec, names) for spec in turn.tools]
    if native is not None:
        answer = {"name": "answer", "schema": native, "strict": True}
        params["response_format"] = {"type": "json_schema", "json_schema": answer}
    if turn.max_output_tokens:
        params["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = turn.max_output_tokens
    own = passed_on(turn, PARAMETERS, without)
    params |= {name: own[name] for name in own if name not in _FOREIGN}
    if foreign := {name: own[name] for name in own if name in _FOREIGN}:
        params["extra_body"] = foreign
    return request(turn, params, names)


def _system(turn: ModelTurn, *, tell_schema: bool) -> list[str]:
    # One message: the templates of some servers use only the first.
    text = "\n\n".join(system_texts(turn, tell_schema=tell_schema))
    return [text] if text else []


def _tool(spec: ToolSpec, names: Mapping[str, str]) -> dict[str, Any]:
    shaped = with_object_schema(spec)
    function: dict[str, Any] = {"name": names[spec.name], "parameters": {"properties": {}, **shaped.input_schema}}
    if shaped.description:
        function["description"] = shaped.description
    return {"type": "function", "function": function}


def _messages(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a message's texts and calls as one message, after one message for each tool's answer."""
    shaped: list[dict[str, Any]] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in in_order(message):
        match part:
            case Text(text):
                texts.append(text)
            case ToolUse(id, tool):
                function = {"name": names[tool], "arguments": canonical(input_of(part)).decode()}
                calls.append({"id": id, "type": "function", "function": function})
            case ToolOutput(id=id):
                shaped.append({"role": "tool", "tool_call_id": id, "content": tool_answer_text(part)})
    if texts or calls:
        own: dict[str, Any] = {"role": message.role, "content": "\n\n".join(texts) or None}
        shaped.append({**own, "tool_calls": calls} if calls else own)
    return shaped


class ChatFold:
    """An unfinished chat completion: one choice, which every chunk extends."""

    def __init__(self) -> None:
        self.draft = Draft()
        self._calls: dict[int, Call] = {}
        """The newest call at each index."""
        self._refusal = ""

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return a whole completion as a chunk, as `callboard.actors.models.draft.Fold.whole`."""
        match body:
            case {"choices": [{"message": {**message}, **choice}, *_]}:
                ending = choice.get("finish_reason") or "stop"
                return [{**body, "choices": [{"index": 0, "delta": message, "finish_reason": ending}]}]
            case {"choices": list()}:
                return [dict(body)]
            case _:
                return None

    def take(self, event: object) -> str | None:
        """Add the next chunk, as `callboard.actors.models.draft.Fold.take`."""
        match event:
            case {**chunk}:
                self._about(chunk)
            case _:
                return None
        match chunk.get("choices"):
            case [{**choice}, *_]:
                delta = choice.get("delta")
                piece = self._delta(delta) if isinstance(delta, Mapping) else None
                if isinstance(reason := choice.get("finish_reason"), str) and reason:
                    self.draft.stop_reason = reason
                    self.draft.ended = True
                return piece
            case _:
                return None

    def reply(self, request: Request) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self.draft.ended and (self._refusal or self.draft.stop_reason == "content_filter"):
            raise self.draft.refusal(self._refusal)
        return self.draft.reply(request)

    def _delta(self, delta: Mapping[str, JSON]) -> str | None:
        piece: str | None = None
        if isinstance(refusal := delta.get("refusal"), str):
            self._refusal = (self._refusal + refusal)[:MESSAGE_CHARS_MAX]
        if isinstance(text := delta.get("content"), str) and text:
            piece = self.draft.say(text)
        calls = delta.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, Mapping):
                self._call(position, call)
                piece = piece or ""
        return piece

    def _call(self, position: int, delta: Mapping[str, JSON]) -> None:
        index, id, function = delta.get("index"), delta.get("id"), delta.get("function")
        place = index if isinstance(index, int) else position
        call = self._calls.get(place)
        # Some servers give all calls the same index, so that only their ids differ.
        if call is None or (isinstance(id, str) and id and call.id and id != call.id):
            call = self._calls[place] = Call()
            self.draft.calls.append(call)
        if isinstance(id, str) and id:
            call.id = id
        if not isinstance(function, Mapping):
            return
        if isinstance(name := function.get("name"), str) and name:
            call.name = name
        match function.get("arguments"):
            case str(piece):
                self.draft.extend(call, piece)
            case dict(whole):
                call.input = whole
            case _:
                pass

    def _about(self, chunk: Mapping[str, JSON]) -> None:
        id, model, usage = chunk.get("id"), chunk.get("model"), chunk.get("usage")
        self.draft.id = id if isinstance(id, str) and id else self.draft.id
        self.draft.model = model if isinstance(model, str) and model else self.draft.model
        if isinstance(usage, Mapping):
            details = usage.get("prompt_tokens_details")
            cached: Mapping[str, JSON] = details if isinstance(details, Mapping) else {}
            self.draft.usage = Usage(
                count_of(usage.get("prompt_tokens")),
                count_of(usage.get("completion_tokens")),
                cache_read_tokens=count_of(cached.get("cached_tokens")),
                cache_write_tokens=count_of(cached.get("cache_write_tokens")),
            )
