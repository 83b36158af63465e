"""Accounts: what is secret of a credential."""

from msgspec import Struct

from callboard.bus.errors import CallboardError

RENEW_AHEAD_S = 60
"""So long before its end a token is renewed."""


class Account(Struct, frozen=True, omit_defaults=True):
    """The variables of an account, and, where a provider gave them, what renews them and when (seconds since 1970)."""

    values: dict[str, str]
    refresh_token: str = ""
    expires_at: int = 0

    def __repr__(self) -> str:
        return f"Account({', '.join(self.values)})"

    def ends_soon(self, now: float) -> bool:
        """Whether it has to be renewed."""
        return bool(self.expires_at) and now >= self.expires_at - RENEW_AHEAD_S


class OAuthFailed(CallboardError):
    """A provider gives no token; ``refused`` says that it will not do so later either."""

    def __init__(self, provider: str, reason: str, *, refused: bool = True) -> None:
        message = f"{provider} gives no token: {reason}"
        super().__init__("credentials.oauth", message, remedy="`callboard credentials connect` connects it anew.")
        self.refused = refused
