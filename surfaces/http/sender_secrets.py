"""The secrets with which services that send webhooks authenticate, from the configuration and the credentials."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from callboard.bus.errors import CallboardError
from callboard.features.access.credentials import Credentials
from callboard.features.access.keyring import Keyring
from callboard.service.operations.operation import ApiError

SenderSecrets = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the secrets of a trigger, ``<definition>/<trigger>``. Any of them is accepted; without one, no request is."""


def sender_secrets(
    configured: Mapping[str, Sequence[str]],
    credentials: Credentials | None = None,
    keyring: Callable[[], Keyring | None] = lambda: None,
) -> SenderSecrets:
    """Return a function that looks up secrets. It reads them on every call, so a removed secret is invalid at once.

    The function raises `ApiError` if the secrets cannot be read.
    """

    async def of(name: str) -> Sequence[str]:
        try:
            keys = keyring() if credentials is not None else None
            kept = await credentials.of_sender(keys, name) if credentials is not None and keys is not None else []
        except CallboardError as error:
            raise ApiError(503, error.code, error.message, remedy=error.remedy) from error
        return [*configured.get(name, ()), *kept]

    return of
