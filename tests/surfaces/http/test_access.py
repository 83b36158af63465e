"""Access over HTTP: keys, tokens of a provider, their scopes and rates, and the recorded names of callers."""

import base64
import datetime as dt
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from callboard.bus.commands import Answer
from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import payload_of
from callboard.features.access import keys as keys_module
from callboard.features.access.keys import ApiKeys, ApiKeyUnknown, KeyExists
from callboard.features.access.rates import Rates
from callboard.features.access.subject import NOBODY, OPERATOR, SCOPES, Subject
from callboard.features.access.tokens import LEEWAY_S, ProviderSilent, TokenRefused, Tokens
from callboard.features.access.vouchers import Vouchers
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.runtime.settings.oidc_settings import OidcSettings
from callboard.service.operations.operation import ApiError
from callboard.service.operations.operations import Operations
from callboard.service.operations.run_lists import Listings
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.engine.routes import engine_routes
from callboard.surfaces.http import app as app_module
from callboard.surfaces.http import live
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.app import http_app
from callboard.surfaces.http.login import COOKIE
from callboard.surfaces.http.metrics import Metrics
from callboard.surfaces.http.routes import ROUTES
from tests.support.flows import flow, returned
from tests.support.http_application import code_of
from tests.support.identity import ISSUER, Provider
from tests.surfaces.http.test_http import LONG, ONE

PATIENCE_S = 30.0


# -- rates ------------------------------------------------------------------------------------------------------------


def test_a_caller_above_its_rate_waits_for_the_next_token() -> None:
    rates = Rates(per_s=2.0, burst=3)
    assert [rates.wait_s("a", 10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rates.wait_s("b", 10.0) == 0.0
    assert rates.wait_s("a", 10.5) == 0.0
    assert rates.wait_s("a", 10.5) == 0.5
    assert [rates.wait_s("a", 100.0) for _ in range(4)][-1] == 0.5


# -- tokens -----------------------------------------------------------------------------------------------------------

SETTINGS = OidcSettings(issuer=ISSUER, audience="callboard", tenants_claim="tenants")


async def test_a_token_of_the_provider_names_the_subject_and_its_scopes() -> None:
    provider = Provider()
    tokens = Tokens(SETTINGS, "acme", transport=provider.transport())
    found = await tokens.subject(provider.token(scope="callboard:read openid callboard:answer callboard:nix"))
    assert found == Subject("user:ada", frozenset({"read", "answer"}))
    assert (await tokens.subject(provider.token())).scopes == frozenset()
    assert provider.asked == 1


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": int(time.time()) - 3_600},
        {"exp": None},
        {"aud": "other"},
        {"aud": None},
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"nbf": int(time.time()) + 3_600},
        {"sub": None},
        {"tenants": ["other"]},
        {"tenants": None},
    ],
)
async def test_a_token_with_wrong_claims_is_refused(claims: Mapping[str, Any]) -> None:
    provider = Provider()
    with pytest.raises(TokenRefused):
        await Tokens(SETTINGS, "acme", transport=provider.transport()).subject(provider.token(**claims))


async def test_a_forged_token_is_refused() -> None:
    provider, other = Provider(), Provider()
    tokens = Tokens(SETTINGS, "acme", transport=provider.transport())
    claims = {"iss": ISSUER, "aud": "callboard", "sub": "eve", "exp": int(time.time()) + 60, "tenants": "acme"}
    forged = [
        other.token(),
        jwt.encode(claims, "", "none", {"kid": "k-1"}),
        jwt.encode(claims, "secret" * 8, "HS256", {"kid": "odd"}),
        jwt.encode(claims, "secret" * 8, "HS256", {"kid": "k-1"}),
        "a.b.c",
        "nix",
    ]
    for token in forged:
        with pytest.raises(TokenRefused):
            await tokens.subject(token)


