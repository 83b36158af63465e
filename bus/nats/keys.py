"""Keys of encrypted runs, in a separate bucket, so that a copy of the log's stream does not contain them.

The bucket ``<PREFIX>_KEYS`` is created with the first key; its entries are ``<tenant>.<name>``. A destroyed key leaves
the bucket's delete marker, so that its name is not used again.
"""

import base64
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import anyio

from callboard.bus.log.encryption import KEY_BYTES, Key, Lack
from callboard.bus.log.port import AppendRefused, NoAnswer
from callboard.bus.nats.commit import OutgoingMessage, guard_headers, no_room, publish
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.requests import Requests
from callboard.bus.nats.stream import bucket_of
from callboard.bus.subjects import Subjects, token

KNOWN_S = 60.0
"""How long a process caches a key. For this time it can still decrypt with a key that was destroyed."""

LACKING_S = 1.0
"""How long a process caches that a key is missing or destroyed."""

KNOWN_MAX = 1_000
"""Maximum number of keys in a process's cache."""

_NO_MESSAGE = 10037
_NO_STREAM = 10059
_EXISTS_OTHERWISE = 10058
_OPERATION = "KV-Operation"
_PURGED = "PURGE"


class StreamKeys:
    """The `callboard.bus.log.encryption.KeyRing` that belongs to a stream."""

    def __init__(self, requests: Requests, subjects: Subjects, *, replicas: int = 1) -> None:
        self._requests = requests
        self._bucket = bucket_of(subjects, "KEYS")
        self._replicas = replicas
        self._known: OrderedDict[tuple[str, str], tuple[float, Key | Lack]] = OrderedDict()

    async def get(self, tenant: str, name: str) -> Key | Lack:
        """Return a key as `callboard.bus.log.encryption.KeyRing.get`."""
        until, key = self._known.get((tenant, name), (0.0, Lack.MISSING))
        if anyio.current_time() < until:
            return key
        found = await self._get_stored(tenant, name)
        return self._know(tenant, name, found[1] if found is not None else None)

    async def make(self, tenant: str, name: str) -> Key | None:
        """Return or create a key as `callboard.bus.log.encryption.KeyRing.make`.

        :raises Full: if the store has no room for a new one
        """
        while (found := await self._get_stored(tenant, name)) is None:
            await self._ensure()
            subject, secret = self._subject(tenant, name), os.urandom(KEY_BYTES)
            try:
                await publish(self._requests, OutgoingMessage(subject, secret, guard_headers(0, subject)))
            except AppendRefused:
                continue  # another worker was faster
            break
        else:
            secret = found[1]
        key = self._know(tenant, name, secret)
        return key if isinstance(key, Key) else None

    async def destroy(self, tenant: str, name: str) -> bool:
        """Destroy a key permanently, overwriting it on the server's disk; return whether it existed.

        :raises NoAnswer: if no answer came
        """
        found = await self._get_stored(tenant, name)
        if found is None:
            return False
        sequence, secret = found
        subject = self._subject(tenant, name)
        if secret:
            # Write the marker first, so that no other key gets this name even if the rest is interrupted.
            headers = {_OPERATION: _PURGED, **guard_headers(sequence, subject)}
            sequence = await publish(self._requests, OutgoingMessage(subject, b"", headers))
        while (old := await self._get({"seq": 1, "next_by_subj": subject})) is not None and old["seq"] < sequence:
            answer = await api(self._requests, f"STREAM.MSG.DELETE.KV_{self._bucket}", {"seq": old["seq"]})
            if "error" in answer and answer["error"].get("err_code") != _NO_MESSAGE:
                raise NoAnswer(str(answer["error"].get("description")))
        self._known.pop((tenant, name), None)
        return bool(secret)

    def _know(self, tenant: str, name: str, secret: bytes | None) -> Key | Lack:
        key = Lack.MISSING if secret is None else Key(name, secret) if len(secret) == KEY_BYTES else Lack.DESTROYED
        self._known[tenant, name] = anyio.current_time() + (KNOWN_S if isinstance(key, Key) else LACKING_S), key
        self._known.move_to_end((tenant, name))
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return key

    async def _get_stored(self, tenant: str, name: str) -> tuple[int, bytes] | None:
        """Return a key's sequence and secret, which is empty if it was destroyed; None if there never was a key."""
        found = await self._get({"last_by_subj": self._subject(tenant, name)})
        return (found["seq"], base64.b64decode(found.get("data", ""))) if found is not None else None

    async def _get(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        answer = await api(self._requests, f"STREAM.MSG.GET.KV_{self._bucket}", wanted)
        if "error" not in answer:
            return answer["message"]
        if answer["error"].get("err_code") in (_NO_MESSAGE, _NO_STREAM):
            return None
        raise NoAnswer(str(answer["error"].get("description")))

    async def _ensure(self) -> None:
        """Create the bucket if it does not exist.

        :raises Full: if the store has no room for one
        :raises NoAnswer: if no answer came
        """
        wanted = {
            "name": f"KV_{self._bucket}",
            "description": "Callboard: the keys of encrypted runs",
            "subjects": [f"$KV.{self._bucket}.>"],
            "storage": "file",
            "num_replicas": self._replicas,
            "discard": "new",
            # A key and its delete marker. With a limit of 1 the marker would remove the key without overwriting it.
            "max_msgs_per_subject": 2,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        answer = await api(self._requests, f"STREAM.CREATE.KV_{self._bucket}", wanted)
        if "error" in answer and answer["error"].get("err_code") != _EXISTS_OTHERWISE:
            raise no_room(answer["error"]) or NoAnswer(str(answer["error"].get("description")))

    def _subject(self, tenant: str, name: str) -> str:
        return f"$KV.{self._bucket}.{token(tenant)}.{token(name)}"
