"""A memory, asked as runs ask it."""

import datetime as dt
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from callboard.actors.carrier import EffectFailed, Job, Spent
from callboard.actors.kinds.memory import Memory
from callboard.actors.memory.embedder import Embedder
from callboard.actors.memory.embedders import ByModel, EmbedderOf, counting
from callboard.actors.memory.store import InMemory, Store, Unavailable
from callboard.actors.memory.text_store import TextStore
from callboard.actors.models.embedding_models import EmbeddingModel, EmbeddingReply, EmbeddingRequest
from callboard.bus.effects import Usage
from callboard.bus.nats.key_value import KeyValueEntry
from callboard.bus.subjects import RunRef
from tests.support.event_logs import T0


class Asking:
    """Asks a memory as effects of runs do, each with another key."""

    def __init__(
        self,
        subtype: str,
        store: Store | None = None,
        embedder_of: EmbedderOf = counting,
        text_store: TextStore | None = None,
        **settings: Any,
    ) -> None:
        self.store = store or InMemory()
        self.memory = Memory(self.store, embedder_of, text_store)
        self.subtype = subtype
        self.settings = settings
        self.asked = 0

    async def __call__(
        self,
        operation: str,
        *,
        id: str = "mem",
        user: str | None = "u",
        tenant: str = "t",
        again: bool = False,
        **more: Any,
    ) -> Any:
        self.asked += not again
        event = SimpleNamespace(time=T0 + dt.timedelta(seconds=self.asked))
        self.spent = Spent()
        names = {"ref": RunRef(tenant, "r1"), "event": event, "idempotency_key": f"{self.asked:064}"[::-1]}
        scope = {"workflow_id": "a workflow", "user_id": user, "execution_id": "r1"}
        memory = {"id": id, "subtype": self.subtype, "configurations": self.settings}
        request = {"operation": operation, "memory": memory, "scope": scope, **more}
        value, _ = await self.memory.carry(cast(Job, SimpleNamespace(**names, spent=self.spent)), request)
        return value

    async def own(self, operation: str, **input: Any) -> Any:
        return await self(operation, input=input)

    async def refused(self, operation: str, **more: Any) -> str:
        with pytest.raises(EffectFailed) as caught:
            await self(operation, **more)
        return caught.value.failure.code

    async def say(self, text: str, answer: str = "Yes.", **more: Any) -> Any:
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
        return await self("store", messages=messages, text=f"User: {text}\nAssistant: {answer}", metadata={}, **more)

    async def context(self, query: str = "", **more: Any) -> Any:
        return await self("get_context", query=query, limit=20, **more)


class Placed:
    """A model that has a place for every word it knows, and counts what it is asked."""

    provider = "placed"
    places: Mapping[str, list[float]] = {"tea": [3, 4, 0], "coffee": [4, 3, 0], "chair": [0, 0, 9]}

    def __init__(self) -> None:
        self.requests: list[EmbeddingRequest] = []

    async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        self.requests.append(request)
        vectors = [next(at for word, at in self.places.items() if word in text) for text in request.texts]
        return EmbeddingReply(vectors, Usage(len(vectors)))


def always(embedder: Embedder) -> EmbedderOf:
    """Every memory has this embedder."""

    async def of(_settings: Any) -> Embedder:
        return embedder

    return of


def placing(model: EmbeddingModel, spec: str = "placed:p") -> EmbedderOf:
    return always(ByModel(model, "p", spec, None))


TEXTS = [
    {"id": "tea", "text": "Ada drinks green tea in the morning.", "metadata": {"of": "Ada"}},
    {"id": "chair", "text": "The chair of order A-17 arrived broken.", "metadata": {"of": "Bob"}},
    {"id": "sea", "content": "Ships sail to the islands in summer."},
]


class AnswerLosingStore(InMemory):
    """Loses the answers to the first writes and to the first reads after a write; the writes take effect."""

    def __init__(self, writes: int, reads: int = 0) -> None:
        super().__init__()
        self.writes = writes
        self.reads = reads

    async def get(self, key: str) -> KeyValueEntry | None:
        if self._entries and self.reads > 0:
            self.reads -= 1
            raise Unavailable("lost")
        return await super().get(key)

    async def put(self, key: str, value: bytes, revision: int) -> None:
        await super().put(key, value, revision)
        if self.writes > 0:
            self.writes -= 1
            raise Unavailable("lost")
