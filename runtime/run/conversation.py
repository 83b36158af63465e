"""Conversations: what a model is to see in full, put together from what the log records only once."""

import msgspec

from callboard.actors.models.model import ModelTurn
from callboard.bus import events as ev
from callboard.bus.effects import Former, Message, Part, Recall, Text, ToolOutput, ToolUse
from callboard.runtime.interpreter.execution import Execution, Memory
from callboard.runtime.interpreter.waits import OpenEffect


def model_turn(effect: OpenEffect, memory: Memory, idempotency_key: str) -> ModelTurn:
    """Resolve an announced model call into the whole request: earlier turns, recalled values, tool outputs."""
    node, key = effect.node, effect.event.key
    chain = _chain(node, key)
    first = node.calls[chain[0]]
    call = node.calls[key]
    messages: list[Message] = []
    for link in chain:
        messages += [Message(message.role, _resolved(message, node, memory)) for message in node.calls[link].messages]
        if link != key:
            messages.append(_spoken(node.replies[link]))
    return ModelTurn(
        model=call.model,
        path=effect.event.path,
        key=key,
        ordinal=effect.ordinal,
        ordinal_of_id=effect.ordinal_of_id,
        idempotency_key=idempotency_key,
        purpose=call.purpose,
        system=call.system or first.system,
        messages=messages,
        tools=call.tools or first.tools,
        schema=call.schema or first.schema,
        choices=call.choices,
        evaluator=call.evaluator,
        max_output_tokens=call.max_output_tokens,
        temperature=call.temperature,
    )


def _chain(node: Execution, key: str) -> list[str]:
    """Effect keys from the first turn of a conversation to this one."""
    chain = [key]
    while (base := node.calls[chain[-1]].base) is not None:
        chain.append(base)
    return chain[::-1]


def _spoken(reply: ev.ModelResult) -> Message:
    parts: list[Part] = [Text(reply.text)] if reply.text else []
    parts += reply.tool_calls
    return Message("assistant", parts or [Text("")])


def _resolved(message: Message, node: Execution, memory: Memory) -> list[Part]:
    return [_part(part, node, memory) for part in message.parts]


def _part(part: Part, node: Execution, memory: Memory) -> Part:
    match part:
        case Text() | ToolUse():
            return part
        case Recall(of=of, at=at, plain=plain):
            return memory.exits[of].recalled(at, plain=plain)
        case Former():
            members = (f", {msgspec.json.encode(name).decode()}: {left.told()}" for name, left in memory.told.items())
            return Text("".join(members))
        case ToolOutput(id=call_id, of=of):
            result = node.outputs[of] if of is not None else None
            return part if result is None else ToolOutput(call_id, None, result.output, result.error)
