"""Crediting: what `callboard credentials` makes of its words, and what it prints."""

import datetime as dt
import sys
import time
from collections.abc import Mapping

import click
from anyio import to_thread

from callboard.actors.credentials import ACCOUNTS
from callboard.bus.subjects import is_name
from callboard.features.access.account import Account
from callboard.features.access.credentials import SENDER, VALUE_BYTES_MAX, Credentials
from callboard.features.access.keyring import founded_keyring
from callboard.features.access.oauth import Connecting
from callboard.runtime.settings.config import Config
from callboard.runtime.settings.oauth_settings import OAuthSettings
from callboard.runtime.settings.webhook_settings import SECRET_CHARS_MIN
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.narration import local
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.surfaces.cli.oauth_callback import Returning
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings

SENDER_SECRET = "WEBHOOK_SECRET"
"""What the secrets of senders are listed as."""


def given_values(provider: str) -> dict[str, str]:
    """Read the variables of a credential from stdin, or ask for the one that is usual.

    :raises UsageInvalid: if the provider does not exist, or no such variable
    """
    if provider.startswith(SENDER):
        return _sender_values(provider)
    if provider not in ACCOUNTS:
        expected = ", ".join([*ACCOUNTS, f"{SENDER}DEFINITION/TRIGGER"])
        raise UsageInvalid(f"{provider!r} is no provider; expected one of {expected}", "PROVIDER")
    usual, *_ = ACCOUNTS[provider]
    lines = _lines(usual)
    named = {name: value for name, _, value in (line.partition("=") for line in lines)}
    if not named.keys() <= set(ACCOUNTS[provider]):
        if len(lines) > 1:
            raise UsageInvalid(f"has lines of VARIABLE=VALUE, with {', '.join(ACCOUNTS[provider])}", "the credential")
        return {usual: lines[0]}
    return named


def _sender_values(provider: str) -> dict[str, str]:
    """The secrets of a trigger's senders, a line each."""
    if not all(provider.removeprefix(SENDER).partition("/")) or not is_name(provider):
        raise UsageInvalid(f"{provider[:80]!r} names no trigger; expected {SENDER}DEFINITION/TRIGGER", "PROVIDER")
    lines = _lines(SENDER_SECRET)
    if any(len(line) < SECRET_CHARS_MIN for line in lines):
        raise UsageInvalid(f"is too short; a secret has at least {SECRET_CHARS_MIN} characters", "the credential")
    return {f"{SENDER_SECRET}_{number}" if number > 1 else SENDER_SECRET: line for number, line in enumerate(lines, 1)}


def _lines(asked: str) -> list[str]:
    text = click.prompt(asked, hide_input=True) if sys.stdin.isatty() else sys.stdin.read(VALUE_BYTES_MAX + 1)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(text) > VALUE_BYTES_MAX or not lines:
        raise UsageInvalid(f"is read from stdin: up to {VALUE_BYTES_MAX} characters", "the credential")
    return lines


async def add_credential(provider: str, user: str, values: dict[str, str], config: Config, settings: Settings) -> None:
    """Keep a credential.

    :raises UsageInvalid: if no one can be called so
    :raises CallboardError: if there is no key, or whatever keeps the store from being used
    """
    if not is_name(user):
        raise UsageInvalid("is too long for a name", "--user")
    if user and provider.startswith(SENDER):
        raise UsageInvalid("is for accounts; the secrets of senders are the tenant's", "--user")
    keyring = founded_keyring(config)
    async with reach(config, reads=True, founds=True, name="callboard credentials") as connection:
        kept = Credentials(connection.log, config.tenant, config.replicas)
        await kept.put(keyring, provider, user, Account(values), dt.datetime.now(dt.UTC))
    told = {"provider": provider, "user": user, "variables": sorted(values)}
    whose = f" of {user}" if user else ""
    say(compact(told) if settings.as_json else f"{provider}{whose}: {', '.join(sorted(values))}")


async def list_credentials(config: Config, settings: Settings) -> None:
    """Print which credentials there are.

    :raises CallboardError: whatever keeps the store from being used
    """
    async with reach(config, reads=True, name="callboard credentials") as connection:
        found = await Credentials(connection.log, config.tenant, config.replicas).all()
    if settings.as_json:
        names = ("provider", "user", "variables", "changed_at")
        told = [{**{name: getattr(one, name) for name in names}, "key": one.sealed.key} for one in found]
        say(compact(told))
        return
    for one in found:
        whose = one.user or "(tenant)"
        say(f"{one.provider}  {whose}  {', '.join(one.variables)}  since {local(one.changed_at)}")


async def remove_credential(provider: str, user: str, config: Config, settings: Settings) -> None:
    """Remove a credential.

    :raises CallboardError: if none exists, or whatever keeps the store from being used
    """
    async with reach(config, reads=True, name="callboard credentials") as connection:
        await Credentials(connection.log, config.tenant, config.replicas).remove(provider, user)
    say(compact({"removed": provider, "user": user}) if settings.as_json else f"{provider} removed")


async def rotate_credentials(config: Config, settings: Settings) -> None:
    """Encrypt everything with the first key.

    :raises CallboardError: if there is no key, or whatever keeps the store from being used
    """
    keyring = founded_keyring(config)
    async with reach(config, reads=True, name="callboard credentials") as connection:
        count = await Credentials(connection.log, config.tenant, config.replicas).rotate(keyring)
    told = {"rotated": count, "key": keyring.current}
    say(compact(told) if settings.as_json else f"{count} encrypted anew with the key {keyring.current}")


async def connect_account(provider: str, user: str, config: Config, settings: Settings) -> None:
    """Have someone let us have their account: print where they have to go, and wait until they come back.

    :raises UsageInvalid: if no application is configured for the provider
    :raises OAuthFailed: if they do not let us, or the provider gives no token
    :raises CallboardError: if there is no key, or whatever keeps the store from being used
    """
    applications: Mapping[str, OAuthSettings] = {**config.oauth}
    application = applications.get(provider)
    if application is None or not is_name(user):
        raise UsageInvalid(f"needs an application of {provider}: the setting oauth, and a name", "PROVIDER")
    keyring = founded_keyring(config)
    if application.redirect_url is not None:
        connecting = Connecting(provider, application, application.redirect_url)
        say(f"Open {connecting.url}", err=True)
        say("and paste the address that you are sent to:", err=True)
        came_back = await to_thread.run_sync(sys.stdin.readline)
    else:
        with Returning() as returning:
            connecting = Connecting(provider, application, returning.url)
            say(f"Open {connecting.url}", err=True)
            came_back = await to_thread.run_sync(returning.wait)
    account = await connecting.account(came_back, time.time())
    async with reach(config, reads=True, founds=True, name="callboard credentials") as connection:
        kept = Credentials(connection.log, config.tenant, config.replicas)
        await kept.put(keyring, provider, user, account, dt.datetime.now(dt.UTC))
    told = {"provider": provider, "user": user, "variables": sorted(account.values)}
    say(compact(told) if settings.as_json else f"{provider} connected")
