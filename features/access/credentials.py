"""Credentials: the secrets for external services, of a tenant or one of its users, encrypted in the store of keys.

A credential is a set of the variables that a provider's adapter reads, such as ``SLACK_BOT_TOKEN``. They are decrypted
only in the worker that carries out an action, and never become part of an event.
"""

import datetime as dt
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio
import msgspec
from msgspec import Struct

from callboard.actors.credentials import ACCOUNTS, AccountUnreadable
from callboard.bus.errors import CallboardError
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.access.account import Account, OAuthFailed
from callboard.features.access.keyring import Keyring, Sealed
from callboard.features.access.store import TRIES_MAX, AccessStore, StoreSilent
from callboard.runtime.settings.oauth_settings import OAuthSettings

VALUE_BYTES_MAX = 64 * 1024

SENDER = "webhook:"
"""Provider prefix of the secrets of webhook senders; the trigger ``<definition>/<trigger>`` follows it."""


class Credential(Struct, frozen=True, omit_defaults=True):
    """A stored credential; ``user`` is empty for the tenant's own. Only ``sealed`` is secret."""

    provider: str
    user: str
    variables: list[str]
    changed_at: dt.datetime
    sealed: Sealed


class FoundAccount(NamedTuple):
    """An account, the user that owns it, and the document that it was read from."""

    whose: str
    account: Account
    document: bytes


class CredentialUnknown(CallboardError):
    """A tenant or user has no credential for this provider."""

    def __init__(self, provider: str, user: str) -> None:
        whose = f" of user {user!r}" if user else ""
        remedy = "See `callboard credentials list`."
        super().__init__("credentials.unknown", f"no credential for {provider}{whose}", remedy=remedy)


