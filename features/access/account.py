"""Accounts: the secret part of a credential."""

from msgspec import Struct

from callboard.bus.errors import CallboardError

RENEW_AHEAD_S = 60
"""How long before it expires a token is renewed."""


class Account(Struct, frozen=True, omit_defaults=True):
    """The variables of an account, with its refresh token and expiry (seconds since 1970) if it has them."""

    values: dict[str, str]
    refresh_token: str = ""
    expires_at: int = 0

    def __repr__(self) -> str:
        return f"Account({', '.join(self.values)})"

    def ends_soon(self, now: float) -> bool:
        """Whether the token has expired or is about to expire."""
        return bool(self.expires_at) and now >= self.expires_at - RENEW_AHEAD_S


class OAuthFailed(CallboardError):
    """A provider issued no token; with ``refused``, a retry cannot help."""

    def __init__(self, provider: str, reason: str, *, refused: bool = True) -> None:
        message = f"{provider} issued no token: {reason}"
        super().__init__("credentials.oauth", message, remedy="Connect it again with `callboard credentials connect`.")
        self.refused = refused
