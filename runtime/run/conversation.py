"""Conversations: convert an announced model call into the complete turn that a model adapter receives."""

from callboard.actors.models.model import ModelTurn
from callboard.bus.conversation import NodeResults, assemble_request
from callboard.runtime.interpreter.waits import PendingEffect


def model_turn(effect: PendingEffect, memory: NodeResults, idempotency_key: str) -> ModelTurn:
    """Resolve an announced model call into the complete request: earlier turns, recalled values, tool outputs."""
    key = effect.event.key
    call = effect.node.calls[key]
    request = assemble_request(effect.node, key, memory)
    return ModelTurn(
        model=call.model,
        path=effect.event.path,
        key=key,
        ordinal=effect.ordinal,
        ordinal_of_id=effect.ordinal_of_id,
        idempotency_key=idempotency_key,
        purpose=call.purpose,
        system=request.system,
        messages=request.messages,
        tools=request.tools,
        schema=request.schema,
        choices=call.choices,
        evaluator=call.evaluator,
        max_output_tokens=call.max_output_tokens,
        temperature=call.temperature,
        parameters=call.parameters,
    )
