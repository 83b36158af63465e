"""API keys: made once, kept as hashes, each with scopes and a name that stands in the log for whoever brings it.

A key is 256 random bits, so that a plain SHA-256 of it is as good as a slow one: there is nothing to guess. What is
kept lets nobody in.
"""

import datetime as dt
import hmac
import re
import secrets
from collections.abc import Sequence
from hashlib import sha256

import anyio
import msgspec
from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.access.store import DeskStore
from callboard.features.access.subject import Scope, Subject

PREFIX = "cbk_"
"""How every key begins, so that one that has got somewhere is found."""

_KEY = re.compile(r"cbk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")

NAME_CHARS_MAX = 80

ANY_FRESH_S = 2.0
"""How long it is believed that a tenant has no key."""


class ApiKey(Struct, frozen=True, omit_defaults=True):
    """A key as it is kept; ``hash`` is the SHA-256 of its secret part, in hex."""

    id: str
    name: str
    hash: str
    scopes: list[Scope]
    created_at: dt.datetime
    expires_at: dt.datetime | None = None

    @property
    def subject(self) -> Subject:
        return Subject(f"key:{self.name}", frozenset(self.scopes))


class KeyExists(CallboardError):
    """There is a key of this name."""

    def __init__(self, name: str) -> None:
        super().__init__("keys.exists", f"there is a key {name!r} already", remedy="Choose another name, or remove it.")


class KeyUnknown(CallboardError):
    """There is no key of this name."""

    def __init__(self, name: str) -> None:
        super().__init__("keys.unknown", f"there is no key {name!r}", remedy="See `callboard keys list`.")


class Keys:
    """The API keys of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, replicas: int = 1) -> None:
        self._store = DeskStore(log, tenant, "key", replicas)
        self._names = DeskStore(log, tenant, "keyname", replicas)
        self._none_until = 0.0
        self._some = False

    async def add(
        self, name: str, scopes: Sequence[Scope], now: dt.datetime, expires_at: dt.datetime | None = None
    ) -> tuple[str, ApiKey]:
        """Make a key; return what is brought, which is told this once, and what is kept.

        :raises KeyExists: if there is one of this name
        :raises StoreSilent: if no answer came
        """
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        key = ApiKey(id, name, _hash(secret), list(scopes), now, expires_at)
        if not await self._names.add(id.encode(), name):
            raise KeyExists(name)
        await self._store.put(msgspec.json.encode(key), id)
        return f"{PREFIX}{id}_{secret}", key

    async def all(self) -> list[ApiKey]:
        """Return all keys, the oldest first.

        :raises StoreSilent: if no answer came
        """
        found = [msgspec.json.decode(each, type=ApiKey) for each in await self._store.all()]
        return sorted(found, key=lambda key: key.created_at)

    async def any(self) -> bool:
        """Whether there is a key; one that has just been made may be overlooked for `ANY_FRESH_S`.

        :raises StoreSilent: if no answer came
        """
        if not self._some and anyio.current_time() >= self._none_until:
            self._some = bool(await self._store.all())
            self._none_until = anyio.current_time() + ANY_FRESH_S
        return self._some

    async def remove(self, name: str) -> None:
        """Forget a key: nobody gets in with it any more.

        :raises KeyUnknown: if there is none of this name
        :raises StoreSilent: if no answer came
        """
        id = await self._names.get(name)
        if id is None:
            raise KeyUnknown(name)
        await self._store.remove(id.decode())
        await self._names.remove(name)

    async def known(self, brought: str, now: dt.datetime) -> ApiKey | None:
        """Return the key that somebody brings, None if it is none of ours, or no longer.

        :raises StoreSilent: if no answer came
        """
        parts = _KEY.fullmatch(brought)
        kept = await self._store.get(parts[1]) if parts is not None else None
        if parts is None or kept is None:
            return None
        key = msgspec.json.decode(kept, type=ApiKey)
        same = hmac.compare_digest(key.hash, _hash(parts[2]))
        return key if same and (key.expires_at is None or now < key.expires_at) else None


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
