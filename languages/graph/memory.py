"""Memory of agents: what is asked of whoever keeps it. It is outside of the log, and reached by effects.

The request of an effect of kind ``memory`` is::

    {"operation": "get_context" | "store" | "summarize" | "<one of the node's own>",
     "memory": {"id": "<node id>", "subtype": "…", "configurations": {…}},
     "scope": {"workflow_id": "…", "user_id": "…", "execution_id": "…"},
     …}

- ``get_context`` brings ``query`` (the user's message) and ``limit``, and is answered with ``{"messages": [{"role",
  "content"}], "context": "<text>"}``, either of which may be missing: what precedes the message, and what is told of.
- ``store`` brings ``messages`` (the user's and the answer), ``text`` (both as one), ``metadata``. It may be answered
  with ``{"to_summarize": {"messages": […], "summary": "<the one before>", "from": …}}``: then a model makes the
  summary, and
- ``summarize`` brings it back as ``summary``, with the ``count`` of messages that it represents, and ``from`` as it was
  answered, if it was.
- A node's own operation brings its ``input``, and is answered with the node's payload.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Message, ModelRequest, Text, user
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.topology import GraphNode
from callboard.languages.graph.turn_parameters import exact_model
from callboard.languages.graph.work import Work
from callboard.languages.language import Failed
from callboard.languages.patience import patient_turn
from callboard.lib.json_types import JSON

HISTORY_MAX = 20
"""How many earlier messages precede the user's."""

UNREACHED = "graph.memory"
"""The code of the warning that a memory could not be read or written."""

_SUMMARIZE = "Fold these messages of a conversation into a summary that keeps what matters for going on with it."


class Remembered(Struct, frozen=True):
    """What memories say before a turn: earlier messages, and texts for the system prompt."""

    messages: list[Message]
    context: list[str]


def request(work: Work, memory: GraphNode, operation: str, **more: JSON) -> dict[str, JSON]:
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


async def recall(work: Work, memories: Sequence[GraphNode], query: str) -> Remembered:
    """Ask memories for what concerns a message; one that does not answer is warned of."""
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
    return Remembered(messages[-HISTORY_MAX:], context)


async def remember(work: Work, memories: Sequence[GraphNode], said: str, answer: JSON, metadata: JSON) -> None:
    """Have memories keep a message and its answer; none that fails is fatal."""
    told = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    messages: list[JSON] = [{"role": "user", "content": said}, {"role": "assistant", "content": told}]
    text = f"User: {said}\nAssistant: {told}"
    for index, memory in enumerate(memories):
        stored = request(work, memory, "store", messages=messages, text=text, metadata=metadata)
        kept = await _ask_memory(work, f"memory.store.{index}", memory, stored)
        match kept:
            case {"to_summarize": {"messages": list() as old, **rest}} if old:
                await _summarize(work, memory, index, old, rest)
            case _:
                pass


async def _ask_memory(work: Work, slot: str, memory: GraphNode, request: dict[str, JSON]) -> JSON:
    outcome = await work.node.call(slot, "memory", request)
    if isinstance(outcome, Failed):
        reason = f"{request['operation']} of {memory.id} failed: {outcome.error.message or outcome.error.code}"
        work.node.warn(UNREACHED, reason, [memory.id])
        return None
    return outcome.value


async def _summarize(work: Work, memory: GraphNode, index: int, old: list[Any], rest: Mapping[str, Any]) -> None:
    """Have the run's model fold the oldest messages into the summary, and the memory keep that instead of them."""
    lines = [f"{text_of(one.get('role'))}: {text_of(one.get('content'))}" for one in old if isinstance(one, Mapping)]
    before = text_of(rest.get("summary"))
    told = "\n".join([f"The summary so far: {before}", *lines] if before else lines)
    asked = ModelRequest(purpose="summarize", model=model_of(work), system=_SUMMARIZE, messages=[user(told)])
    _slot, outcome = await patient_turn(work.metered_node, f"summarize.{index}", asked)
    if isinstance(outcome, Failed):
        work.node.warn(UNREACHED, f"no summary for {memory.id}: {outcome.error.message}", [memory.id])
        return
    came = {"from": rest["from"]} if "from" in rest else {}
    kept = request(work, memory, "summarize", summary=outcome.value.text, count=len(old), **came)
    await _ask_memory(work, f"memory.summary.{index}", memory, kept)


def model_of(work: Work) -> str | None:
    """Return an agent's model, with its provider; None for the run's default."""
    return exact_model(work.spec, work.text("model").strip()) or None


def _messages(listed: list[Any]) -> list[Message]:
    """Read earlier messages; what is neither the user's nor the assistant's is the user's."""
    found: list[Message] = []
    for one in listed:
        content = text_of(one.get("content")) if isinstance(one, Mapping) else ""
        if content:
            found.append(Message("assistant" if one.get("role") == "assistant" else "user", [Text(content)]))
    return found
