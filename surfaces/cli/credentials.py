"""``callboard credentials``: credentials for external services."""

import datetime as dt
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from callboard.surfaces.cli.operation import OperationCall, begin_call, operation
from callboard.surfaces.cli.output import print_answer, say
from callboard.surfaces.cli.settings import Settings, json_option, settings_options

if TYPE_CHECKING:
    from callboard.features.access.account import Account
    from callboard.features.access.credentials import Credentials
    from callboard.features.access.keyring import Keyring
    from callboard.runtime.client.connection import Connection

user_option = click.option(
    "--user", metavar="NAME", default="", help="The user that it belongs to; default: the tenant."
)


@click.group()
def credentials() -> None:
    """Manage the credentials for external services, of a tenant or of its users: add, list and remove them.

    Credentials are stored encrypted, and decrypted only by the worker that uses them. They never appear in an event,
    a log or an error.
    """


@credentials.command()
@click.argument("provider")
@user_option
@settings_options
def add(settings: Settings, provider: str, user: str) -> None:
    """Store a credential, replacing any earlier one. It is read from stdin; at a terminal, the command prompts for it.

    The credential is a single token, or lines of VARIABLE=VALUE if a provider takes several.

    \b
    callboard credentials add slack < token
    """
    call = begin_call(settings)
    # Before the event loop begins, so that Ctrl-C ends the prompt.
    values = read_values(provider)
    call.run(_add_credential, provider=provider, user=user, values=values)


async def _add_credential(call: OperationCall, provider: str, user: str, values: dict[str, str]) -> None:
    from callboard.bus.subjects import is_name
    from callboard.features.access.account import Account
    from callboard.features.access.credentials import SENDER
    from callboard.features.access.keyring import founded_keyring
    from callboard.runtime.client.errors import UsageInvalid

    if not is_name(user):
        raise UsageInvalid("too long; expected a shorter name", "--user")
    if user and provider.startswith(SENDER):
        raise UsageInvalid("not possible with secrets of senders, which belong to the tenant", "--user")
    whose = f" of {user}" if user else ""
    told = await _store_account(call, founded_keyring(call.config), provider, user, Account(values))
    call.answer(told, f"{provider}{whose}: {', '.join(sorted(values))}")


@credentials.command()
@click.argument("provider")
@user_option
@operation
async def connect(call: OperationCall, provider: str, user: str) -> None:
    """Connect a person's account at a provider in a browser (OAuth 2); it is then renewed automatically.

    The setting `oauth` names the application that the person authorises. If it has a redirect_url, paste the address
    that the browser was sent to; otherwise the browser returns to this machine.
    """
    from anyio import to_thread

    from callboard.bus.subjects import is_name
    from callboard.features.access.keyring import founded_keyring
    from callboard.features.access.oauth import Connecting
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.runtime.settings.oauth_settings import OAuthSettings

    applications: Mapping[str, OAuthSettings] = {**call.config.oauth}
    application = applications.get(provider)
    if application is None or not is_name(user):
        raise UsageInvalid(
            f"no application is configured for {provider}, or --user is not a valid name; set oauth", "PROVIDER"
        )
    keyring = founded_keyring(call.config)
    if application.redirect_url is not None:
        connecting = Connecting(provider, application, application.redirect_url)
        say(f"Open {connecting.url}", err=True)
        say("and paste the address to which the browser is redirected:", err=True)
        came_back = await to_thread.run_sync(sys.stdin.readline)
    else:
        with Returning() as returning:
            connecting = Connecting(provider, application, returning.url)
            say(f"Open {connecting.url}", err=True)
            came_back = await to_thread.run_sync(returning.wait)
    account = await connecting.account(came_back, time.time())
    call.answer(await _store_account(call, keyring, provider, user, account), f"{provider} connected")


@credentials.command("list")
@operation
async def list_(call: OperationCall) -> None:
    """List the credentials: provider, user, names of variables, date. Values are never shown."""
    from callboard.service.operations.narration import local

    async with call.connect() as connection:
        found = await _credentials(connection).all()
    names = ("provider", "user", "variables", "changed_at")
    call.answer(
        [{**{name: getattr(one, name) for name in names}, "key": one.sealed.key} for one in found],
        (
            f"{one.provider}  {one.user or '(tenant)'}  {', '.join(one.variables)}  since {local(one.changed_at)}"
            for one in found
        ),
    )


@credentials.command()
@click.argument("provider")
@user_option
@operation
async def remove(call: OperationCall, provider: str, user: str) -> None:
    """Remove a credential."""
    async with call.connect() as connection:
        await _credentials(connection).remove(provider, user)
    call.answer({"removed": provider, "user": user}, f"{provider} removed")


