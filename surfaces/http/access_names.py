"""The names of API keys and of credentials, for operators. Secrets are neither read nor shown."""

import datetime as dt

from msgspec import Struct

from callboard.features.access.credentials import Credentials
from callboard.features.access.keys import ApiKeys
from callboard.runtime.client.connection import Connection
from callboard.service.operations.operation import OperationProvider
from callboard.service.operations.requests import Nothing


class KeyName(Struct, frozen=True, omit_defaults=True):
    """An API key: its name, what its holder may do, and until when it is valid."""

    name: str
    scopes: list[str]
    created_at: dt.datetime
    expires_at: dt.datetime | None = None


class CredentialName(Struct, frozen=True, omit_defaults=True):
    """A credential for an external service: its provider, the names of its variables, and when it was last changed.

    ``user`` is empty for the tenant's own.
    """

    provider: str
    user: str
    variables: list[str]
    changed_at: dt.datetime


class AccessList(Struct, frozen=True):
    """Answer of ``access``: the API keys and the credentials of the tenant, by name."""

    keys: list[KeyName]
    credentials: list[CredentialName]


class AccessNames(OperationProvider):
    """The stored keys and credentials of one tenant."""

    def __init__(self, connection: Connection) -> None:
        self._log = connection.log
        self._replicas = connection.config.replicas

    async def access(self, tenant: str, _request: Nothing) -> AccessList:
        """List the API keys and the credentials by name, without their secrets."""
        keys = await ApiKeys(self._log, tenant, self._replicas).all()
        credentials = await Credentials(self._log, tenant, self._replicas).all()
        return AccessList(
            sorted(
                (KeyName(one.name, [*one.scopes], one.created_at, one.expires_at) for one in keys),
                key=lambda one: one.name,
            ),
            [CredentialName(one.provider, one.user, one.variables, one.changed_at) for one in credentials],
        )
