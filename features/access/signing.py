"""The signing key of a tenant, which links and vouchers are signed with. It is in the store of keys."""

import hmac
import secrets
from functools import partial
from hashlib import sha256

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.access.store import AccessStore

KEY_BYTES = 32


class SigningKey:
    """Signs in the name of one tenant. ``purpose`` begins the signed bytes: no signature is valid for another one."""

    def __init__(self, log: JetStreamLog, tenant: str, replicas: int, purpose: bytes) -> None:
        self._open_store = partial(AccessStore, log, tenant, "links", replicas)
        self._purpose = purpose
        self._key: bytes | None = None

    async def sign(self, said: bytes) -> bytes:
        """Return the signature of some bytes.

        :raises StoreSilent: if the store does not answer
        """
        if self._key is None:
            store = self._open_store()
            if (kept := await store.get("key")) is None:
                # Several processes may create the key at the same moment: the first one is kept.
                await store.add(secrets.token_bytes(KEY_BYTES), "key")
                kept = await store.get("key")
            assert kept is not None
            self._key = kept
        return hmac.digest(self._key, self._purpose + said, sha256)

    async def has_signed(self, said: bytes, signature: bytes) -> bool:
        """Whether a signature is valid for some bytes.

        :raises StoreSilent: if the store does not answer
        """
        return hmac.compare_digest(signature, await self.sign(said))
