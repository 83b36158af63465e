"""OpenAI's chat completions without their socket: a turn becomes a request, the chunks of a stream become a reply.

Pure. Others offer this API as well, each with deviations: Azure, Ollama, vLLM, LiteLLM. Therefore a request uses little
of it, and parameters that only some servers accept can be omitted.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from callboard.actors.models.attachments import seal, unseal
from callboard.actors.models.draft import ReplyDraft, usage_of
from callboard.actors.models.model import ModelTurn, ProviderReply
from callboard.actors.models.openai_chat_calls import ChatCalls, add_members, extra_members
from callboard.actors.models.request_parts import (
    ATTACHED,
    OPENAI_CHAT_PARAMETERS,
    SIGNATURES,
    SUBSTITUTE,
    SdkRequest,
    api_names,
    asked_schema,
    in_order,
    input_of,
    passed_on,
    request,
    system_texts,
    tool_answer_text,
    with_fit_ids,
)
from callboard.actors.models.schemas import OPENAI, native_schema, with_object_schema
from callboard.actors.models.trouble import MESSAGE_CHARS_MAX
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

SEALED_AS = "openai-chat"
"""The name of this API in the log."""

SCHEMA = "response_format"
"""The parameter with the schema of an answer."""

_FOREIGN = frozenset({"top_k"})
"""Parameters that the SDK does not know."""

DISPENSABLE = frozenset({*OPENAI_CHAT_PARAMETERS.values(), "max_tokens", "stream_options", SCHEMA})
"""Parameters that some models and servers refuse: a refused one is omitted. ``max_tokens`` is then sent under its newer
name, ``max_completion_tokens``; a schema is asked for in words."""


ABOUT_ATTACHMENTS = re.compile(
    r"reasoning|thinking|signature|extra_content|provider_specific|(?:extra|additional) (?:input|field|propert)",
    re.IGNORECASE,
)
"""Finds errors about members of earlier messages that the API does not have."""

REFUSALS = frozenset({"content_filter", "content_filtered", "sensitive", "guardrail_intervened", "refusal"})
"""Reasons for which a message ended without an answer, because the model or the server refused it."""

INTERRUPTED = frozenset({"error", "insufficient_system_resource", "network_error", "server_error", "abort"})
"""Reasons for which servers break a message off; the next try may have an answer."""

_OF_MESSAGE = frozenset(
    {
        *("role", "name", "content", "refusal", "tool_calls", "function_call", "audio", "images"),
        *("annotations", "citations", "context", "content_filter_results", "content_filter_offsets", "executed_tools"),
    }
)
"""Members of a message that are read here, or that no server wants back."""


def build_request(turn: ModelTurn, without: Collection[str] = ()) -> SdkRequest:
    """Convert a turn to a request, ``without`` the parameters that the model refused.

    :raises ValueError: if a part of a message is not resolved
    """
    native = None if SCHEMA in without else native_schema(asked_schema(turn), OPENAI)
    names = api_names(turn)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": text} for text in _system(turn, tell_schema=native is None)
    ]
    for message in with_fit_ids(turn.messages):
        shaped = _messages(message, names, attached=ATTACHED not in without)
        messages += _sign_first_call(shaped) if SIGNATURES in without else shaped
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
    own = passed_on(turn, OPENAI_CHAT_PARAMETERS, without)
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


def _messages(message: Message, names: Mapping[str, str], *, attached: bool) -> list[dict[str, Any]]:
    """Return a message's texts and calls as one message, after one message for each tool's answer."""
    own = _members(message.thought) if attached else {}
    shaped: list[dict[str, Any]] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in in_order(message):
        match part:
            case Text(text):
                texts.append(text)
            case ToolUse(id, tool):
                more = _members(part.thought) if attached else {}
                function = {"name": names[tool], "arguments": canonical(input_of(part)).decode()}
                function |= more.pop("function", {})
                calls.append({**more, "id": id, "type": "function", "function": function})
            case ToolOutput(id=id):
                shaped.append({"role": "tool", "tool_call_id": id, "content": tool_answer_text(part)})
    if texts or calls:
        text = "\n\n".join(texts)
        chunks = own.pop("content", None)
        content = [*chunks, *([{"type": "text", "text": text}] if text else [])] if chunks else text or None
        told = {**own, "role": message.role, "content": content}
        shaped.append({**told, "tool_calls": calls} if calls else told)
    return shaped


def _sign_first_call(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Substitute the signature of a message's first call, where Google's endpoint has it."""
    for call in [message["tool_calls"][0] for message in messages if "tool_calls" in message]:
        call.setdefault("extra_content", {"google": {"thought_signature": SUBSTITUTE}})
    return messages


def _members(thought: str) -> dict[str, Any]:
    """Return the members that the provider attached to a message or a call."""
    return next(iter(unseal(SEALED_AS, thought)), {})


def _is_text(chunk: JSON) -> TypeGuard[dict[str, str]]:
    match chunk:
        case {"type": "text", "text": str()}:
            return True
        case _:
            return False


class ChatFold:
    """An unfinished chat completion: one choice, which every chunk extends."""

    def __init__(self) -> None:
        self.draft = ReplyDraft()
        self._calls = ChatCalls(self.draft)
        self._more: dict[str, Any] = {}
        """The members that the provider attached to the message."""
        self._refusal = ""

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return a whole completion as a chunk, as `callboard.actors.models.draft.Fold.whole`."""
        match body:
            case {"choices": [{"message": {**message}, **choice}, *_]}:
                ending = choice.get("finish_reason") or "stop"
                calls = message.get("tool_calls")
                if isinstance(calls, list):  # they are complete, and come in order
                    message["tool_calls"] = [
                        {**call, "index": place} for place, call in enumerate(calls) if isinstance(call, Mapping)
                    ]
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

    def reply(self, request: SdkRequest) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        reason = self.draft.stop_reason.lower()
        if self.draft.ended and (self._refusal or reason in REFUSALS):
            raise self.draft.refusal(self._refusal)
        if reason in INTERRUPTED:
            raise self.draft.bad(f"the server broke the message off: {reason}", again=True)
        for call in self._calls.finish():
            call.thought = seal(SEALED_AS, [call.more] if call.more else [])
        self.draft.thought = seal(SEALED_AS, [self._more] if self._more else [])
        return self.draft.reply(request)

    def _delta(self, delta: Mapping[str, JSON]) -> str | None:
        if isinstance(refusal := delta.get("refusal"), str):
            self._refusal = (self._refusal + refusal)[:MESSAGE_CHARS_MAX]
        piece = self._say(delta.get("content"))
        self.draft.grow(add_members(self._more, extra_members(delta, _OF_MESSAGE)))
        calls = delta.get("tool_calls")
        if calls:
            self._calls.take(calls if isinstance(calls, list) else [calls])
            piece = piece or ""
        return piece

    def _say(self, content: JSON) -> str | None:
        """Add content: a text, or a list of chunks, of which those that are not text are sent back."""
        match content:
            case str(text) if text:
                return self.draft.say(text)
            case list():
                said = [chunk["text"] for chunk in content if _is_text(chunk)]
                rest = [chunk for chunk in content if not _is_text(chunk)]
                self.draft.grow(add_members(self._more, {"content": rest} if rest else {}))
                return self.draft.say("".join(said)) if said else None
            case _:
                return None

    def _about(self, chunk: Mapping[str, JSON]) -> None:
        self.draft.identify(chunk.get("id"), chunk.get("model"))
        if isinstance(usage := chunk.get("usage"), Mapping):
            self.draft.usage = usage_of(usage, "prompt_tokens", "completion_tokens")
