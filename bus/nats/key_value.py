"""Small documents on JetStream: a key-value bucket next to the log, created when first needed."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import anyio
from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import Header, KeyValueConfig
from nats.js.errors import BadRequestError, BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KV_OP, KV_PURGE, MSG_ROLLUP_SUBJECT, KeyValue

from callboard.bus.log.port import NoAnswer

T = TypeVar("T")

ANSWER_S = 10.0
"""How long the server may take for a document."""

LIST_S = 30.0
"""How long the server may take for all documents with a prefix."""

READ_TRIES = 5
"""How often documents are read if fewer arrive than there are."""

WRONG_SEQUENCE = frozenset({10071, 10164})
"""The server's error codes for a document whose revision is not the expected one."""

MARKER_TTL_S = 24 * 3_600.0
"""How long the server remembers that a document was removed."""


class Conflict(Exception):
    """A document does not have the expected revision."""


class KeyValueEntry(NamedTuple):
    """A document as it is stored."""

    key: str
    value: bytes
    revision: int


class KeyValueStore:
    """Documents in a bucket that all workers of the same stream share.

    Every method raises ``unavailable`` with the reason if the server does not answer, or answers with an error.
    """

    def __init__(
        self, nc: Client, bucket: str, replicas: int, unavailable: Callable[[str], Exception] = NoAnswer
    ) -> None:
        self._unavailable = unavailable
        self._nc = nc
        self._bucket = bucket
        self._replicas = replicas
        self._open: KeyValue | None = None

    async def get(self, key: str) -> KeyValueEntry | None:
        bucket = await self._open_bucket()
        try:
            found = await self._wait_for_answer(bucket.get(key), KeyNotFoundError)
        except KeyNotFoundError:
            return None
        return KeyValueEntry(key, found.value or b"", found.revision or 0)

    async def put(self, key: str, value: bytes, revision: int) -> None:
        bucket = await self._open_bucket()
        try:
            if revision:
                await self._wait_for_answer(bucket.update(key, value, last=revision), KeyWrongLastSequenceError)
            else:
                await self._wait_for_answer(bucket.create(key, value), KeyWrongLastSequenceError)
        except KeyWrongLastSequenceError as error:
            raise Conflict from error

    async def delete(self, key: str, revision: int) -> None:
        await self._open_bucket()
        # The headers of the client's own purge, and the expected revision, which that does not support.
        headers = {KV_OP: KV_PURGE, Header.ROLLUP.value: MSG_ROLLUP_SUBJECT}
        headers[Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value] = str(revision)
        subject = f"$KV.{self._bucket}.{key}"
        marker = self._nc.jetstream().publish(subject, headers=headers, msg_ttl=MARKER_TTL_S)
        try:
            await self._wait_for_answer(marker, BadRequestError)
        except BadRequestError as error:
            if error.err_code in WRONG_SEQUENCE:
                raise Conflict from error
            raise self._unavailable(str(error)) from error

    async def below(self, prefix: str) -> list[KeyValueEntry]:
        return await self._list_entries(prefix)

    async def keys(self, prefix: str) -> list[str]:
        return [entry.key for entry in await self._list_entries(prefix, meta_only=True)]

    async def _list_entries(self, prefix: str, meta_only: bool = False) -> list[KeyValueEntry]:
        bucket = await self._open_bucket()
        return sorted(await self._wait_for_answer(self._read(bucket, prefix, meta_only), patience_s=LIST_S))

    async def _read(self, bucket: KeyValue, prefix: str, meta_only: bool) -> list[KeyValueEntry]:
        """Read as many entries as the server counts: the client may end a watch before the first entry has arrived."""
        subjects = f"$KV.{self._bucket}.{prefix}.>"
        for _ in range(READ_TRIES):
            info = await self._nc.jetstream().stream_info(f"KV_{self._bucket}", subjects_filter=subjects)
            found = await self._watch_entries(bucket, prefix, meta_only)
            if len(found) >= len(info.state.subjects or {}):
                # A removed document leaves a marker.
                kept = [entry for entry in found if entry.operation is None]
                return [KeyValueEntry(entry.key, entry.value or b"", entry.revision or 0) for entry in kept]
        raise self._unavailable("fewer documents arrived than the server counts")

    async def _watch_entries(self, bucket: KeyValue, prefix: str, meta_only: bool) -> list[KeyValue.Entry]:
        watcher = await bucket.watch(f"{prefix}.>", meta_only=meta_only)
        found: list[KeyValue.Entry] = []
        try:
            # A None follows the last of the existing entries.
            while isinstance(entry := await watcher.updates(timeout=LIST_S), KeyValue.Entry):
                found.append(entry)
        finally:
            with anyio.CancelScope(shield=True):
                await watcher.stop()
        return found

    async def _open_bucket(self) -> KeyValue:
        if self._open is None:
            js = self._nc.jetstream()
            try:
                self._open = await self._wait_for_answer(js.key_value(self._bucket), BucketNotFoundError)
            except BucketNotFoundError:
                config = KeyValueConfig(self._bucket, replicas=self._replicas, limit_marker_ttl=MARKER_TTL_S)
                try:
                    self._open = await self._wait_for_answer(js.create_key_value(config), BadRequestError)
                except BadRequestError:
                    # Another worker was faster. Its bucket is as good, whatever its configuration.
                    self._open = await self._wait_for_answer(js.key_value(self._bucket))
        return self._open

    async def _wait_for_answer(self, asked: Awaitable[T], *but: type[Exception], patience_s: float = ANSWER_S) -> T:
        """Wait for the server's answer; its errors are failures, except those of the types ``but``."""
        try:
            with anyio.fail_after(patience_s):
                return await asked
        except (Error, TimeoutError, OSError) as error:
            if isinstance(error, but):
                raise
            raise self._unavailable(str(error) or type(error).__name__) from error
