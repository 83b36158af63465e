"""Accounts: which variables an adapter reads of somebody's account at a service, and an environment with those.

Where a tenant, or one of its users, has an account of its own, nothing of the worker's own account is mixed in.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from callboard.actors.carrier import EffectFailed
from callboard.bus.effects import Failure
from callboard.bus.redaction import Redaction

ACCOUNTS: Mapping[str, tuple[str, ...]] = {
    "discord": ("DISCORD_BOT_TOKEN",),
    "email": ("SMTP_PASSWORD", "SMTP_USER"),
    "firecrawl": ("FIRECRAWL_API_KEY",),
    "github": ("GITHUB_TOKEN",),
    "google_calendar": ("GOOGLE_ACCESS_TOKEN", "GOOGLE_REFRESH_TOKEN"),
    "notion": ("NOTION_TOKEN",),
    "slack": ("SLACK_BOT_TOKEN", "SLACK_WEBHOOK_URL"),
    "telegram": ("TELEGRAM_BOT_TOKEN",),
}
"""The variables of an account by provider, the most usual first. Where a service is, no account says."""

CONNECTED = ("github", "google_calendar", "notion", "slack")
"""The providers whose accounts can be connected in a browser."""

CONNECT_PATH = "/integrations/connect"
"""Below this path of `callboard http` a page for each of them says how an account is connected."""

Account = Callable[[str], Awaitable[Mapping[str, str] | None]]
"""Looks up the variables of an account by its provider; None if there is none."""


class AccountUnreadable(Exception):
    """An account is there, or may be, and cannot be read; ``again`` says that it may be later."""

    def __init__(self, code: str, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.code = code
        self.again = again


async def nobody(_provider: str) -> None:
    """Nobody has an account."""
    return


async def with_account(env: Mapping[str, str], provider: str, account: Account) -> tuple[Mapping[str, str], list[str]]:
    """Return the environment for an action, and what is secret in it of an account.

    :raises EffectFailed: if the account cannot be read
    """
    try:
        found = await account(provider)
    except AccountUnreadable as error:
        raise EffectFailed(Failure(error.code, str(error), retryable=error.again)) from error
    if found is None:
        return env, []
    others = {name: value for name, value in env.items() if name not in ACCOUNTS[provider]}
    return {**others, **found}, list(found.values())


def hiding(provider: str, secrets: Sequence[str]) -> Redaction:
    """Return what takes the secrets of an account out of whatever is to be recorded."""
    return Redaction({f"{provider}.{number}": secret for number, secret in enumerate(secrets)})
