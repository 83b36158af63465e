"""Webhooks: a delivery that its sender has proven starts one run, however often it comes."""

import base64
import datetime as dt
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from callboard.bus.commands import Registration
from callboard.bus.errors import ConfigInvalid
from callboard.features.access.account import Account
from callboard.features.access.credentials import Credentials
from callboard.features.access.keyring import Keyring
from callboard.languages.triggers import Proof
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import Registered, register
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.http import webhooks
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.app import http_app
from callboard.surfaces.http.proofs import WINDOW_S, ReceivedRequest, Unproven, prove, without_tokens
from callboard.surfaces.http.sender_secrets import sender_secrets
from tests.languages.graph.test_triggers import PUSH, document, trigger
from tests.support.http_application import code_of

App = tuple[httpx2.AsyncClient, Connection]

PATIENCE_S = 30.0
SECRET = "a secret of the test"
OTHER = "another secret of it"
NOW = 1_700_000_000

# -- proofs -----------------------------------------------------------------------------------------------------------


def hexed(secret: str, signed: bytes) -> str:
    return hmac.digest(secret.encode(), signed, "sha256").hex()


def sign_github(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={hexed(secret, body)}"}


def sign_slack(body: bytes, secret: str = SECRET, at: int | str = NOW) -> dict[str, str]:
    signature = f"v0={hexed(secret, f'v0:{at}:'.encode() + body)}"
    return {"x-slack-request-timestamp": str(at), "x-slack-signature": signature}


def sign_standard(body: bytes, secret: str = SECRET, at: int = NOW, id: str = "m-1") -> dict[str, str]:
    created = hmac.digest(secret.encode(), f"{id}.{at}.".encode() + body, "sha256")
    signature = f"v1,bm8= v1,{base64.b64encode(created).decode()}"
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}


def is_late(proof: Proof, request: ReceivedRequest, *secrets: str) -> bool | None:
    """Whether an unproven request comes too late; None if it is proven."""
    try:
        prove(proof, request, secrets or (SECRET,), NOW)
    except Unproven as reason:
        return reason.late
    return None


BODY = b'{"n": 1}'


@pytest.mark.parametrize(
    ("proof", "headers", "query"),
    [
        ("github", sign_github(BODY), {}),
        ("slack", sign_slack(BODY), {}),
        ("slack", sign_slack(BODY, at=NOW - WINDOW_S), {}),
        ("signature", sign_standard(BODY), {}),
        ("header", {"authorization": f"Bearer {SECRET}"}, {}),
        ("header", {"x-callboard-token": SECRET}, {}),
        ("query", {}, {"token": SECRET}),
        ("token", {}, {"token": SECRET}),
        ("token", {"authorization": f"bearer {SECRET}"}, {}),
    ],
)
def test_a_request_is_proven_by_one_of_the_secrets_only(
    proof: Proof, headers: dict[str, str], query: dict[str, str]
) -> None:
    request = ReceivedRequest(headers, query, BODY)
    assert is_late(proof, request) is None
    assert is_late(proof, request, OTHER, SECRET) is None
    assert is_late(proof, request, OTHER) is False
    assert is_late(proof, ReceivedRequest({}, {}, BODY)) is False
    if proof in ("github", "slack", "signature"):
        assert is_late(proof, ReceivedRequest(headers, query, BODY + b" ")) is False
    kept_headers, kept_query = without_tokens(proof, request)
    assert SECRET not in json.dumps([kept_headers, kept_query])


@pytest.mark.parametrize("at", [NOW - WINDOW_S - 1, NOW + WINDOW_S + 1])
def test_a_signature_of_another_time_is_too_late(at: int) -> None:
    assert is_late("slack", ReceivedRequest(sign_slack(BODY, at=at), {}, BODY)) is True
    assert is_late("signature", ReceivedRequest(sign_standard(BODY, at=at), {}, BODY)) is True
    # Without the secret, the answer reveals nothing about the clock.
    assert is_late("slack", ReceivedRequest(sign_slack(BODY, OTHER, at), {}, BODY)) is False


def test_a_request_without_time_or_id_is_not_proven() -> None:
    assert is_late("slack", ReceivedRequest(sign_slack(BODY, at="now"), {}, BODY)) is True
    assert is_late("signature", ReceivedRequest(sign_standard(BODY, id=""), {}, BODY)) is False
    assert is_late("query", ReceivedRequest({"authorization": f"Bearer {SECRET}"}, {}, BODY)) is False
    assert is_late("header", ReceivedRequest({}, {"token": SECRET}, BODY)) is False


