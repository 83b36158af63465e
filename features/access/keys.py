"""API keys, stored as hashes, each with scopes and the name under which the log records its holder.

A key has 256 random bits: it cannot be guessed, so a plain SHA-256 is as safe as a slow hash. The stored hash does not
grant access.
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
from callboard.features.access.store import AccessStore
from callboard.features.access.subject import Scope, Subject

PREFIX = "cbk_"
"""Prefix of every key, by which scanners find leaked keys."""

_KEY = re.compile(r"cbk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")

NAME_CHARS_MAX = 80

ANY_FRESH_S = 2.0
"""How long the answer that a tenant has no key is cached."""


class ApiKey(Struct, frozen=True, omit_defaults=True):
    """A stored key; ``hash`` is the SHA-256 of its secret part, in hex."""

    id: str
    name: str
    hash: str
    scopes: list[Scope]
    created_at: dt.datetime
    expires_at: dt.datetime | None = None
    roles: list[str] = []

    @property
    def subject(self) -> Subject:
        return Subject(f"key:{self.name}", frozenset(self.scopes), roles=frozenset(self.roles))


class KeyExists(CallboardError):
    """A key of this name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__("keys.exists", f"the key {name!r} exists already", remedy="Choose another name, or remove it.")


class ApiKeyUnknown(CallboardError):
    """No key has this name."""

    def __init__(self, name: str) -> None:
        super().__init__("keys.unknown", f"unknown key: {name!r}", remedy="See `callboard keys list`.")


class ApiKeys:
    """The API keys of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, replicas: int = 1) -> None:
        self._store = AccessStore(log, tenant, "key", replicas)
        self._names = AccessStore(log, tenant, "keyname", replicas)
        self._none_until = 0.0
        self._some = False

    async def add(
        self,
        name: str,
        scopes: Sequence[Scope],
        now: dt.datetime,
        expires_at: dt.datetime | None = None,
        roles: Sequence[str] = (),
    ) -> tuple[str, ApiKey]:
        """Create a key; return its secret text, which cannot be shown again, and the stored key.

        :raises KeyExists: if a key of this name exists
        :raises StoreSilent: if the store does not answer
        """
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        key = ApiKey(id, name, _hash(secret), list(scopes), now, expires_at, list(roles))
        if not await self._names.add(id.encode(), name):
            raise KeyExists(name)
        await self._store.put(msgspec.json.encode(key), id)
        return f"{PREFIX}{id}_{secret}", key

    async def all(self) -> list[ApiKey]:
        """Return all keys, the oldest first.

        :raises StoreSilent: if the store does not answer
        """
        found = [msgspec.json.decode(each, type=ApiKey) for each in await self._store.all()]
        return sorted(found, key=lambda key: key.created_at)

    async def any(self) -> bool:
        """Whether the tenant has a key; a new key may be overlooked for `ANY_FRESH_S`.

        :raises StoreSilent: if the store does not answer
        """
        if not self._some and anyio.current_time() >= self._none_until:
            self._some = bool(await self._store.all())
            self._none_until = anyio.current_time() + ANY_FRESH_S
        return self._some

    async def remove(self, name: str) -> None:
        """Remove a key; requests with it are refused from then on.

        :raises ApiKeyUnknown: if no key has this name
        :raises StoreSilent: if the store does not answer
        """
        id = await self._names.get(name)
        if id is None:
            raise ApiKeyUnknown(name)
        await self._store.remove(id.decode())
        await self._names.remove(name)

    async def find_key(self, brought: str, now: dt.datetime) -> ApiKey | None:
        """Return the stored key of a request's bearer token; None if it is unknown, removed or expired.

        :raises StoreSilent: if the store does not answer
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
