"""The store of keys and credentials: a key-value bucket beside the log, with hashes and encrypted secrets."""

import base64
from collections.abc import Awaitable
from typing import Any, TypeVar

from callboard.bus.errors import CallboardError
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.key_value import Conflict, KeyValueStore
from callboard.bus.nats.stream import bucket_of
from callboard.bus.subjects import is_name, token

T = TypeVar("T")

NOTHING_THERE = frozenset({10037, 10059})
"""Error codes of the server for a missing message and a missing stream."""

REMOVED = (b"KV-Operation:", b"Nats-Marker-Reason:")
"""Headers that mark the message in place of a removed document."""

TRIES_MAX = 10
"""How often a change is retried when another process changes the same document."""


class StoreSilent(CallboardError):
    """The bucket of keys and credentials does not answer."""

    def __init__(self, why: str) -> None:
        message = f"the store of keys and credentials does not answer: {why}"
        super().__init__("log.unavailable", message, remedy="Check the NATS server, and try again.")


class AccessStore:
    """The documents of one kind (``key``, ``credential`` …) that a tenant has, by name."""

    def __init__(self, log: JetStreamLog, tenant: str, kind: str, replicas: int = 1) -> None:
        self._log = log
        self._bucket = bucket_of(log.subjects, "DESK")
        self._kept = KeyValueStore(log.nc, self._bucket, replicas)
        self._prefix = f"{kind}.{token(tenant)}"

    async def get(self, *names: str) -> bytes | None:
        """Return a document, None if it does not exist.

        :raises StoreSilent: if the store does not answer
        """
        if not all(map(is_name, names)):
            return None  # no document can have such a name
        found = await self._wait_for_answer(self._kept.get(self._key(names)))
        return found.value if found is not None else None

    async def put(self, value: bytes, *names: str) -> None:
        """Store a document, replacing one of this name.

        :raises ValueError: if a name is invalid
        :raises StoreSilent: if the store does not answer, or other processes keep changing the document
        """
        for _ in range(TRIES_MAX):
            before = await self._wait_for_answer(self._kept.get(self._key(names)))
            try:
                revision = before.revision if before is not None else 0
                return await self._wait_for_answer(self._kept.put(self._key(names), value, revision))
            except Conflict:
                continue
        raise StoreSilent("other processes keep changing the same document")

    async def replace(self, before: bytes, value: bytes, *names: str) -> bool:
        """Replace the document of this name if it still equals ``before``; return whether it did.

        :raises StoreSilent: if the store does not answer
        """
        found = await self._wait_for_answer(self._kept.get(self._key(names)))
        if found is None or found.value != before:
            return False
        try:
            await self._wait_for_answer(self._kept.put(found.key, value, found.revision))
        except Conflict:
            return False
        return True

    async def add(self, value: bytes, *names: str) -> bool:
        """Store a document unless one of this name exists; return whether it was stored.

        :raises ValueError: if a name is invalid
        :raises StoreSilent: if the store does not answer
        """
        try:
            await self._wait_for_answer(self._kept.put(self._key(names), value, 0))
        except Conflict:
            return False
        return True

    async def remove(self, *names: str) -> bool:
        """Remove a document; return whether it existed.

        :raises StoreSilent: if the store does not answer, or other processes keep changing the document
        """
        if not all(map(is_name, names)):
            return False
        for _ in range(TRIES_MAX):
            found = await self._wait_for_answer(self._kept.get(self._key(names)))
            if found is None:
                return False
            try:
                await self._wait_for_answer(self._kept.delete(found.key, found.revision))
            except Conflict:
                continue
            return True
        raise StoreSilent("other processes keep changing the same document")

    async def all(self) -> list[bytes]:
        """Return all documents, read one by one from the stream's leader.

        The answer has to be current: a tenant without any key admits callers without one.

        :raises StoreSilent: if the store does not answer
        """
        found: list[bytes] = []
        after = 0
        while (answer := await self._next(after + 1)) is not None:
            after = answer["seq"]
            headers = base64.b64decode(answer.get("hdrs", ""))
            if not any(mark in headers for mark in REMOVED):
                found.append(base64.b64decode(answer.get("data", "")))
        return found

    async def _next(self, sequence: int) -> dict[str, Any] | None:
        """Return the next message of these documents from the stream's leader; None after the last one."""
        asked = {"seq": sequence, "next_by_subj": f"$KV.{self._bucket}.{self._prefix}.>"}
        try:
            answer = await api(self._log.requests, f"STREAM.MSG.GET.KV_{self._bucket}", asked)
        except NoAnswer as error:
            raise StoreSilent(str(error)) from error
        error = answer.get("error")
        if error is None:
            return answer["message"]
        if error.get("err_code") in NOTHING_THERE:
            return None
        raise StoreSilent(str(error.get("description")))

    def _key(self, names: tuple[str, ...]) -> str:
        return ".".join([self._prefix, *map(token, names)])

    async def _wait_for_answer(self, asked: Awaitable[T]) -> T:
        try:
            return await asked
        except NoAnswer as error:
            raise StoreSilent(str(error)) from error