def test_a_secret_of_standard_webhooks_is_accepted() -> None:
    written = "whsec_" + base64.b64encode(SECRET.encode()).decode()
    assert is_late("signature", ReceivedRequest(sign_standard(BODY), {}, BODY), written) is None


# -- settings ---------------------------------------------------------------------------------------------------------


def test_secrets_are_resolved_and_not_shown(tmp_path: Path) -> None:
    file = '[webhooks]\n"desk/hook" = ["${NEW}", "0ld-secret"]\n"desk/other" = "${GONE}"\n'
    (tmp_path / "callboard.toml").write_text(file)
    config = load(env={"NEW": SECRET}, cwd=tmp_path)
    assert config.webhooks["desk/hook"].reveal() == [SECRET, "0ld-secret"]
    assert {SECRET, "0ld-secret"} <= set(config.secrets())
    shown = json.dumps([config.explain(), config.values(), repr(config)], default=str)
    assert SECRET not in shown
    assert "0ld-secret" not in shown
    assert [one.code for one in config.warnings] == ["config.unset"]


@pytest.mark.parametrize("given", ["{", "[]", '{"desk": "0123456789"}', '{"a/b": 1}', '{"a/b": "short"}'])
def test_a_malformed_table_of_secrets_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(env={"CALLBOARD_WEBHOOKS": given}, cwd=tmp_path)
    assert [one.code for one in caught.value.problems] == ["config.value"]
    assert "short" not in str(caught.value).replace("too short", "")


# -- requests ---------------------------------------------------------------------------------------------------------

DESK = document(
    trigger("WEBHOOK", "hook", webhook_path="/orders", authentication="signature"),
    trigger("WEBHOOK", "open", webhook_path="/open", allowed_methods=["POST", "GET"], response_format="text"),
    trigger("WEBHOOK", "named", webhook_path="/named", authentication="query_param", response_format="html"),
    trigger("GITHUB", "pushed", repository="acme/shop", events=["push"]),
    {**trigger("SLACK", "said"), "configurations": {"workspace_id": "T1", "bot_token": "x", "events": ["message"]}},
    trigger("WEBHOOK", "forgotten", webhook_path="/forgotten", authentication="header_token"),
    trigger("MANUAL", "by_hand"),
)
KEYRING = Keyring([b"k" * 32])
SECRETS = {f"desk/{name}": [SECRET] for name in ("hook", "named", "pushed", "said")}


@pytest.fixture(scope="module")
async def webhook_app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """A worker, and the application with a registered definition, without a socket."""
    home = tmp_path_factory.mktemp("desk")
    flags = {"data_dir": home, "sync": "1s", "tenant": "acme", "partitions": 2}
    async with open_connection(load(flags, env={}, cwd=home), "test") as connection, open_worker(connection, env={}):
        app = http_app(
            connection.log,
            "acme",
            {},
            access=Access(open=True),
            secrets=sender_secrets(SECRETS, Credentials(connection.log, "acme"), lambda: KEYRING),
        )
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/in/acme/desk") as client:
            wanted = Registration(source=json.dumps(DESK), name="desk")
            assert isinstance(await register(connection.log, Definitions(), "acme", wanted), Registered)
            yield client, connection


async def send(
    client: httpx2.AsyncClient, path: str, body: Any, headers: dict[str, str], **more: Any
) -> httpx2.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {"content-type": "application/json"}
    return await client.request(more.pop("method", "POST"), path, content=data, headers=kind | headers, **more)


async def input_of(connection: Connection, run: str) -> Any:
    """The input of a run that has ended."""
    end = f"cb.run.acme.{run}.*.run.end"
    with anyio.fail_after(PATIENCE_S):
        async with connection.log.follow(end, 0) as feed:
            async for _ in feed:
                break
    events = await connection.client.events(run)
    return json.loads(bytes(events[0].payload))["start"]["input"]


def sign_now(body: Any, **more: Any) -> dict[str, str]:
    return sign_standard(json.dumps(body).encode(), at=int(time.time()), **more)


async def test_a_signed_request_becomes_one_run(webhook_app: App) -> None:
    client, connection = webhook_app
    order = {"n": 2**60, "name": "Ada"}
    done = await send(client, "/orders", order, sign_now(order), params={"q": "1"})
    assert (done.status_code, done.json()) == (202, {"status": "stored", "run_id": "desk-hook-m-1"})
    given = await input_of(connection, "desk-hook-m-1")
    for path in ("/orders", "/hook"):
        # The same delivery again, at either of its addresses.
        assert (await send(client, path, order, sign_now(order))).json()["run_id"] == "desk-hook-m-1"
    assert (given["body"], given["method"], given["path"]) == (order, "POST", "/orders")
    assert given["query_params"] == {"q": "1"}
    events = await connection.client.events("desk-hook-m-1")
    assert [event.type for event in events].count("run.accepted") == 1


