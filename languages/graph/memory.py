"""The memory of agents: requests to the service that keeps it. It is outside of the log, and reached by effects.

The request of an effect of kind ``memory`` is::

    {"operation": "get_context" | "store" | "summarize" | "<one of the node's own>",
     "memory": {"id": "<node id>", "subtype": "…", "configurations": {…}},
     "scope": {"workflow_id": "…", "user_id": "…", "execution_id": "…"},
     …}

- ``get_context`` has ``query`` (the user's message) and ``limit``. The answer is ``{"messages": [{"role", "content"}],
  "context": "<text>"}``: earlier messages of the conversation, and a text for the system prompt. Both are optional.
- ``store`` has ``messages`` (the user's message and the agent's answer), ``text`` (both in one) and ``metadata``. If
  the answer is ``{"to_summarize": {"messages": […], "summary": "<the previous one>", "from": …}}``, a model writes a
  new summary, which the next operation sends.
- ``summarize`` has this ``summary``, the ``count`` of messages that it represents, and ``from`` of the answer, if the
  answer had it.
- A node's own operation has its ``input``. The answer is the node's payload.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Message, ModelRequest, Text, user
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.topology import GraphNode
from callboard.languages.graph.turn_parameters import exact_model
from callboard.languages.graph.work import NodeAttempt
from callboard.languages.language import Failed
from callboard.languages.patience import patient_turn
from callboard.lib.json_types import JSON

HISTORY_MAX = 20
"""How many earlier messages precede the user's."""

UNREACHED = "graph.memory"
"""The code of the warning that a memory could not be read or written."""

_SUMMARIZE = "Fold these messages of a conversation into a summary that keeps what matters for going on with it."


class MemoryContents(Struct, frozen=True):
    """The contents of memories before a turn: earlier messages, and texts for the system prompt."""

    messages: list[Message]
    context: list[str]


def request(work: NodeAttempt, memory: GraphNode, operation: str, **more: JSON) -> dict[str, JSON]:
    """Make the request of an operation."""
    declared = memory.spec.configurations if memory.spec is not None else {}
    defaults = {name: field.default for name, field in declared.items()}
    return {
        "operation": operation,
        "memory": {
            "id": memory.id,
            "subtype": memory.subtype,
            "configurations": {**defaults, **memory.configurations},
        },
        "scope": {
            "workflow_id": work.context.graph.id,
            "user_id": work.context.user_id,
            "execution_id": work.stage.info.execution_id,
        },
        **more,
    }


async def recall(work: NodeAttempt, memories: Sequence[GraphNode], query: str) -> MemoryContents:
    """Ask memories for the context of a message; warn of a memory that does not answer."""
    messages: list[Message] = []
    context: list[str] = []
    for index, memory in enumerate(memories):
        asked = request(work, memory, "get_context", query=query, limit=HISTORY_MAX)
        answer = await _ask_memory(work, f"memory.load.{index}", memory, asked)
        if isinstance(answer, Mapping):
            listed = answer.get("messages")
            messages += _messages(listed) if isinstance(listed, list) else []
            if text := text_of(answer.get("context")).strip():
                context.append(text)
    return MemoryContents(messages[-HISTORY_MAX:], context)


async def remember(work: NodeAttempt, memories: Sequence[GraphNode], said: str, answer: JSON, metadata: JSON) -> None:
    """Have memories keep a message and its answer; warn of a memory that fails."""
    reply = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    messages: list[JSON] = [{"role": "user", "content": said}, {"role": "assistant", "content": reply}]
    text = f"User: {said}\nAssistant: {reply}"
    for index, memory in enumerate(memories):
        stored = request(work, memory, "store", messages=messages, text=text, metadata=metadata)
        kept = await _ask_memory(work, f"memory.store.{index}", memory, stored)
        match kept:
            case {"to_summarize": {"messages": list() as old, **rest}} if old:
                await _summarize(work, memory, index, old, rest)
            case _:
                pass


async def _ask_memory(work: NodeAttempt, slot: str, memory: GraphNode, request: dict[str, JSON]) -> JSON:
    outcome = await work.node.call(slot, "memory", request)
    if isinstance(outcome, Failed):
        reason = f"{request['operation']} of {memory.id} failed: {outcome.error.message or outcome.error.code}"
        work.node.warn(UNREACHED, reason, [memory.id])
        return None
    return outcome.value


async def _summarize(work: NodeAttempt, memory: GraphNode, index: int, old: list[Any], rest: Mapping[str, Any]) -> None:
    """Have the agent's model fold the oldest messages into the summary, and the memory replace them with it."""
    lines = [f"{text_of(one.get('role'))}: {text_of(one.get('content'))}" for one in old if isinstance(one, Mapping)]
    before = text_of(rest.get("summary"))
    text = "\n".join([f"The summary so far: {before}", *lines] if before else lines)
    asked = ModelRequest(purpose="summarize", model=model_of(work), system=_SUMMARIZE, messages=[user(text)])
    _slot, outcome = await patient_turn(work.metered_node, f"summarize.{index}", asked)
    if isinstance(outcome, Failed):
        work.node.warn(UNREACHED, f"no summary for {memory.id}: {outcome.error.message}", [memory.id])
        return
    came = {"from": rest["from"]} if "from" in rest else {}
    kept = request(work, memory, "summarize", summary=outcome.value.text, count=len(old), **came)
    await _ask_memory(work, f"memory.summary.{index}", memory, kept)


def model_of(work: NodeAttempt) -> str | None:
    """Return an agent's model, with its provider; None for the run's default."""
    return exact_model(work.spec, work.text("model").strip()) or None


def _messages(listed: list[Any]) -> list[Message]:
    """Read earlier messages; every message that is not the assistant's counts as the user's."""
    found: list[Message] = []
    for one in listed:
        content = text_of(one.get("content")) if isinstance(one, Mapping) else ""
        if content:
            found.append(Message("assistant" if one.get("role") == "assistant" else "user", [Text(content)]))
    return found
