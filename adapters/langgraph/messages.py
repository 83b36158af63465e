"""Conversion of conversations: LangChain's messages and tools to those of a model request, and replies both ways."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from callboard.adapters.langgraph.values import decode, encode, show_value
from callboard.bus.effects import Failure, Message, ModelRequest, Part, Text, ToolOutput, ToolSpec, ToolUse, Usage
from callboard.bus.events import ModelResult
from callboard.bus.work import TurnReply
from callboard.lib.json_types import JSON

PROVIDERS = {"google_genai": "gemini", "google_vertexai": "gemini", "azure": "openai"}
"""Providers that the table of prices has under other names than LangChain."""


def to_model_request(
    model: Any, messages: Sequence[BaseMessage], stop: list[str] | None, given: Mapping[str, Any]
) -> ModelRequest:
    """Return the request for a turn of a chat model; ``given`` are the further arguments of the call."""
    systems = [_text(one) for one in messages if isinstance(one, SystemMessage)]
    temperature = given.get("temperature", getattr(model, "temperature", None))
    return ModelRequest(
        model=_name(model, stop, given),
        system="\n\n".join(systems),
        messages=_conversation(messages),
        tools=[tool_spec(one) for one in given.get("tools") or ()],
        schema=_schema(given.get("response_format")),
        temperature=temperature if isinstance(temperature, int | float) else None,
        parameters={"stop_sequences": list(stop)} if stop else {},
    )


def _name(model: Any, stop: list[str] | None, given: Mapping[str, Any]) -> str:
    known: Any = model._get_ls_params(stop=stop, **given)
    provider = str(known.get("ls_provider") or type(model).__name__.lower())
    return f"{PROVIDERS.get(provider, provider)}:{known.get('ls_model_name') or type(model).__name__}"


def _conversation(messages: Sequence[BaseMessage]) -> list[Message]:
    found: list[Message] = []
    for one in messages:
        if isinstance(one, SystemMessage):
            continue
        if isinstance(one, AIMessage):
            found.append(Message("assistant", _parts(one)))
        elif isinstance(one, ToolMessage):
            output = _output(one)
            if found and isinstance(found[-1].parts[-1], ToolOutput):
                found[-1] = Message("user", [*found[-1].parts, output])
            else:
                found.append(Message("user", [output]))
        elif isinstance(one, FunctionMessage):
            found.append(Message("user", [Text(f"{one.name}: {_text(one)}")]))
        else:
            found.append(Message("user", [Text(_text(one))]))
    return found


def _parts(message: AIMessage) -> list[Part]:
    text = _text(message)
    return [*([Text(text)] if text else []), *_uses(message)] or [Text("")]


def _uses(message: AIMessage) -> list[ToolUse]:
    fine = [ToolUse(one["id"] or "", one["name"], show_value(one["args"])) for one in message.tool_calls]
    faulty = [
        ToolUse(one["id"] or "", one["name"] or "", one["args"], fault=one["error"] or "the input is not valid JSON")
        for one in message.invalid_tool_calls
    ]
    return [*fine, *faulty]


def _output(message: ToolMessage) -> ToolOutput:
    text = _text(message)
    if message.status == "error":
        return ToolOutput(message.tool_call_id, error=Failure("tool.failed", text))
    return ToolOutput(message.tool_call_id, output=text)


def _text(message: BaseMessage) -> str:
    content: Any = message.content
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content:
        if isinstance(block, str):
            texts.append(block)
        elif block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif block.get("type") not in ("tool_use", "tool_call", "function_call", "thinking", "reasoning"):
            texts.append(f"[{block.get('type')}]")
    return "".join(texts)


def tool_spec(tool: Any) -> ToolSpec:
    """Return a tool in any form of LangChain as a model sees it."""
    try:
        function: Any = convert_to_openai_tool(tool).get("function")
    except (ValueError, TypeError):
        function = None
    if function is None:
        # A tool of the provider, such as its search on the web.
        known = tool if isinstance(tool, dict) else {}
        return ToolSpec(str(known.get("name") or known.get("type") or type(tool).__name__))
    return ToolSpec(function["name"], function.get("description", ""), function.get("parameters", {}))


HOSTED = (
    *("web_search", "web_fetch", "code_execution", "code_interpreter", "file_search", "image_generation", "mcp"),
    *("google_search", "google_maps", "url_context"),
)
"""How the types of tools begin that providers call themselves. Others, such as ``bash``, are called by the graph."""


def hosted_tools(given: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools in the arguments of a turn that the provider calls itself."""
    kinds = [one for one in given.get("tools") or () if isinstance(one, dict) and "function" not in one]
    found = [one for one in kinds if str(one.get("type") or next(iter(one), "")).startswith(HOSTED)]
    return [str(one.get("name") or one.get("type") or next(iter(one))) for one in found]


def _schema(form: Any) -> dict[str, JSON] | None:
    return form.get("json_schema", {}).get("schema") if isinstance(form, dict) else None  # pyright: ignore


def reply_of(result: ChatResult, provider: str) -> TurnReply:
    """Return the reply of a turn, with all that the chat model has returned as its ``native``."""
    generation = result.generations[0]
    message: Any = generation.message
    if not isinstance(message, AIMessage):
        raise TypeError(f"the model has returned a {type(message).__name__}, not an AIMessage")
    known: Any = message.response_metadata
    stop_reason = known.get("stop_reason") or known.get("finish_reason") or known.get("done_reason")
    return TurnReply(
        text=_text(message),
        tool_calls=_uses(message),
        usage=_usage(message.usage_metadata or {}),
        stop_reason=str(stop_reason or ""),
        response_id=known.get("id") or message.id,
        response_model=known.get("model_name") or known.get("model"),
        provider=provider,
        native={
            "message": encode(message),
            "generation_info": encode(generation.generation_info),
            "llm_output": encode(result.llm_output),
        },
    )


def _usage(used: Mapping[str, Any]) -> Usage:
    details = used.get("input_token_details") or {}
    return Usage(
        used.get("input_tokens", 0),
        used.get("output_tokens", 0),
        details.get("cache_read") or 0,
        details.get("cache_creation") or 0,
    )


def result_of(turn: ModelResult, id: str, given: Mapping[str, Any]) -> ChatResult:
    """Return the result of a recorded turn. A turn that a script has answered becomes a message with ``id``."""
    native: Any = turn.native
    if native is None:
        return ChatResult(generations=[ChatGeneration(message=_to_ai_message(turn, id, given))])
    generation = ChatGeneration(
        message=decode(native["message"]), generation_info=decode(native["generation_info"]) or None
    )
    return ChatResult(generations=[generation], llm_output=decode(native["llm_output"]))


def _to_ai_message(turn: ModelResult, id: str, given: Mapping[str, Any]) -> AIMessage:
    calls = [{"id": use.id, "name": use.tool, "args": use.input, "type": "tool_call"} for use in turn.tool_calls]
    text = turn.text
    if turn.data is not None and not calls:
        tools = [tool_spec(one).name for one in given.get("tools") or ()]
        if len(tools) == 1 and given.get("tool_choice"):
            # With a forced tool LangChain asks for an answer that fits a schema.
            calls = [{"id": f"call-{id}", "name": tools[0], "args": turn.data, "type": "tool_call"}]
        else:
            text = text or msgspec.json.encode(turn.data).decode()
    usage = turn.usage
    return AIMessage(
        content=text,
        tool_calls=calls,
        id=id,
        response_metadata={"model_name": turn.response_model, "finish_reason": turn.stop_reason},
        usage_metadata={
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.tokens,
        },
    )
