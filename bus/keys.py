"""Keys of encrypted runs, in a bucket of their own: apart from the stream, so that a copy of the log has none.

``<PREFIX>_KEYS`` is made when the first key is; its keys are ``<tenant>.<name>``. What has been destroyed leaves the
bucket's own mark, so that the name is not used again.
"""

import base64
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import anyio

from callboard.bus.asking import api
from callboard.bus.commit import Message, guarded, no_room, publish
from callboard.bus.encryption import KEY_BYTES, Key, Lack
from callboard.bus.log import NoAnswer, Refused
from callboard.bus.requests import Requests
from callboard.bus.stream import bucket_of
from callboard.bus.subjects import Subjects, token

KNOWN_S = 60.0
"""How long a process goes by what it knows of a key: so long it can still read what has been forgotten."""

LACKING_S = 1.0
"""How long it takes a key that was not there for one that is not."""

KNOWN_MAX = 1_000
"""Keys that a process holds in memory."""

_NO_MESSAGE = 10037
_NO_STREAM = 10059
_EXISTS_OTHERWISE = 10058
_OPERATION = "KV-Operation"
_PURGED = "PURGE"


class Keys:
    """The `callboard.bus.encryption.KeyRing` beside a stream."""

    def __init__(self, requests: Requests, subjects: Subjects, *, replicas: int = 1) -> None:
        self._requests = requests
        self._bucket = bucket_of(subjects, "KEYS")
        self._replicas = replicas
        self._known: OrderedDict[tuple[str, str], tuple[float, Key | Lack]] = OrderedDict()

    async def get(self, tenant: str, name: str) -> Key | Lack:
        """As `callboard.bus.encryption.KeyRing.get`."""
        until, key = self._known.get((tenant, name), (0.0, Lack.MISSING))
        if anyio.current_time() < until:
            return key
        found = await self._stored(tenant, name)
        return self._know(tenant, name, found[1] if found is not None else None)

    async def make(self, tenant: str, name: str) -> Key | None:
        """As `callboard.bus.encryption.KeyRing.make`.

        :raises Full: if there is no room for a new one
        """
        while (found := await self._stored(tenant, name)) is None:
            await self._ensure()
            subject, secret = self._subject(tenant, name), os.urandom(KEY_BYTES)
            try:
                await publish(self._requests, Message(subject, secret, guarded(0, subject)))
            except Refused:
                continue  # another worker was faster
            break
        else:
            secret = found[1]
        key = self._know(tenant, name, secret)
        return key if isinstance(key, Key) else None

    async def destroy(self, tenant: str, name: str) -> bool:
        """Destroy a key for good, overwriting it on the server's disk; say whether there was one.

        :raises NoAnswer: if no answer came
        """
        found = await self._stored(tenant, name)
        if found is None:
            return False
        sequence, secret = found
        subject = self._subject(tenant, name)
        if secret:
            # The mark first: whatever breaks this off, nobody makes another key of that name.
            headers = {_OPERATION: _PURGED, **guarded(sequence, subject)}
            sequence = await publish(self._requests, Message(subject, b"", headers))
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

    async def _stored(self, tenant: str, name: str) -> tuple[int, bytes] | None:
        """The sequence of a key and its secret, which is empty once it is destroyed; None if there never was one."""
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
        """See to it that there is a bucket.

        :raises Full: if there is no room for one
        :raises NoAnswer: if no answer came
        """
        wanted = {
            "name": f"KV_{self._bucket}",
            "description": "Callboard: the keys of encrypted runs",
            "subjects": [f"$KV.{self._bucket}.>"],
            "storage": "file",
            "num_replicas": self._replicas,
            "discard": "new",
            # A key and the mark that it has been destroyed: what the mark alone pushed out would not be overwritten.
            "max_msgs_per_subject": 2,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        answer = await api(self._requests, f"STREAM.CREATE.KV_{self._bucket}", wanted)
        if "error" in answer and answer["error"].get("err_code") != _EXISTS_OTHERWISE:
            raise no_room(answer["error"]) or NoAnswer(str(answer["error"].get("description")))

    def _subject(self, tenant: str, name: str) -> str:
        return f"$KV.{self._bucket}.{token(tenant)}.{token(name)}"
