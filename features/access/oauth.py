"""OAuth 2: connect a person's account at a service by an authorization code (with PKCE), and renew its token.

The provider issues an access token, and possibly a refresh token and an expiry. None of them is logged or shown.
"""

import base64
import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from msgspec import Struct

from callboard.features.access.account import Account, OAuthFailed
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.settings.oauth_settings import OAuthSettings

ANSWER_WAIT_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024


class OAuthProvider(Struct, frozen=True):
    """The addresses where a provider authorizes and issues tokens, and the account's variable for the token.

    ``more`` are further parameters of the authorization. With ``in_header``, the application's secret is sent in a
    header instead of the body.
    """

    authorize_url: str
    token_url: str
    variable: str
    scopes: str = ""
    more: tuple[tuple[str, str], ...] = ()
    in_header: bool = False


PROVIDERS: Mapping[str, OAuthProvider] = {
    "github": OAuthProvider(
        "https://github.com/login/oauth/authorize",
        "https://github.com/login/oauth/access_token",
        "GITHUB_TOKEN",
        "repo",
    ),
    "google_calendar": OAuthProvider(
        "https://accounts.google.com/o/oauth2/v2/auth",
        "https://oauth2.googleapis.com/token",
        "GOOGLE_ACCESS_TOKEN",
        "https://www.googleapis.com/auth/calendar",
        # Without these, Google issues no refresh token.
        (("access_type", "offline"), ("prompt", "consent")),
    ),
    "notion": OAuthProvider(
        "https://api.notion.com/v1/oauth/authorize",
        "https://api.notion.com/v1/oauth/token",
        "NOTION_TOKEN",
        more=(("owner", "user"),),
        in_header=True,
    ),
    "slack": OAuthProvider(
        "https://slack.com/oauth/v2/authorize",
        "https://slack.com/api/oauth.v2.access",
        "SLACK_BOT_TOKEN",
        "chat:write",
    ),
}


class Connecting:
    """One authorization: the address that the person opens, and the account that results."""

    def __init__(self, provider: str, settings: OAuthSettings, redirect_url: str) -> None:
        self._name = provider
        self._provider = PROVIDERS[provider]
        self._settings = settings
        self._redirect_url = redirect_url
        self._state = secrets.token_urlsafe(24)
        self._verifier = secrets.token_urlsafe(48)

    @property
    def url(self) -> str:
        """The address that the person has to open."""
        challenge = base64.urlsafe_b64encode(sha256(self._verifier.encode()).digest()).rstrip(b"=").decode()
        scopes = self._settings.scopes if self._settings.scopes is not None else self._provider.scopes
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_url,
            "state": self._state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"scope": scopes} if scopes else {}),
            **dict(self._provider.more),
        }
        return f"{self._settings.authorize_url or self._provider.authorize_url}?{urlencode(asked)}"

    def code_in(self, came_back: str) -> str:
        """Return the code in the address to which the provider redirected the person.

        :raises OAuthFailed: if the address belongs to another authorization, or the provider refused this one
        """
        query = {name: values[0] for name, values in parse_qs(urlsplit(came_back.strip()).query).items()}
        if not hmac.compare_digest(query.get("state", "").encode(), self._state.encode()):
            raise OAuthFailed(self._name, "the redirect belongs to another authorization")
        if "code" not in query:
            raise OAuthFailed(self._name, query.get("error", "the redirect has no code")[:200])
        return query["code"]

    async def account(self, came_back: str, now: float, transport: httpx2.AsyncBaseTransport | None = None) -> Account:
        """Return the account that the person has authorized.

        :raises OAuthFailed: if the person declined, or the provider issues no token
        """
        asked = {
            "grant_type": "authorization_code",
            "code": self.code_in(came_back),
            "redirect_uri": self._redirect_url,
            "code_verifier": self._verifier,
        }
        given = await _request_members(self._name, self._settings, asked, transport)
        return _account(self._name, given, now, "")


async def renew_token(
    provider: str,
    settings: OAuthSettings,
    account: Account,
    now: float,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> Account:
    """Return an account with a new token.

    :raises OAuthFailed: if the provider issues none
    """
    asked = {"grant_type": "refresh_token", "refresh_token": account.refresh_token}
    given = await _request_members(provider, settings, asked, transport)
    return _account(provider, given, now, account.refresh_token)


async def _request_members(
    name: str, settings: OAuthSettings, asked: dict[str, str], transport: httpx2.AsyncBaseTransport | None
) -> dict[str, Any]:
    provider, secret = PROVIDERS[name], settings.client_secret.get_secret_value()
    body, headers = {**asked, "client_id": settings.client_id}, {"Accept": "application/json"}
    if provider.in_header:
        both = base64.b64encode(f"{settings.client_id}:{secret}".encode()).decode()
        headers["Authorization"] = f"Basic {both}"
    elif secret:
        body["client_secret"] = secret
    url = settings.token_url or provider.token_url
    try:
        async with httpx2.AsyncClient(transport=transport, timeout=ANSWER_WAIT_S, follow_redirects=False) as client:
            answer = await client.post(url, data=body, headers=headers)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OAuthFailed(name, f"it does not answer ({type(error).__name__})", refused=False) from None
    try:
        found = decode_json(answer.content[:ANSWER_BYTES_MAX])
    except JSON_ERRORS:
        raise OAuthFailed(name, f"its answer ({answer.status_code}) is not JSON", refused=False) from None
    if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
        error = found.get("error") if isinstance(found, dict) else None
        # Only the error code: a longer text may repeat the secrets of the request.
        reason = error[:80] if isinstance(error, str) and error.replace("_", "").isalnum() else "no reason given"
        raise OAuthFailed(name, reason, refused=answer.status_code < 500)
    return found


def _account(provider: str, given: Mapping[str, Any], now: float, refresh_token: str) -> Account:
    lasts = given.get("expires_in")
    refresh = given.get("refresh_token")
    return Account(
        {PROVIDERS[provider].variable: given["access_token"]},
        refresh if isinstance(refresh, str) else refresh_token,
        int(now + lasts) if isinstance(lasts, int | float) else 0,
    )
