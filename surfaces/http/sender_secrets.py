"""Secrets of senders: by what those who call in prove themselves, as configured, and as kept with the credentials."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from callboard.bus.errors import CallboardError
from callboard.features.access.credentials import Credentials
from callboard.features.access.keyring import Keyring
from callboard.service.api.verbs import ApiError

SenderSecrets = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the secrets of a trigger, ``<definition>/<trigger>``, of which each will do; none: nothing is taken in."""


def sender_secrets(
    configured: Mapping[str, Sequence[str]],
    credentials: Credentials | None = None,
    keyring: Callable[[], Keyring | None] = lambda: None,
) -> SenderSecrets:
    """Return what looks secrets up, each time anew: one that is removed lets nobody in from that moment.

    What it returns raises `ApiError` if they cannot be read.
    """

    async def of(name: str) -> Sequence[str]:
        try:
            keys = keyring() if credentials is not None else None
            kept = await credentials.of_sender(keys, name) if credentials is not None and keys is not None else []
        except CallboardError as error:
            raise ApiError(503, error.code, error.message, remedy=error.remedy) from error
        return [*configured.get(name, ()), *kept]

    return of
