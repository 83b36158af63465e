"""Accounts connected by OAuth: the code is proved (PKCE), tokens are renewed in time, and secrets are not shown."""

import base64
import datetime as dt
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from callboard.actors.credentials import CONNECT_PATH, CONNECTED, AccountUnreadable
from callboard.bus.errors import ConfigInvalid
from callboard.features.access import oauth
from callboard.features.access.account import Account, OAuthFailed
from callboard.features.access.credentials import AccountLookup, Credentials
from callboard.features.access.keyring import Keyring
from callboard.features.access.oauth import PROVIDERS, Connecting, renew_token
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.runtime.settings.oauth_settings import OAuthSettings
from callboard.surfaces.http.plain_pages import CONNECT, connecting_page
from tests.support.http_server import http_server
from tests.support.workdir import Workdir

NOW = 1_700_000_000.0
SECRET = "s3cret-of-the-application"


class Service:
    """A provider: gives one token for each code with a known challenge, and one for each renewal token."""

    def __init__(self) -> None:
        self.challenges: dict[str, str] = {}
        self.renewing = {"first-renewal"}
        self.tokens = 0
        self.asked: list[dict[str, str]] = []
        self.authorizations: list[str] = []
        self.says: tuple[int, bytes] | None = None
        self.url = ""

    def allow(self, url: str) -> str:
        """Act as the browser of a user at the provider; return the address of the redirect."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        self.challenges["c0de"] = query["code_challenge"]
        return f"{query['redirect_uri']}?{urlencode({'code': 'c0de', 'state': query['state']})}"

    def answer(self, form: dict[str, str]) -> tuple[int, Any]:
        self.asked.append(form)
        if form["grant_type"] == "authorization_code":
            made = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            good = self.challenges.pop(form["code"], None) == made
        else:
            good = form["refresh_token"] in self.renewing
            self.renewing.discard(form["refresh_token"])
        if not good:
            return 400, {"error": "invalid_grant", "error_description": f"not {form}"}
        self.tokens += 1
        self.renewing = {f"renewal-{self.tokens}"}
        given = {"access_token": f"t0ken-{self.tokens}-of-the-test", "refresh_token": f"renewal-{self.tokens}"}
        return 200, {**given, "expires_in": 3_600, "token_type": "bearer"}


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.authorizations.append(self.headers.get("Authorization", ""))
            status, said = found.answer({name: values[0] for name, values in parse_qs(body).items()})
            status, data = found.says or (status, json.dumps(said).encode())
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    before = os.environ.get("NO_PROXY")
    os.environ["NO_PROXY"] = "127.0.0.1"
    with http_server(Handler) as url:
        found.url = url
        yield found
    os.environ.pop("NO_PROXY") if before is None else os.environ.update(NO_PROXY=before)


def application(service: Service, **more: Any) -> OAuthSettings:
    given = {"client_id": "app", "client_secret": SECRET, "token_url": f"{service.url}/token", **more}
    return OAuthSettings.model_validate(given)


# -- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
async def test_an_account_is_connected_and_renewed(service: Service, provider: str) -> None:
    settings = application(service)
    connecting = Connecting(provider, settings, "http://127.0.0.1:1/callback")
    assert connecting.url.startswith(f"{PROVIDERS[provider].authorize_url}?")
    assert SECRET not in connecting.url
    account = await connecting.account(service.allow(connecting.url), NOW)
    assert account.values == {PROVIDERS[provider].variable: "t0ken-1-of-the-test"}
    assert (account.expires_at, account.ends_soon(NOW), account.ends_soon(NOW + 3_550)) == (NOW + 3_600, False, True)
    assert "t0ken" not in repr(account)
    # The redirect is not accepted a second time.
    asked = len(service.asked)
    with pytest.raises(OAuthFailed):
        await connecting.account(f"/callback?{urlencode({'code': 'c0de', 'state': _state(connecting)})}", NOW)
    del service.asked[asked:], service.authorizations[asked:]
    renewed = await renew_token(provider, settings, account, NOW)
    assert renewed.values == {PROVIDERS[provider].variable: "t0ken-2-of-the-test"}
    secret = base64.b64encode(f"app:{SECRET}".encode()).decode()
    if PROVIDERS[provider].in_header:
        assert service.authorizations == [f"Basic {secret}"] * 2
    else:
        assert [asked["client_secret"] for asked in service.asked] == [SECRET] * 2


def _state(connecting: Connecting) -> str:
    return parse_qs(urlsplit(connecting.url).query)["state"][0]


async def test_an_invalid_callback_connects_no_account(service: Service) -> None:
    connecting = Connecting("github", application(service), "http://127.0.0.1:1/callback")
    back = service.allow(connecting.url)
    other = Connecting("github", application(service), "http://127.0.0.1:1/callback")
    state = parse_qs(urlsplit(back).query)["state"][0]
    for odd in ("", "x", back.replace(state, "x"), f"/callback?state={state}&error=access_denied"):
        with pytest.raises(OAuthFailed):
            await connecting.account(odd, NOW)
    # A stolen code is worthless without the verifier of its request.
    stolen = parse_qs(urlsplit(other.url).query)["state"][0]
    with pytest.raises(OAuthFailed) as caught:
        await other.account(f"/callback?{urlencode({'code': 'c0de', 'state': stolen})}", NOW)
    assert (caught.value.refused, "invalid_grant" in caught.value.message) == (True, True)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("says", "refused"),
    [((500, b"{}"), False), ((200, b"<html>"), False), ((200, b'{"ok": false, "error": "bad_code"}'), True)],
)
async def test_a_failed_renewal_reports_whether_the_provider_refused_it(
    service: Service, says: tuple[int, bytes], refused: bool
) -> None:
    service.says = says
    with pytest.raises(OAuthFailed) as caught:
        await renew_token("slack", application(service), Account({}, "first-renewal"), NOW)
    assert caught.value.refused is refused


@pytest.mark.parametrize(
    "given",
    [
        "{",
        "[]",
        '{"nix": {"client_id": "x"}}',
        '{"slack": {}}',
        '{"slack": {"client_id": "x", "token_url": "http://x"}}',
    ],
)
def test_an_invalid_oauth_application_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid):
        load(env={"CALLBOARD_OAUTH": given}, cwd=tmp_path)


def test_the_secret_of_an_application_is_masked(tmp_path: Path) -> None:
    table = {name: {"client_id": name, "client_secret": f"${{{name.upper()}}}"} for name in ("slack", "github")}
    config = load(env={"CALLBOARD_OAUTH": json.dumps(table), "SLACK": SECRET}, cwd=tmp_path)
    assert SECRET in config.secrets()
    assert SECRET not in json.dumps([config.explain(), config.values(), repr(config)], default=str)
    assert [one.code for one in config.warnings] == ["config.unset"]


# -- renewing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    async with open_connection(load({"data_dir": tmp_path, "sync": "1s"}, env={}, cwd=tmp_path)) as found:
        yield found


async def test_an_account_is_renewed_before_it_ends_and_once(connection: Connection, service: Service) -> None:
    ring, now = Keyring([b"k" * 32]), [NOW]
    kept = Credentials(connection.log, "acme")
    first = Account({"GITHUB_TOKEN": "t0ken-0-of-the-test"}, "first-renewal", int(NOW) + 3_600)
    await kept.put(ring, "github", "ada", first, dt.datetime.fromtimestamp(NOW, dt.UTC))
    wallets = [
        AccountLookup(connection.log, lambda: ring, 1, {"github": application(service)}, lambda: now[0])
        for _ in range(2)
    ]
    assert await wallets[0].account("acme", "ada", "github") == {"GITHUB_TOKEN": "t0ken-0-of-the-test"}
    now[0] = NOW + 3_590
    found: list[Any] = []

    async def look(wallet: AccountLookup) -> None:
        found.append(await wallet.account("acme", "ada", "github"))

    async with anyio.create_task_group() as tasks:
        for wallet in (*wallets, *wallets):
            tasks.start_soon(look, wallet)
    # Of two workers at once, one renews the token and the other uses the old one until then.
    assert {one["GITHUB_TOKEN"] for one in found} <= {"t0ken-0-of-the-test", "t0ken-1-of-the-test"}
    assert service.tokens == 1
    assert await wallets[1].account("acme", "ada", "github") == {"GITHUB_TOKEN": "t0ken-1-of-the-test"}
    now[0] += 4_000
    service.renewing = set()
    with pytest.raises(AccountUnreadable) as caught:
        await wallets[0].account("acme", "ada", "github")
    assert (caught.value.code, caught.value.again) == ("credentials.oauth", False)


async def test_an_account_that_is_removed_while_it_is_renewed_stays_so(
    connection: Connection, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Keyring([b"k" * 32])
    kept = Credentials(connection.log, "acme")
    first = Account({"GITHUB_TOKEN": "t0ken-0-of-the-test"}, "first-renewal", int(NOW))
    await kept.put(ring, "github", "ada", first, dt.datetime.fromtimestamp(NOW, dt.UTC))
    wallet = AccountLookup(connection.log, lambda: ring, 1, {"github": application(service)}, lambda: NOW)

    async def renew_after_removal(*given: Any) -> Account:
        await kept.remove("github", "ada")
        return await renew_token(*given)

    monkeypatch.setattr(oauth, "renew_token", renew_after_removal)
    assert await wallet.account("acme", "ada", "github") is None
    assert (service.tokens, await kept.all()) == (1, [])


# -- at the command line ----------------------------------------------------------------------------------------------


def configured(service: Service, **more: Any) -> dict[str, str]:
    given = {"client_id": "app", "authorize_url": f"{service.url}/ask", "token_url": f"{service.url}/token", **more}
    return {"CALLBOARD_OAUTH": json.dumps({"github": given}), "NO_PROXY": "127.0.0.1"}


@pytest.mark.usefixtures("own_servers")
def test_the_callback_of_a_browser_connects_an_account(service: Service, tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    words = ("credentials", "connect", "github", "--user", "ada", "--json")
    with workdir.process(*words, env=configured(service)) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        back = service.allow(line.split()[1])
        with urllib.request.urlopen(back, timeout=30) as answer:
            assert b"close this page" in answer.read()
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert json.loads(said) == {"provider": "github", "user": "ada", "variables": ["GITHUB_TOKEN"]}
    for secret in (b"t0ken-1-of-the-test", b"renewal-1"):
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_a_pasted_callback_with_another_state_is_refused(service: Service, tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    env = configured(service, redirect_url="https://example.com/back")
    done = workdir.run("credentials", "connect", "github", env=env, stdin="https://example.com/back?code=x&state=y\n")
    assert (done.exit_code, "credentials.oauth" in done.output) == (1, True)
    assert workdir.run("credentials", "connect", "slack", env=env).exit_code == 2


async def test_the_page_of_a_missing_token_names_the_connect_command() -> None:
    assert set(CONNECTED) == set(PROVIDERS)
    app = Starlette(routes=[Route(CONNECT, connecting_page)])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        for provider in CONNECTED:
            found = await client.get(f"{CONNECT_PATH}/{provider}")
            assert (found.status_code, f"credentials connect {provider}" in found.text) == (200, True)
        nothing = await client.get(f"{CONNECT_PATH}/%3Cb%3E")
    assert (nothing.status_code, "<b>" in nothing.text) == (404, False)