async def test_equal_keys_of_different_senders_start_different_runs(webhook_app: App) -> None:
    client, connection = webhook_app
    # Another trigger of the document, and the document under another name, have other senders.
    wanted = Registration(source=json.dumps(DESK), name="branch")
    assert isinstance(await register(connection.log, Definitions(), "acme", wanted), Registered)
    named = {"idempotency-key": "7"}
    for path, body in (("/open", 1), ("/named", 2), ("http://localhost/in/acme/branch/open", 3)):
        run = path.rpartition("/in/acme/")[2].replace("/", "-") if "branch" in path else f"desk-{path[1:]}"
        done = await send(client, path, {"n": body}, named, params={"token": SECRET})
        assert done.status_code == 202
        assert (await input_of(connection, f"{run}-7"))["body"] == {"n": body}


async def test_a_request_without_proof_starts_nothing(webhook_app: App) -> None:
    client, _ = webhook_app
    forged = {**sign_now({"n": 1}), "webhook-id": "m-2"}
    rebound = {"host": "evil.org:8724", "origin": "http://evil.org:8724", "callboard-page": "1"}
    old = sign_standard(b'{"n": 1}', at=int(time.time()) - 2 * WINDOW_S)
    cases: list[tuple[str, dict[str, str], tuple[int, str]]] = [
        ("/orders", {}, (401, "webhook.unproven")),
        ("/orders", forged, (401, "webhook.unproven")),
        ("/orders", old, (401, "webhook.late")),
        ("/named?token=wrong", {}, (401, "webhook.unproven")),
        ("/pushed", {"x-github-event": "push"}, (401, "webhook.unproven")),
        ("/said", {}, (401, "webhook.unproven")),
        ("/forgotten", {"authorization": "Bearer "}, (403, "webhook.no_secret")),
        ("/by_hand", {}, (404, "webhook.unknown")),
        ("/nix", {}, (404, "webhook.unknown")),
        ("http://localhost/in/acme/nix/hook", {}, (404, "webhook.unknown")),
        ("http://localhost/in/other/desk/hook", sign_now({"n": 1}), (404, "webhook.unknown")),
        ("/open", {"host": "evil.org"}, (403, "http.host")),
        # A page that rebinds its host name to this address can set a cookie, but not a valid token.
        ("/open", {**rebound, "cookie": "callboard-8724=eA=="}, (401, "http.unauthorized")),
        ("/open", {"origin": "http://evil.org"}, (403, "http.origin")),
        ("/open", {"sec-fetch-site": "cross-site"}, (403, "http.origin")),
        ("/open", {"content-type": "text/plain"}, (415, "http.media_type")),
    ]
    for path, headers, expected in cases:
        done = await send(client, path, {"n": 1}, headers)
        assert code_of(done) == expected, path
    done = await send(client, "/orders", b"", {}, method="GET")
    assert code_of(done) == (405, "http.method")
    assert done.headers["allow"] == "POST"
    done = await send(client, "/pushed", b"{", sign_github(b"{"))
    assert code_of(done) == (400, "api.malformed")
    done = await send(client, "/pushed", b"\xff", sign_github(b"\xff"))
    assert code_of(done) == (415, "http.media_type")


async def test_a_trigger_without_proof_needs_the_access_of_a_start(webhook_app: App) -> None:
    client, connection = webhook_app
    done = await client.get("/open", params={"q": "1"}, headers={"idempotency-key": "k-1"})
    assert (done.status_code, done.text) == (202, "stored desk-open-k-1\n")
    assert (await input_of(connection, "desk-open-k-1"))["query_params"] == {"q": "1"}
    behind = http_app(connection.log, "acme", {}, access=Access("t0ken", open=True))
    base = "http://example.org/in/acme/desk"
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(behind), base_url=base) as other:
        assert (await other.get("/open")).status_code == 401
        assert (await other.get("/open", headers={"authorization": "Bearer t0ken"})).status_code == 202


