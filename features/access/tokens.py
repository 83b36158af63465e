"""Tokens of an identity provider: JWTs (OpenID Connect), checked with the keys that it publishes.

Only asymmetric signatures are accepted: a party that can check one cannot make one. The provider's keys are fetched on
first use, cached, and fetched again for a token that names an unknown key. `jwt` is the package of the extra ``oidc``.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import structlog

from callboard.features.access.subject import Subject, scopes_of
from callboard.lib.json_decoder import decode_json
from callboard.runtime.settings.oidc_settings import OidcSettings

if TYPE_CHECKING:
    import httpx2
    import jwt

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

LEEWAY_S = 30
"""Tolerated difference between the provider's clock and the local one."""

KEYS_FRESH_S = 600.0
"""How long fetched keys are cached."""

KEYS_PAUSE_S = 10.0
"""Shortest time between two fetches: any caller can send a token that names an unknown key."""

FETCH_WAIT_S = 5.0
DOCUMENT_BYTES_MAX = 256 * 1024

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

SCOPE_PREFIX = "callboard:"
"""Prefix of Callboard's scopes among the scopes of a token."""

logger = structlog.get_logger(__name__)


class TokenRefused(Exception):
    """Raised for a token that is refused; the message says why."""


class ProviderSilent(Exception):
    """Raised when the provider's keys cannot be fetched."""


class Tokens:
    """Checks tokens of one provider for one tenant."""

    def __init__(
        self,
        settings: OidcSettings,
        tenant: str,
        *,
        transport: "httpx2.AsyncBaseTransport | None" = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._tenant = tenant
        self._transport = transport
        self._now = now
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._fetching = anyio.Lock()

    async def subject(self, token: str) -> Subject:
        """Return the subject of a token.

        :raises TokenRefused: if the token is invalid, expired or meant for another tenant
        :raises ProviderSilent: if the provider's keys cannot be fetched
        """
        import jwt

        if not _TOKEN.fullmatch(token):
            raise TokenRefused("not a JSON Web Token")
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            claims = jwt.decode(
                token,
                await self._key(str(header.get("kid", ""))),
                algorithms=ALGORITHMS,
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise TokenRefused(f"invalid token: {error}") from None
        name = claims.get(settings.subject_claim)
        if not isinstance(name, str) or not name:
            raise TokenRefused(f"the token has no {settings.subject_claim}")
        if settings.tenants_claim and self._tenant not in _words(claims.get(settings.tenants_claim)):
            raise TokenRefused(f"the token is not for the tenant {self._tenant!r}")
        given = _words(claims.get(settings.scopes_claim))
        scopes = scopes_of([one.removeprefix(SCOPE_PREFIX) for one in given if one.startswith(SCOPE_PREFIX)])
        roles = _words(claims.get(settings.roles_claim)) if settings.roles_claim else []
        return Subject(f"user:{name}", frozenset(scopes), roles=frozenset(roles))

    async def _key(self, kid: str) -> "jwt.PyJWK":
        async with self._fetching:
            age = self._now() - self._fetched_at if self._fetched_at is not None else None
            if age is None or age > KEYS_FRESH_S or (kid not in self._keys and age > KEYS_PAUSE_S):
                await self._fetch()
        found = self._keys.get(kid)
        if found is None:
            raise TokenRefused("the token is signed by a key that its issuer does not publish")
        return found

    async def _fetch(self) -> None:
        import httpx2

        try:
            async with httpx2.AsyncClient(
                transport=self._transport, timeout=FETCH_WAIT_S, follow_redirects=False, trust_env=False
            ) as client:
                where = self._settings.jwks_url
                if not where:
                    about = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
                    where = str((await _document(client, about)).get("jwks_uri", ""))
                published = (await _document(client, where)).get("keys")
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            logger.warning("cannot fetch the keys of the identity provider", error=str(error))
            if not self._keys:
                raise ProviderSilent(str(error)) from error
            # Keep the cached keys: an outage of the provider must not lock out its users.
            self._fetched_at = self._now()
            return
        self._keys = _read(published)
        self._fetched_at = self._now()


async def _document(client: "httpx2.AsyncClient", url: str) -> Mapping[str, Any]:
    received = bytearray()
    async with client.stream("GET", url) as answer:
        answer.raise_for_status()
        async for chunk in answer.aiter_bytes():
            received += chunk
            if len(received) > DOCUMENT_BYTES_MAX:
                raise ValueError(f"{url} has more than {DOCUMENT_BYTES_MAX} bytes")
    found = decode_json(bytes(received))
    if not isinstance(found, dict):
        raise ValueError(f"{url} is not a JSON object")
    return found


def _read(published: Any) -> "dict[str, jwt.PyJWK]":
    """Return the keys by id, without those for unsupported algorithms."""
    import jwt

    found: dict[str, jwt.PyJWK] = {}
    for one in published if isinstance(published, list) else ():
        if not isinstance(one, dict) or one.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict(one)
        except jwt.PyJWTError:
            continue
        if key.algorithm_name in ALGORITHMS:
            found[str(one.get("kid", ""))] = key
    return found


def _words(given: Any) -> list[str]:
    """Return the words of a claim, which is a list or a text separated by spaces."""
    if isinstance(given, str):
        return given.split()
    return [str(one) for one in given] if isinstance(given, list) else []
