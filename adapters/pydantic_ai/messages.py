"""Messages: requests and responses of Pydantic AI as the log records them, and replies of a script as its responses.

The recorded form is for people, budgets, scripts and spans. The SDK's response is recorded beside it in full, and the
agent continues from that.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_jsonable_python

from callboard.bus.effects import Failure, Message, ModelRequest, Part, Text, ToolOutput, ToolSpec, ToolUse, Usage
from callboard.bus.events import ModelResult
from callboard.bus.work import TurnReply
from callboard.languages.language import Instant
from callboard.languages.python.values import order_sets, plain_json
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

PROVIDERS = {"google": "gemini", "google-gla": "gemini", "google-vertex": "gemini", "google-cloud": "gemini"}
"""Callboard's names of providers for those of the SDK, where they differ."""

RESPONSES: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)

HISTORY_CHANNELS = ("system", "user")


def name_of(model: Model) -> str:
    """Return the name of a model as ``provider:model``, as in Callboard's table of prices."""
    provider = model.system
    return f"{PROVIDERS.get(provider, provider)}:{model.model_name}"


def to_model_request(
    name: str, messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
) -> ModelRequest:
    """Return a request of the SDK as it is recorded. Files in it are named by their type only."""
    given: dict[str, Any] = dict(settings or {})
    wanted = parameters.output_object
    return ModelRequest(
        model=name,
        system="\n\n".join(_instructions(messages, parameters)),
        messages=list(_messages(messages)),
        tools=[
            ToolSpec(one.name, one.description or "", one.parameters_json_schema)
            for one in [*parameters.function_tools, *parameters.output_tools]
        ],
        schema=wanted.json_schema if wanted is not None else None,
        max_output_tokens=given.pop("max_tokens", None),
        temperature=given.pop("temperature", None),
        parameters=_settings(given, parameters),
    )


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    for message in messages:
        if message.kind == "request":
            yield from (part.content for part in message.parts if isinstance(part, SystemPromptPart))
    if parameters.instruction_parts is not None:
        yield from (part.content for part in parameters.instruction_parts)
        return
    newest = [one.instructions for one in messages if one.kind == "request" and one.instructions]
    yield from newest[-1:]


def _messages(messages: Sequence[ModelMessage]) -> Iterator[Message]:
    for message in messages:
        if message.kind == "response":
            reply = reply_of(message)
            yield Message("assistant", [Text(reply.text), *reply.tool_calls] if reply.text else [*reply.tool_calls])
        else:
            parts = [found for part in message.parts if (found := _part(part)) is not None]
            if parts:
                yield Message("user", parts)


def _part(part: Any) -> Part | None:
    match part:
        case SystemPromptPart():
            return None
        case UserPromptPart(content=str(text)):
            return Text(text)
        case UserPromptPart(content=content):
            return Text("\n".join(_user_text(one) for one in content))
        case ToolReturnPart(outcome="success"):
            return ToolOutput(part.tool_call_id, output=_plain(part.content))
        case ToolReturnPart():
            failure = Failure(f"tool.{part.outcome}", part.model_response_str(wrap_if_error=False))
            return ToolOutput(part.tool_call_id, error=failure)
        case RetryFeedbackPart():
            return Text(part.model_response())
        case _:
            # What other parts say is for the SDK's own models: tools that were added, settings that have changed.
            return None


def _user_text(content: Any) -> str:
    """Return the text of a part of a prompt; of a file its address or its type and size."""
    if isinstance(content, str):
        return content
    text = getattr(content, "content", None)
    if isinstance(text, str):
        return text
    data = getattr(content, "data", None)
    if isinstance(data, bytes):
        return f"[{content.media_type}, {len(data)} bytes]"
    return f"[{getattr(content, 'url', None) or getattr(content, 'file_id', None) or content.kind}]"


def _settings(given: dict[str, Any], parameters: ModelRequestParameters) -> dict[str, JSON]:
    """Return further settings of a request, as they are shown."""
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if parameters.native_tools:
        found["native_tools"] = [one.kind for one in parameters.native_tools]
    if parameters.output_mode != "text":
        found["output_mode"] = parameters.output_mode
    return {name: _plain(value) for name, value in found.items() if name not in ("max_retries", "extra_headers")}


def _plain(value: Any) -> JSON:
    """Return the JSON of a value; values without a form in JSON are named by their type."""

    def name(one: Any) -> str:
        return f"<{type(one).__name__}>"

    return plain_json(to_jsonable_python(order_sets(value, name), fallback=name, bytes_mode="base64"))


# -- responses ------------------------------------------------------------------------------------------------------


def reply_of(response: ModelResponse) -> TurnReply:
    """Return a response of the SDK as it is recorded, with the response itself."""
    usage = response.usage
    return TurnReply(
        text="".join(part.content for part in response.parts if isinstance(part, TextPart)),
        tool_calls=[
            ToolUse(part.tool_call_id, part.tool_name, _arguments(part))
            for part in response.parts
            if isinstance(part, ToolCallPart)
        ],
        usage=Usage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens),
        stop_reason=response.finish_reason or "",
        response_id=response.provider_response_id,
        response_model=response.model_name,
        provider=response.provider_name or "",
        native=RESPONSES.dump_python(response, mode="json"),
    )


def _arguments(part: ToolCallPart) -> JSON:
    if isinstance(part.args, dict):
        return _plain(part.args)
    try:
        return decode_json(part.args or "{}")
    except JSON_ERRORS:
        return part.args


def response_of(result: ModelResult, parameters: ModelRequestParameters, at: Instant, key: str) -> ModelResponse:
    """Return the SDK's response of a recorded turn; one that a script has answered is made from its reply.

    ``key`` names the turn, ``at`` is when it ended. A script's ``data`` answers by the agent's output tool, if it has
    one.
    """
    if result.native is not None:
        return RESPONSES.validate_python(result.native)
    data: Any = UNSET if result.data is None else result.data
    parts: list[TextPart | ToolCallPart | ThinkingPart] = [
        ToolCallPart(use.tool, use.input if isinstance(use.input, dict) else canonical(use.input).decode(), use.id)
        for use in result.tool_calls
    ]
    if data is not UNSET and not parts and parameters.output_tools:
        tool = parameters.output_tools[0]
        inner = tool.outer_typed_dict_key
        parts.append(ToolCallPart(tool.name, {inner: data} if inner else data, f"call_{key}"))
    elif result.text:
        parts.insert(0, TextPart(result.text))
    elif data is not UNSET:
        parts.insert(0, TextPart(canonical(data).decode()))
    usage = result.usage
    return ModelResponse(
        parts,
        usage=RequestUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
        model_name=result.response_model or result.model,
        timestamp=at,
        provider_name=result.provider or None,
    )
