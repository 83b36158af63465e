"""Gemini's API without its socket: converts a turn to a request of ``streamGenerateContent``. Pure."""

import binascii
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from callboard.actors.models.attachments import Attached, Placed, in_place, seal, unseal
from callboard.actors.models.model import ModelTurn
from callboard.actors.models.request_parts import (
    ATTACHED,
    GEMINI_PARAMETERS,
    SIGNATURES,
    SUBSTITUTE,
    UNNAMED,
    SdkRequest,
    api_names,
    asked_schema,
    error_text,
    input_of,
    passed_on,
    request,
    system_texts,
    with_fit_ids,
)
from callboard.actors.models.schemas import GEMINI, native_schema
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse

API = "gemini"

SCHEMA = "response_json_schema"
"""The parameter with the schema of an answer."""

DISPENSABLE = frozenset({*GEMINI_PARAMETERS.values(), SCHEMA})
"""Parameters that some models and servers refuse: a refused one is omitted."""

_HARM = "HARM_CATEGORY_"

_ROLES = {"user": "user", "assistant": "model"}


def build_request(turn: ModelTurn, without: Collection[str] = ()) -> SdkRequest:
    """Convert a turn to a request, ``without`` the parameters that the model refused.

    A schema is enforced if the API's structured output can express it and the turn offers no tools, which not every
    model accepts together with a schema; otherwise the model is asked in words.

    :raises ValueError: if a part of a message is not resolved
    """
    native = None if turn.tools or SCHEMA in without else native_schema(asked_schema(turn), GEMINI)
    names = api_names(turn)
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if texts := system_texts(turn, tell_schema=native is None):
        config["system_instruction"] = "\n\n".join(texts)
    if turn.tools:
        config["tools"] = [{"function_declarations": [_tool(spec, names) for spec in turn.tools]}]
    if native is not None:
        config |= {"response_mime_type": "application/json", SCHEMA: native}
    if turn.max_output_tokens:
        config["max_output_tokens"] = turn.max_output_tokens
    config |= passed_on(turn, GEMINI_PARAMETERS, without)
    if isinstance(settings := config.get("safety_settings"), Mapping):
        config["safety_settings"] = [
            {"category": _category(name), "threshold": threshold} for name, threshold in settings.items()
        ]
    contents = _contents(with_fit_ids(turn.messages), names, without)
    params = {"model": turn.model, "contents": contents, "config": config}
    return request(turn, params, names)


def _category(name: str) -> str:
    """Return the API's name of a category of harm: ``harassment`` is ``HARM_CATEGORY_HARASSMENT``."""
    upper = name.upper()
    return upper if upper.startswith(_HARM) else f"{_HARM}{upper}"


def _tool(spec: ToolSpec, names: Mapping[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}, **spec.input_schema}
    tool: dict[str, Any] = {"name": names[spec.name], "parameters_json_schema": schema}
    if spec.description:
        tool["description"] = spec.description
    return tool


def _contents(messages: Sequence[Message], names: Mapping[str, str], without: Collection[str]) -> list[dict[str, Any]]:
    attached = ATTACHED not in without
    contents: list[dict[str, Any]] = []
    called: dict[str, str] = {}
    for message in messages:
        called |= {part.id: names[part.tool] for part in message.parts if isinstance(part, ToolUse)}
        placed = in_place(message, _parts_of if attached else lambda _thought: [])
        parts = list(_parts(placed, names, called, attached=attached))
        if SIGNATURES in without or not attached:
            _sign_first_call(parts)
        if parts:
            contents.append({"role": _ROLES[message.role], "parts": parts})
    return contents


def _parts(
    placed: Iterator[Placed], names: Mapping[str, str], called: Mapping[str, str], *, attached: bool
) -> Iterator[dict[str, Any]]:
    own = ""
    for part in placed:
        match part:
            case Text(text):
                if text.strip():
                    yield {"text": text}
            case Attached({"call": True, "signature": str(signature)}):
                own = signature
            case Attached({"thought": str(thought), **members}):
                yield {"text": thought, "thought": True, **_signature_members(members.get("signature"))}
            case Attached(members, text):
                yield {"text": text, **_signature_members(members.get("signature"))}
            case ToolUse(id, tool, thought=thought):
                call = {"function_call": {**_id(id), "name": names[tool], "args": input_of(part)}}
                yield {**call, **(_signature_members(own or thought) if attached else {})}
                own = ""
            case ToolOutput(id=id, output=output, error=error):
                answer = {"output": output} if error is None else {"error": error_text(error)}
                yield {"function_response": {**_id(id), "name": called.get(id, id), "response": answer}}


def _sign_first_call(parts: list[dict[str, Any]]) -> None:
    """Substitute the signature of a message's first call, which has that of all its calls."""
    call = next((part for part in parts if "function_call" in part), {"thought_signature": b""})
    call.setdefault("thought_signature", SUBSTITUTE.encode())


def _id(id: str) -> dict[str, str]:
    return {} if id.startswith(UNNAMED) else {"id": id}


def seal_call(since: Sequence[Any], signature: str) -> str:
    """Return the recorded text of a call: its signature alone, or with the signed parts since the previous call."""
    if not any(isinstance(part, dict) for part in since):
        return signature
    return seal(API, [*since, {"call": True, "signature": signature}])


def _parts_of(thought: str) -> list[Any]:
    return unseal(API, thought)


def _signature_members(signature: object) -> dict[str, bytes]:
    """Return a part's signature, which some models require; nothing for a text that does not come from Gemini."""
    try:
        found = b64decode(signature, altchars=b"-_", validate=True) if isinstance(signature, str) else b""
    except (binascii.Error, ValueError):
        found = b""
    return {"thought_signature": found} if found else {}