async def test_keys_of_the_provider_are_fetched_again_for_a_new_one_with_a_bound() -> None:
    provider, now = Provider(), [0.0]
    tokens = Tokens(SETTINGS, "acme", transport=provider.transport(), now=lambda: now[0])
    await tokens.subject(provider.token())
    provider.keys["k-2"] = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(TokenRefused):
        await tokens.subject(provider.token("k-2"))
    assert provider.asked == 1
    now[0] = 11.0
    assert (await tokens.subject(provider.token("k-2"))).name == "user:ada"
    del provider.keys["k-1"]
    provider.away = True
    now[0] = 2_000.0
    # Known keys are kept while the provider does not answer.
    assert (await tokens.subject(provider.token("k-2"))).name == "user:ada"
    with pytest.raises(ProviderSilent):
        await Tokens(SETTINGS, "acme", transport=provider.transport()).subject(provider.token("k-2"))


@pytest.mark.parametrize(
    "given", ["{", "[]", '{"issuer": "https://x"}', '{"issuer": "http://id.example.com", "audience": "a"}']
)
def test_a_malformed_provider_setting_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(env={"CALLBOARD_OIDC": given}, cwd=tmp_path)
    assert {one.code for one in caught.value.problems} == {"config.value"}


# -- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def connection(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    home = tmp_path_factory.mktemp("access")
    flags = {"data_dir": home, "sync": "1s", "tenant": "acme", "partitions": 2, "allow_scripts": True}
    async with open_connection(load(flags, env={}, cwd=home), "test") as found, open_worker(found, env={}):
        yield found


