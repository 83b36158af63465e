"""Accounts: which variables an adapter reads from a user's account at a service, and the environment made of them.

If a tenant, or one of its users, has an account at a service, no variable of the worker's own account is mixed in.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from callboard.actors.carrier import EffectFailed
from callboard.bus.effects import Failure
from callboard.lib.redaction import Redaction

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
"""The variables of an account by provider, the most usual first. An account never sets the address of a service."""

CONNECTED = ("github", "google_calendar", "notion", "slack")
"""The providers whose accounts can be connected in a browser."""

CONNECT_PATH = "/integrations/connect"
"""Below this path of `callboard http` a page for each of them says how an account is connected."""

Account = Callable[[str], Awaitable[Mapping[str, str] | None]]
"""Returns the variables of an account by its provider; None if the account does not exist."""


class AccountUnreadable(Exception):
    """An account exists, or may exist, and cannot be read; ``again`` says that a later attempt may succeed."""

    def __init__(self, code: str, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.code = code
        self.again = again


async def nobody(_provider: str) -> None:
    """Return None: this worker has no accounts."""
    return


async def with_account(env: Mapping[str, str], provider: str, account: Account) -> tuple[Mapping[str, str], list[str]]:
    """Return the environment for an action, and the secret values of the account in it.

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
    """Return the redaction that removes the secrets of an account from everything that is recorded."""
    return Redaction({f"{provider}.{number}": secret for number, secret in enumerate(secrets)})
