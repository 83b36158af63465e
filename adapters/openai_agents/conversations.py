"""The SDK's conversations as messages and tools of the log.

The input of a request is a list of items in the format of the Responses API. Messages, calls and their outputs are
messages of the log; the JSON of any other item that a user gives, such as an image, becomes text. Other items of the
model, such as its reasoning, are left out: the turn that has produced them has them in its `native` message.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar

from agents import FunctionTool, Handoff, Tool, TResponseInputItem

from callboard.bus.effects import Message, Part, Text, ToolOutput, ToolSpec, ToolUse
from callboard.languages.python.values import plain_json
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

INVALID_ARGUMENTS = "the arguments are not valid JSON"
"""The fault of a call whose arguments cannot be parsed."""

_OF_THE_MODEL = frozenset({"reasoning", "compaction", "mcp_list_tools", "mcp_approval_request"})
"""Types of items that come from the model, besides those that end in ``_call``."""


def messages_of(items: Iterable[TResponseInputItem]) -> list[Message]:
    """Return the messages of a list of items; consecutive items of one role are one message."""
    messages: list[Message] = []
    for item in items:
        role, parts = _read_item(plain_json(item))
        if not parts:
            continue
        if messages and messages[-1].role == role:
            messages[-1].parts.extend(parts)
        else:
            messages.append(Message(role, parts))
    return messages


def _read_item(item: JSON) -> tuple[Any, list[Part]]:
    match item:
        case {"type": "function_call", "call_id": str(id), "name": str(name), "arguments": str(arguments)}:
            return "assistant", [tool_use(id, name, arguments)]
        case {"type": "function_call_output", "call_id": str(id), "output": output}:
            return "user", [ToolOutput(id, output=output)]
        case {"role": str(role), "content": content} if item.get("type", "message") == "message":
            return ("assistant" if role == "assistant" else "user"), _content_parts(content)
        case {"type": str(kind)} if kind in _OF_THE_MODEL or kind.endswith("_call"):
            return "assistant", []
        case _:
            return "user", [_as_text(item)]


def _content_parts(content: JSON) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)]
    return [_content_part(part) for part in content] if isinstance(content, list) else [_as_text(content)]


def _content_part(part: JSON) -> Part:
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return Text(text)
        case {"type": "refusal", "refusal": str(text)}:
            return Text(text)
        case _:
            return _as_text(part)


def _as_text(value: JSON) -> Text:
    return Text(canonical(value).decode())


def tool_use(id: str, name: str, arguments: str) -> ToolUse:
    """Return the call of a tool with the arguments that a model wrote, as JSON text."""
    try:
        given = decode_json(arguments) if arguments.strip() else {}
    except JSON_ERRORS:
        return ToolUse(id, name, arguments, fault=INVALID_ARGUMENTS)
    return ToolUse(id, name, given)


def specs_of(tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]]) -> list[ToolSpec]:
    """Return the tools and handoffs that a model may call. Those that its provider carries out have no schema."""
    return [
        *map(_spec, tools),
        *(ToolSpec(one.tool_name, one.tool_description, one.input_json_schema) for one in handoffs),
    ]


def _spec(tool: Tool) -> ToolSpec:
    if isinstance(tool, FunctionTool):
        return ToolSpec(tool.qualified_name, tool.description, tool.params_json_schema)
    return ToolSpec(tool.name, f"{type(tool).__name__} of the provider")


def continues(items: Sequence[JSON], earlier: Sequence[JSON]) -> bool:
    """Return whether a conversation begins with all items of an earlier one."""
    return len(items) > len(earlier) and list(items[: len(earlier)]) == list(earlier)


T = TypeVar("T")


class CancelledItself(Exception):
    """Code in the worker has raised `asyncio.CancelledError` although nobody has cancelled it."""


async def in_context(variables: Context, perform: Callable[[], Awaitable[T]]) -> T:
    """Await a coroutine in the worker with the context variables of the workflow that the worker has not set itself.

    The SDK keeps settings of a request in context variables.

    :raises CancelledItself: if it is cancelled, and the caller is not
    """
    context = copy_context()
    for variable, value in variables.items():
        if variable not in context:
            context.run(variable.set, value)

    async def begin() -> T:
        return await perform()

    task = asyncio.get_running_loop().create_task(begin(), context=context)
    try:
        return await task
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if own is not None and own.cancelling():
            raise
        raise CancelledItself from None
