"""Memory that lasts from run to run: carries out the effect kind ``memory``.

A request is ``{"operation": …, "memory": {"id", "subtype", "configurations"}, "scope": {"workflow_id", "user_id"},
…}``: before an agent's turn ``get_context`` with ``query`` and ``limit``, after it ``store`` with ``messages``,
``text`` and ``metadata``, then possibly ``summarize`` with ``summary``, ``count`` and ``from``; a node's own operation
has ``input``. A memory belongs to a tenant, a workflow, a user and a node's id.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from callboard.actors.carrier import Job
from callboard.actors.memory.conversation import conversation
from callboard.actors.memory.embedders import EmbedderOf, counting
from callboard.actors.memory.entities import entities
from callboard.actors.memory.exact import Exact
from callboard.actors.memory.keyvalue import key_value
from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.session import session
from callboard.actors.memory.store import Store, effect_failed, place_of
from callboard.actors.memory.text_store import TextMemory, TextStore
from callboard.lib.json_types import JSON


class _Memory(msgspec.Struct, frozen=True):
    id: str
    subtype: str
    configurations: dict[str, Any] = {}


class _Scope(msgspec.Struct, frozen=True):
    workflow_id: str = ""
    user_id: str | None = None


class _Request(msgspec.Struct, frozen=True):
    operation: str
    memory: _Memory
    scope: _Scope


class Memory:
    """The memories of runs, by their subtypes."""

    def __init__(self, store: Store, embedder_of: EmbedderOf = counting, text_store: TextStore | None = None) -> None:
        self._store = store
        texts = TextMemory(text_store or Exact(), embedder_of).carry
        self._kinds: Mapping[str, Callable[[MemoryOperation], Awaitable[Any]]] = {
            "CONVERSATION_BUFFER": conversation,
            "CONVERSATION_SUMMARY": conversation,
            "KEY_VALUE_STORE": key_value,
            "VECTOR_DATABASE": texts,
            "DOCUMENT_STORE": texts,
            "EPISODIC_MEMORY": texts,
            "KNOWLEDGE_BASE": texts,
            "ENTITY_MEMORY": entities,
            "GRAPH_MEMORY": entities,
            "SESSION": session,
        }

    async def carry(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        """Carry an operation out: an effect of kind ``memory``.

        :raises EffectFailed: ``memory.malformed``, ``memory.subtype``, ``memory.operation``, ``memory.full``,
            ``memory.too_large``, ``memory.contended``, ``memory.unavailable``, ``memory.refused``,
            ``memory.dimension``, ``memory.embedder``, and ``model.…`` of the model that embeds texts
        """
        try:
            asked = msgspec.convert(request, _Request)
        except msgspec.ValidationError as error:
            raise effect_failed("memory.malformed", f"invalid memory request: {error}") from error
        kind = self._kinds.get(asked.memory.subtype)
        if kind is None:
            known = ", ".join(sorted(self._kinds))
            raise effect_failed("memory.subtype", f"unknown kind of memory {asked.memory.subtype!r}: expected {known}")
        names = (job.ref.tenant, asked.scope.workflow_id, asked.scope.user_id or "", asked.memory.id)
        brought = {name: value for name, value in request.items() if name not in ("operation", "memory", "scope")}
        value = await kind(
            MemoryOperation(
                operation=asked.operation,
                settings=asked.memory.configurations,
                store=self._store,
                place=place_of(*names),
                once=job.idempotency_key,
                at_ms=int(job.event.time.timestamp() * 1000),
                brought=brought,
                spent=job.spent,
            )
        )
        return value, None