class Caller:
    """Sends requests with a token to the application with some access rules."""

    def __init__(self, connection: Connection, access: Access, tasks: Any) -> None:
        operations = Operations(connection.log, Definitions(), Listings(connection.log, tasks)).operations()
        engine = engine_routes(connection.log, "acme", operations)
        app = http_app(connection.log, "acme", operations, access=access, more=engine)
        base = "http://localhost/api/acme"
        self._client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=base, timeout=PATIENCE_S)

    async def ask(self, token: str | None, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return await self._client.request(method, path, headers={**headers, **more.pop("headers", {})}, **more)

    async def code(self, token: str | None, method: str, path: str, **more: Any) -> tuple[int, str]:
        answer = await self.ask(token, method, path, **more)
        return answer.status_code, answer.json().get("error", {}).get("code", "")


@asynccontextmanager
async def open_caller(connection: Connection, access: Access) -> AsyncGenerator[Caller]:
    async with anyio.create_task_group() as tasks:
        yield Caller(connection, access, tasks)
        tasks.cancel_scope.cancel()


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def test_a_key_permits_its_scopes_until_it_is_removed(connection: Connection) -> None:
    keys = ApiKeys(connection.log, "acme")
    reader, kept = await keys.add("reader", ["read"], now())
    assert reader.split("_", 2)[2] not in repr(kept)
    starter, _ = await keys.add("starter", ["start"], now())
    past, _ = await keys.add("past", list(SCOPES), now(), now() - dt.timedelta(seconds=1))
    with pytest.raises(KeyExists):
        await keys.add("reader", ["operate"], now())
    async with open_caller(connection, Access(open=True, keys=keys)) as caller:
        assert await caller.code(reader, "GET", "/runs") == (200, "")
        assert await caller.code(reader, "POST", "/runs", json=ONE) == (403, "http.scope")
        assert await caller.code(starter, "GET", "/live") == (403, "http.scope")
        assert await caller.code(starter, "POST", "/runs", json=ONE) == (202, "")
        assert await caller.code(starter, "POST", "/schedules/x/pause") == (403, "http.scope")
        # Once a key exists, every request needs a valid one.
        for token in (None, past, reader[:-1], reader[:-1] + "_", "cbk_000000000000_" + "x" * 43, "t0ken"):
            assert await caller.code(token, "GET", "/runs") == (401, "http.unauthorized")
        basic = {"authorization": "Basic eDp5"}
        assert await caller.code(None, "GET", "/runs", headers=basic) == (401, "http.unauthorized")
        # With a key, the host name is not checked, because of proxies.
        assert await caller.code(reader, "GET", "/runs", headers={"host": "callboard.example.org"}) == (200, "")
        assert await caller.code("nix", "GET", "/runs", headers={"host": "evil.org"}) == (401, "http.unauthorized")
        await keys.remove("reader")
        assert await caller.code(reader, "GET", "/runs") == (401, "http.unauthorized")
        with pytest.raises(ApiKeyUnknown):
            await keys.remove("reader")
        # A key belongs to one tenant.
        assert await ApiKeys(connection.log, "other").find_key(starter, now()) is None


async def test_a_follower_is_disconnected_when_its_access_ends(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KNOWN_S", 0.01)
    keys = ApiKeys(connection.log, "acme")
    follower, _ = await keys.add("follower", ["read"], now())
    provider = Provider()
    tokens = Tokens(SETTINGS, "acme", transport=provider.transport())
    ending = provider.token(scope="callboard:read", exp=int(now().timestamp()) - LEEWAY_S + 3)
    begun, all_begun = list[Any](), anyio.Event()
    found: list[httpx2.Response] = []

    class CountedLive(live.Live):
        async def __call__(self, *args: Any) -> None:
            begun.append(self)
            if len(begun) == 2:
                all_begun.set()
            await super().__call__(*args)

    monkeypatch.setattr(app_module, "Live", CountedLive)

    async def follow(caller: Caller, token: str) -> None:
        found.append(await caller.ask(token, "GET", "/live"))

    async with open_caller(connection, Access(keys=keys, tokens=tokens)) as caller:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as following:
                for token in (follower, ending):
                    following.start_soon(follow, caller, token)
                await all_begun.wait()
                await keys.remove("follower")
        assert [one.status_code for one in found] == [200] * 2
        assert all(re.fullmatch(r": live\n\n(id: \d+\n\n)?", one.text) for one in found)
        assert await caller.code(follower, "GET", "/live") == (401, "http.unauthorized")


async def test_the_log_records_the_sender_of_a_command(connection: Connection) -> None:
    keys = ApiKeys(connection.log, "acme")
    key, _ = await keys.add("ci", list(SCOPES), now())
    async with open_caller(connection, Access("0perator", open=True, keys=keys)) as caller:
        # A key cannot name another caller; the operator can.
        commands: list[tuple[str, dict[str, str], str]] = [
            (key, {"by": "eve"}, "key:ci"),
            ("0perator", {}, "operator"),
            ("0perator", {"by": "ada"}, "ada"),
        ]
        for n, (token, body, name) in enumerate(commands):
            run = f"commanded-{n}"
            assert await caller.code(token, "POST", "/runs", json={**LONG, **body, "run_id": run}) == (202, "")
            path = f"/runs/{run}/cancel"
            assert await caller.code(token, "POST", path, json=body, params={"wait_s": "20"}) == (202, "")
            events = {event.type: payload_of(event) for event in await connection.client.events(run)}
            assert events["run.accepted"].start["by"] == name  # pyright: ignore[reportAttributeAccessIssue]
            assert events["cancel.requested"].by == name  # pyright: ignore[reportAttributeAccessIssue]
        source = json.dumps(flow({"r": returned(1)}))
        assert (await caller.ask(key, "POST", "/definitions", json={"name": "d", "source": source})).status_code == 200
        assert (await caller.ask(None, "GET", "/definitions/d")).status_code == 401
        assert (await caller.ask(key, "GET", "/definitions/d")).json()["by"] == "key:ci"
        start = {"definition": {"name": "d"}}
        daily = {"name": "daily", "when": {"cron": "0 9 * * *"}, "start": start}
        assert (await caller.ask(key, "POST", "/schedules", json=daily)).status_code == 200


REVIEW = {
    "metadata": {"id": "pay", "name": "pay", "created_by": "u"},
    "nodes": [
        {
            "id": "h",
            "name": "h",
            "type": "HUMAN_IN_THE_LOOP",
            "subtype": "MANUAL_REVIEW",
            "configurations": {"interaction_type": "review", "message": "Pay?", "reviewer_roles": ["cfo"]},
        }
    ],
}


async def start_review(connection: Connection, caller: Caller, run: str) -> None:
    start = {"definition": {"source": json.dumps(REVIEW)}, "run_id": run}
    assert await caller.code("0perator", "POST", "/runs", json=start) == (202, "")
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type="human.asked") as asked:
            await anext(asked)


async def test_only_an_authenticated_role_answers_a_review(connection: Connection) -> None:
    keys = ApiKeys(connection.log, "acme")
    plain, _ = await keys.add("clerk", ["answer"], now())
    chief, _ = await keys.add("chief", ["answer"], now(), roles=["cfo"])
    async with open_caller(connection, Access("0perator", keys=keys)) as caller:
        await start_review(connection, caller, "pay-1")
        body = {"interaction": "h#1.1!ask", "user_response": "approve"}
        path, wait = "/runs/pay-1/answer", {"wait_s": "20"}
        for token, more in ((plain, {}), ("0perator", {"by": "key:chief"}), (chief, {"interaction": ""})):
            found = await caller.ask(token, "POST", path, json={**body, **more}, params=wait)
            assert code_of(found) == (409, "answer.not_understood")
            assert "has the role cfo" in found.json()["error"]["message"]
        rejecting = Answer(**{**body, "user_response": "reject", "by": "key:chief"})
        copied = await Vouchers(connection.log, "acme").made("pay-1", rejecting, ["cfo"])
        for forged in ("x.y", copied, f"{copied[:-4]}AAAA"):
            verdict = await connection.client.tell("pay-1", "answer", Answer(**body, by="key:chief", voucher=forged))
            assert [problem.code for problem in verdict.problems] == ["tell.voucher"]
        assert await caller.code(chief, "POST", path, json=body, params=wait) == (202, "")
        answered = [payload_of(one) for one in await connection.client.events("pay-1") if one.type == "human.answered"]
        found = [(one.by, one.roles, one.proven) for one in answered]  # pyright: ignore[reportAttributeAccessIssue]
        assert found == [
            ("key:clerk", [], True),
            ("key:chief", [], False),
            ("key:chief", [], False),
            ("key:chief", ["cfo"], True),
        ]


async def test_the_engine_api_authenticates_roles(connection: Connection) -> None:
    keys = ApiKeys(connection.log, "acme")
    plain, _ = await keys.add("aide", ["answer"], now())
    chief, _ = await keys.add("head", ["answer"], now(), roles=["cfo"])
    async with open_caller(connection, Access("0perator", keys=keys)) as caller:
        await start_review(connection, caller, "pay-2")
        resume = {"node_id": "h", "user_response": {"approved": True}}
        for token, status in ((plain, 409), (chief, 200)):
            found = await caller.ask(token, "POST", "http://localhost/v2/executions/pay-2/resume", json=resume)
            assert found.status_code == status, found.text


async def test_a_request_above_the_rate_is_refused_with_a_wait(connection: Connection) -> None:
    keys = ApiKeys(connection.log, "acme")
    key, _ = await keys.add("often", ["read"], now())
    async with open_caller(connection, Access("0perator", keys=keys, rates=Rates(0.1, 2))) as caller:
        answers = [await caller.ask(key, "GET", "/runs") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[-1].json()["error"]["code"] == "http.rate"
        assert answers[-1].headers["retry-after"] == "10"
        assert await caller.code("0perator", "GET", "/runs") == (200, "")


async def test_a_token_of_the_provider_permits_its_scopes(connection: Connection) -> None:
    provider = Provider()
    tokens = Tokens(SETTINGS, "acme", transport=provider.transport())
    async with open_caller(connection, Access(open=True, tokens=tokens)) as caller:
        assert await caller.code(provider.token(scope="callboard:read"), "GET", "/runs") == (200, "")
        assert await caller.code(provider.token(), "GET", "/runs") == (403, "http.scope")
        assert await caller.code(provider.token(exp=1), "GET", "/runs") == (401, "http.unauthorized")
        assert await caller.code(None, "GET", "/runs") == (401, "http.unauthorized")
    provider.away = True
    async with anyio.create_task_group() as tasks:
        silent = Tokens(SETTINGS, "acme", transport=provider.transport())
        caller = Caller(connection, Access(open=True, tokens=silent), tasks)
        assert await caller.code(provider.token(), "GET", "/runs") == (503, "http.provider")
        tasks.cancel_scope.cancel()


async def test_forged_expired_and_foreign_tokens_are_refused_on_every_route(connection: Connection) -> None:
    """As bearer tokens and as cookies of a page."""
    past = now() - dt.timedelta(seconds=1)
    keys, others = ApiKeys(connection.log, "acme"), ApiKeys(connection.log, "other")
    good, _ = await keys.add("good", list(SCOPES), now())
    late, _ = await keys.add("late", list(SCOPES), now(), past)
    theirs, _ = await others.add("theirs", list(SCOPES), now())
    provider, impostor = Provider(), Provider()
    every = " ".join(f"callboard:{scope}" for scope in SCOPES)
    bad = [
        late,
        theirs,
        f"{good.rpartition('_')[0]}_{theirs.rpartition('_')[2]}",
        provider.token(scope=every, exp=1),
        provider.token(scope=every, tenants=["other"]),
        provider.token(scope=every, aud="another"),
        impostor.token(scope=every),
        "0perato",
    ]
    async with anyio.create_task_group() as tasks:
        operations = Operations(connection.log, Definitions(), Listings(connection.log, tasks)).operations()
        tokens = Tokens(SETTINGS, "acme", transport=provider.transport())
        engine = engine_routes(connection.log, "acme", operations)
        metrics = Metrics(connection, Listings(connection.log, tasks), tasks)
        access = Access("0perator", keys=keys, tokens=tokens)
        app = http_app(connection.log, "acme", operations, access, metrics=metrics, more=engine)
        ours = [(route.method, f"/api/acme{route.path}") for route in ROUTES]
        engines = [(method, route.path) for route in engine for method in route.methods or ()]
        alone = [("GET", path) for path in ("/api/acme/live", "/openapi.json", "/metrics", "/schemas/events.json")]
        page = {"origin": "http://localhost", "callboard-page": "1"}
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for method, path in [*ours, *engines, *alone]:
                place = re.sub(r"{[^}]*}", "x", path)
                for token in bad:
                    cookie = f"{COOKIE}={base64.urlsafe_b64encode(token.encode()).decode()}"
                    for headers in ({"authorization": f"Bearer {token}"}, {"cookie": cookie, **page}):
                        answer = await client.request(method, place, headers=headers)
                        assert answer.status_code == 401, (method, place, headers, answer.text)
            assert (await client.get("/api/acme/runs", headers={"authorization": f"Bearer {good}"})).status_code == 200
        tasks.cancel_scope.cancel()


async def test_the_loopback_needs_no_key_until_one_exists(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "ANY_FRESH_S", 0.0)
    keys = ApiKeys(connection.log, "fresh")
    access = Access(open=True, keys=keys)
    scope = {"type": "http", "headers": []}
    assert await access.subject(scope) == NOBODY
    await keys.add("first", ["read"], now())
    with pytest.raises(ApiError):
        await access.subject(scope)
    bearer = {"type": "http", "headers": [(b"authorization", b"Bearer 0perator")]}
    assert await Access("0perator").subject(bearer) == OPERATOR


async def test_every_key_is_listed_after_others_were_removed(connection: Connection) -> None:
    keys = ApiKeys(connection.log, "many")
    assert await ApiKeys(connection.log, "many").all() == []
    for number in range(20):
        await keys.add(f"k{number}", ["read"], now())
    for number in range(0, 20, 2):
        await keys.remove(f"k{number}")
    expected = [f"k{number}" for number in range(1, 20, 2)]

    async def look() -> None:
        assert [key.name for key in await ApiKeys(connection.log, "many").all()] == expected

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(look)
    for name in expected:
        await keys.remove(name)
    assert await ApiKeys(connection.log, "many").any() is False


def test_every_route_has_a_scope() -> None:
    found = {f"{route.method} {route.path}": route.scope for route in ROUTES}
    assert {path for path, scope in found.items() if path.startswith("GET ") and scope != "read"} == {"GET /access"}
    assert found["GET /access"] == "operate"
    assert found["POST /runs"] == "start"
    assert [path for path, scope in found.items() if scope == "answer"] == ["POST /runs/{run_id}/answer"]
    assert found["POST /runs/{run_id}/kill"] == "operate"