async def test_a_secret_of_the_credentials_is_accepted(webhook_app: App) -> None:
    client, connection = webhook_app
    kept = Credentials(connection.log, "acme")
    now = dt.datetime.now(dt.UTC)
    secrets = {"WEBHOOK_SECRET": "a new secret", "WEBHOOK_SECRET_2": "an old secret"}
    await kept.put(KEYRING, "webhook:desk/forgotten", "", Account(secrets), now)
    for number, secret in enumerate(secrets.values()):
        headers = {"authorization": f"Bearer {secret}", "idempotency-key": f"kept-{number}"}
        assert (await send(client, "/forgotten", {"n": 1}, headers)).status_code == 202
        assert (await input_of(connection, f"desk-forgotten-kept-{number}"))["body"] == {"n": 1}
    # Refused: a secret of another tenant, and one that was encrypted with a missing key.
    await Credentials(connection.log, "other").put(KEYRING, "webhook:desk/forgotten", "", Account({"S": SECRET}), now)
    headers = {"authorization": f"Bearer {SECRET}"}
    assert (await send(client, "/forgotten", {"n": 1}, headers)).status_code == 401
    await kept.put(Keyring([b"x" * 32]), "webhook:desk/forgotten", "", Account(secrets), now)
    done = await send(client, "/forgotten", {"n": 1}, {"authorization": "Bearer a new secret"})
    assert code_of(done) == (503, "credentials.key")
    await kept.remove("webhook:desk/forgotten", "")
    done = await send(client, "/forgotten", {"n": 1}, {"authorization": "Bearer a new secret"})
    assert code_of(done) == (403, "webhook.no_secret")


async def test_secrets_of_a_request_are_not_recorded(webhook_app: App) -> None:
    client, connection = webhook_app
    headers = {"idempotency-key": "k-2", "cookie": f"a={SECRET}", "content-type": "application/x-www-form-urlencoded"}
    done = await client.post(
        "/named", params={"token": SECRET, "q": "1"}, headers=headers, content=b"name=<b>Ada</b>&empty="
    )
    assert (done.status_code, done.headers["content-type"]) == (202, "text/html; charset=utf-8")
    assert "default-src 'none'" in done.headers["content-security-policy"]
    given = await input_of(connection, "desk-named-k-2")
    assert (given["body"], given["query_params"]) == ({"name": "<b>Ada</b>", "empty": ""}, {"q": "1"})
    assert SECRET not in "".join(repr(event) for event in await connection.client.events("desk-named-k-2"))


async def test_requests_of_github_and_slack_become_runs(webhook_app: App) -> None:
    client, connection = webhook_app
    body = json.dumps(PUSH).encode()
    github = {"x-github-event": "push", "x-github-delivery": "d-1"}
    done = await send(client, "/pushed", body, sign_github(body) | github)
    assert done.json() == {"status": "stored", "run_id": "desk-pushed-d-1"}
    assert (await input_of(connection, "desk-pushed-d-1"))["commit_sha"] == "abc"
    passed = await send(client, "/pushed", body, sign_github(body) | {**github, "x-github-event": "ping"})
    assert (passed.status_code, passed.json()["status"]) == (200, "passed_over")
    challenge = json.dumps({"type": "url_verification", "challenge": "c-1", "token": "old"}).encode()
    done = await send(client, "/said", challenge, sign_slack(challenge, at=int(time.time())))
    assert (done.status_code, done.json()) == (200, {"challenge": "c-1"})
    result = {"type": "event_callback", "team_id": "T1", "event_id": "Ev" + "1" * 200}
    event = {"type": "message", "channel": "C1", "user": "U1", "text": "Hello"}
    body = json.dumps({**result, "event": event}).encode()
    runs = [
        (await send(client, "/said", body, sign_slack(body, at=int(time.time())))).json()["run_id"] for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert (await input_of(connection, runs[0]))["message_text"] == "Hello"


async def test_a_body_that_is_too_large_or_too_slow_is_refused(
    webhook_app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = webhook_app
    monkeypatch.setattr(webhooks, "START_BYTES_MAX", 10)
    done = await send(client, "/pushed", b"x" * 11, {})
    assert code_of(done) == (413, "http.too_large")
    monkeypatch.setattr(webhooks, "BODY_WAIT_S", 0.01)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await anyio.sleep_forever()

    done = await client.post("/pushed", content=never())
    assert code_of(done) == (408, "http.slow")


async def test_a_start_that_cannot_be_stored_is_not_acknowledged(
    webhook_app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = webhook_app
    monkeypatch.setattr(webhooks, "STORE_WAIT_S", 0.01)

    async def silent(*_: Any) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(webhooks.Client, "store", silent)
    done = await send(client, "/orders", {"n": 1}, sign_now({"n": 1}, id="m-3"))
    assert code_of(done) == (503, "log.unavailable")