class Credentials:
    """The credentials of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, replicas: int = 1) -> None:
        self._store = AccessStore(log, tenant, "credential", replicas)
        self._tenant = tenant

    async def put(self, keyring: Keyring, provider: str, user: str, account: Account, now: dt.datetime) -> None:
        """Store a credential, replacing an earlier one.

        :raises StoreSilent: if the store does not answer
        """
        await self._store.put(self._document(keyring, provider, user, account, now), user, provider)

    async def replace(
        self, keyring: Keyring, provider: str, found: FoundAccount, account: Account, now: dt.datetime
    ) -> bool:
        """Replace an account; return False if the stored one has been changed or removed since it was read.

        :raises StoreSilent: if the store does not answer
        """
        document = self._document(keyring, provider, found.whose, account, now)
        return await self._store.replace(found.document, document, found.whose, provider)

    async def all(self) -> list[Credential]:
        """Return all credentials of the tenant.

        :raises StoreSilent: if the store does not answer
        """
        found = [msgspec.json.decode(each, type=Credential) for each in await self._store.all()]
        return sorted(found, key=lambda one: (one.provider, one.user))

    async def remove(self, provider: str, user: str) -> None:
        """Remove a credential.

        :raises CredentialUnknown: if it does not exist
        :raises StoreSilent: if the store does not answer
        """
        if not await self._store.remove(user, provider):
            raise CredentialUnknown(provider, user)

    async def found(self, keyring: Keyring, provider: str, user: str) -> FoundAccount | None:
        """Return the account of a user, otherwise the tenant's own; None if neither exists.

        :raises KeyringUnusable: if it cannot be decrypted
        :raises StoreSilent: if the store does not answer
        """
        for whose in dict.fromkeys((user, "")):
            kept = await self._store.get(whose, provider)
            if kept is not None:
                found = msgspec.json.decode(kept, type=Credential)
                said = keyring.open(found.sealed, self._place(provider, whose))
                return FoundAccount(whose, msgspec.json.decode(said, type=Account), kept)
        return None

    async def of_sender(self, keyring: Keyring, name: str) -> list[str]:
        """Return the secrets with which senders authenticate to a trigger, ``<definition>/<trigger>``.

        :raises KeyringUnusable: if they cannot be decrypted
        :raises StoreSilent: if the store does not answer
        """
        found = await self.found(keyring, f"{SENDER}{name}", "")
        return list(found.account.values.values()) if found is not None else []

    async def rotate(self, keyring: Keyring) -> int:
        """Encrypt with the current key all credentials that use an older key; return their number.

        A credential that another process changes or removes at the same time is left to it, and checked again.

        :raises KeyringUnusable: if one cannot be decrypted
        :raises StoreSilent: if the store does not answer, or other processes keep changing credentials
        """
        count = 0
        for _ in range(TRIES_MAX):
            kept = [(each, msgspec.json.decode(each, type=Credential)) for each in await self._store.all()]
            older = [(each, one) for each, one in kept if one.sealed.key != keyring.current]
            if not older:
                return count
            for each, one in older:
                place = self._place(one.provider, one.user)
                sealed = keyring.seal(keyring.open(one.sealed, place), place)
                renewed = msgspec.json.encode(msgspec.structs.replace(one, sealed=sealed))
                count += await self._store.replace(each, renewed, one.user, one.provider)
        raise StoreSilent("other processes keep changing credentials")

    def _document(self, keyring: Keyring, provider: str, user: str, account: Account, now: dt.datetime) -> bytes:
        sealed = keyring.seal(msgspec.json.encode(account), self._place(provider, user))
        return msgspec.json.encode(Credential(provider, user, sorted(account.values), now, sealed))

    def _place(self, provider: str, user: str) -> str:
        return msgspec.json.encode([self._tenant, user, provider]).decode()


class AccountLookup:
    """Looks up and renews accounts for the actions of a worker.

    ``keyring`` is called for each account, since its file may be created later. ``oauth`` has the settings of the
    applications through which accounts are connected, by provider.
    """

    def __init__(
        self,
        log: JetStreamLog,
        keyring: Callable[[], Keyring | None],
        replicas: int = 1,
        oauth: Mapping[str, OAuthSettings] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._keyring = keyring
        self._replicas = replicas
        self._oauth = oauth or {}
        self._clock = clock
        self._renewing = anyio.Lock()

    async def account(self, tenant: str, user: str, provider: str) -> Mapping[str, str] | None:
        """Return the variables of an account; None if it does not exist.

        :raises AccountUnreadable: if it cannot be read now or with these keys, or has expired
        """
        if provider not in ACCOUNTS:
            return None
        try:
            keyring = self._keyring()
            if keyring is None:
                return None
            credentials = Credentials(self._log, tenant, self._replicas)
            found = await credentials.found(keyring, provider, user)
            if found is not None and found.account.refresh_token and found.account.ends_soon(self._clock()):
                async with self._renewing:
                    found = await self._renew_account(credentials, keyring, provider, user)
            return found.account.values if found is not None else None
        except OAuthFailed as error:
            raise AccountUnreadable(error.code, error.message, again=not error.refused) from error
        except CallboardError as error:
            raise AccountUnreadable(error.code, error.message, again=error.code == "log.unavailable") from error

    async def _renew_account(
        self, credentials: Credentials, keyring: Keyring, provider: str, user: str
    ) -> FoundAccount | None:
        """Renew an account, unless another process has just renewed, replaced or removed it."""
        # Imported here because it needs an HTTP client, and most workers never renew a token.
        from callboard.features.access.oauth import renew_token

        now = self._clock()
        found = await credentials.found(keyring, provider, user)
        if found is None or not found.account.ends_soon(now) or (settings := self._oauth.get(provider)) is None:
            return found
        try:
            account = await renew_token(provider, settings, found.account, now)
        except OAuthFailed:
            # Another worker may have renewed it first, which invalidates this refresh token.
            found = await credentials.found(keyring, provider, user)
            if found is not None and found.account.expires_at > now:
                return found
            raise
        if await credentials.replace(keyring, provider, found, account, dt.datetime.fromtimestamp(now, dt.UTC)):
            return found._replace(account=account)
        return await credentials.found(keyring, provider, user)