@credentials.command()
@operation
async def rotate(call: OperationCall) -> None:
    """Encrypt every credential again with the first key of the configuration.

    Add a new key (`callboard credentials key`) before the old one, rotate, then remove the old one.
    """
    from callboard.features.access.keyring import founded_keyring

    keyring = founded_keyring(call.config)
    async with call.connect() as connection:
        count = await _credentials(connection).rotate(keyring)
    told = {"rotated": count, "key": keyring.current}
    call.answer(told, f"{count} encrypted again with the key {keyring.current}")


@credentials.command()
@json_option
def key(as_json: bool) -> None:
    """Print a new key, for CALLBOARD_CREDENTIALS_KEY or a file that credentials_key_file names."""
    from callboard.features.access.keyring import new_key

    made = new_key()
    print_answer({"key": made}, made, as_json=as_json)


def _credentials(connection: "Connection") -> "Credentials":
    from callboard.features.access.credentials import Credentials

    return Credentials(connection.log, connection.config.tenant, connection.config.replicas)


async def _store_account(
    call: OperationCall, keyring: "Keyring", provider: str, user: str, account: "Account"
) -> dict[str, object]:
    """Store a credential; return what may be shown of it."""
    async with call.connect(founds=True) as connection:
        await _credentials(connection).put(keyring, provider, user, account, dt.datetime.now(dt.UTC))
    return {"provider": provider, "user": user, "variables": sorted(account.values)}


SENDER_SECRET = "WEBHOOK_SECRET"
"""The variable under which secrets of senders are listed."""


def read_values(provider: str) -> dict[str, str]:
    """Read the variables of a credential from stdin, or prompt for the usual one.

    :raises UsageInvalid: if the provider or a variable is unknown
    """
    from callboard.actors.credentials import ACCOUNTS
    from callboard.features.access.credentials import SENDER
    from callboard.runtime.client.errors import UsageInvalid

    if provider.startswith(SENDER):
        return _read_sender_values(provider)
    if provider not in ACCOUNTS:
        expected = ", ".join([*ACCOUNTS, f"{SENDER}DEFINITION/TRIGGER"])
        raise UsageInvalid(f"unknown provider {provider!r}; expected one of {expected}", "PROVIDER")
    usual, *_ = ACCOUNTS[provider]
    lines = _read_lines(usual)
    named = {name: value for name, _, value in (line.partition("=") for line in lines)}
    if not named.keys() <= set(ACCOUNTS[provider]):
        if len(lines) > 1:
            raise UsageInvalid(
                f"expected lines of VARIABLE=VALUE, with {', '.join(ACCOUNTS[provider])}", "the credential"
            )
        return {usual: lines[0]}
    return named


def _read_sender_values(provider: str) -> dict[str, str]:
    """Read the secrets of a trigger's senders, one per line."""
    from callboard.bus.subjects import is_name
    from callboard.features.access.credentials import SENDER
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.runtime.settings.webhook_settings import SECRET_CHARS_MIN

    if not all(provider.removeprefix(SENDER).partition("/")) or not is_name(provider):
        raise UsageInvalid(
            f"{provider[:80]!r} does not name a trigger; expected {SENDER}DEFINITION/TRIGGER", "PROVIDER"
        )
    lines = _read_lines(SENDER_SECRET)
    if any(len(line) < SECRET_CHARS_MIN for line in lines):
        raise UsageInvalid(f"too short; a secret has at least {SECRET_CHARS_MIN} characters", "the credential")
    return {f"{SENDER_SECRET}_{number}" if number > 1 else SENDER_SECRET: line for number, line in enumerate(lines, 1)}


def _read_lines(asked: str) -> list[str]:
    from callboard.features.access.credentials import VALUE_BYTES_MAX
    from callboard.runtime.client.errors import UsageInvalid

    text = click.prompt(asked, hide_input=True) if sys.stdin.isatty() else sys.stdin.read(VALUE_BYTES_MAX + 1)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(text) > VALUE_BYTES_MAX or not lines:
        raise UsageInvalid(f"empty or too long; expected up to {VALUE_BYTES_MAX} characters on stdin", "the credential")
    return lines


WAIT_S = 300.0
"""How long the person may take at the provider's page."""

PATH = "/callback"
PAGE = b"<!doctype html><title>Callboard</title><p>You can close this page."


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if not self.path.startswith(f"{PATH}?"):
            self.send_error(404)
            return
        assert isinstance(self.server, _Server)
        self.server.came_back = self.path
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", "default-src 'none'")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the path contains a code."""


class _Server(HTTPServer):
    came_back = ""
    timed_out = False

    def handle_timeout(self) -> None:
        self.timed_out = True


class Returning:
    """Listens at the address for the length of a block."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{PATH}"

    def wait(self) -> str:
        """Wait for the browser; return the path that it requests.

        :raises UsageInvalid: if the browser does not return within `WAIT_S`
        """
        from callboard.runtime.client.errors import UsageInvalid

        self._server.timeout = WAIT_S
        while not self._server.came_back:
            self._server.handle_request()
            if self._server.timed_out:
                raise UsageInvalid(f"the browser did not return within {WAIT_S:g} s", "PROVIDER")
        return self._server.came_back
