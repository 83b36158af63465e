"""Rare effect kinds of one worker: code, memories, actions and messages of external services.

Each is imported and opened when a run uses it for the first time, so a worker starts without them.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from nats.aio.client import Client

from callboard.actors.carrier import CarryEffect, Job
from callboard.actors.credentials import Account
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.stream import bucket_of
from callboard.lib.json_types import JSON
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.model_selection import STAND_INS, Models

if TYPE_CHECKING:
    from callboard.actors.kinds.channel import Channels, LinkTo
    from callboard.actors.kinds.code import CodeSandboxes
    from callboard.actors.kinds.memory import Memory
    from callboard.actors.kinds.service import ServiceConnections
    from callboard.actors.memory.exact import Exact
    from callboard.actors.memory.pgvector import PgVector
    from callboard.actors.memory.qdrant import Qdrant
    from callboard.bus.nats.key_value import KeyValueStore


class RareKinds:
    """The kinds of one worker, shared by its runs."""

    def __init__(self, config: Config, nc: Client, log: JetStreamLog, env: Mapping[str, str], models: Models) -> None:
        self._config = config
        self._nc = nc
        self._bucket = bucket_of(log.subjects)
        self._env = env
        self._models = models
        self._closing: list[Callable[[], Awaitable[None]]] = []

    def of_run(self, model: str, account: Account, link: "LinkTo", env: Mapping[str, str]) -> Mapping[str, CarryEffect]:
        """Return the kinds of a run with this model and account; it may use the variables in ``env``."""

        async def code(job: Job, request: JSON) -> tuple[JSON, JSON]:
            return await self._code.carry(job, request)

        async def memory(job: Job, request: JSON) -> tuple[JSON, JSON]:
            return await self._memory(model).carry(job, request)

        async def service(job: Job, request: JSON) -> tuple[JSON, JSON]:
            return await self._services.carry(job, request, account=account, env=env)

        async def channel(job: Job, request: JSON) -> tuple[JSON, JSON]:
            return await self._channels.carry(job, request, account=account, link=link, env=env)

        return {"code": code, "memory": memory, "service": service, "channel": channel}

    async def aclose(self) -> None:
        """Close the kinds that were opened."""
        for close in self._closing:
            await close()

    @cached_property
    def _code(self) -> "CodeSandboxes":
        from callboard.actors.kinds.code import CodeSandboxes

        code = CodeSandboxes(self._config.code)
        self._closing.append(code.aclose)
        return code

    @cached_property
    def _services(self) -> "ServiceConnections":
        from callboard.actors.kinds.service import ServiceConnections

        return ServiceConnections(self._env)

    @cached_property
    def _channels(self) -> "Channels":
        from callboard.actors.kinds.channel import Channels

        return Channels(self._env)

    @cached_property
    def _key_values(self) -> "KeyValueStore":
        from callboard.actors.memory.store import Unavailable
        from callboard.bus.nats.key_value import KeyValueStore

        return KeyValueStore(self._nc, self._bucket, self._config.replicas, Unavailable)

    @cached_property
    def _texts(self) -> "Exact | PgVector | Qdrant":
        texts = self._open_texts()
        self._closing.append(texts.aclose)
        return texts

    def _open_texts(self) -> "Exact | PgVector | Qdrant":
        settings = self._config.vectors
        match settings.store:
            case "jetstream":
                from callboard.actors.memory.exact import Exact

                return Exact()
            case "qdrant":
                from callboard.actors.memory.qdrant import Qdrant

                return Qdrant(settings.url, settings.key.get_secret_value(), self._bucket)
            case "pgvector":
                from callboard.actors.memory.pgvector import PgVector

                return PgVector(settings.url, settings.key.get_secret_value(), self._bucket)

    def _memory(self, model: str) -> "Memory":
        """The memories of a run with this model. If a stand-in answers for all models, no embedding model is asked."""
        from callboard.actors.kinds.memory import Memory
        from callboard.actors.memory.embedders import Embedders

        if model.partition(":")[0] in STAND_INS:
            return Memory(self._key_values)
        embedders = Embedders(
            lambda spec: self._models.open(spec, {}),
            default=self._config.embedding or "",
            providers=self._models.providers,
        )
        return Memory(self._key_values, embedders, self._texts)
