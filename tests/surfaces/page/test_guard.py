"""The guard of the page and of its API: which requests every changing route refuses, without recording anything."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from callboard.bus.nats.jetstream_api import api
from callboard.runtime.client.connection import Connection
from callboard.surfaces.http.access import Authentication
from callboard.surfaces.http.app import SAFE, Guard
from callboard.surfaces.http.login import PATH as LOGIN
from callboard.surfaces.http.login import Login
from tests.support.flows import flow, returned
from tests.support.http_application import application, code_of, served

TOKEN = "t0ken"
START = {"definition": {"source": json.dumps(flow({"r": returned(1)}))}}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PLACES = {"tenant": "acme", "run_id": "nix", "name": "nix", "id": "nix", "sha256": "0", "n": "1", "key": "nix"}


class Deployment(NamedTuple):
    """A server and its guarded routes."""

    client: httpx2.AsyncClient
    connection: Connection
    routes: list[tuple[str, str]]

    @property
    def own(self) -> str:
        """The origin of its page."""
        return str(self.client.base_url.join("/")).rstrip("/")

    async def check_refused(self, expected: tuple[int, str], headers: dict[str, str]) -> None:
        """Check that every route refuses a request with these headers, and that nothing is recorded."""
        before = await self.last_sequence()

        async def ask(method: str, path: str) -> None:
            url = self.client.base_url.join(path.format(**PLACES))
            whole = {"token": TOKEN} if path == LOGIN else START
            sent: dict[str, Any] = {"content": b"token=t0ken"} if FORM.items() <= headers.items() else {"json": whole}
            answer = await self.client.request(method, url, headers=headers, **sent)
            assert code_of(answer) == expected, (method, path)

        async with anyio.create_task_group() as tasks:
            for method, path in self.routes:
                tasks.start_soon(ask, method, path)
        assert await self.last_sequence() == before

    async def last_sequence(self) -> int:
        """The sequence of the last message of the whole stream."""
        log = self.connection.log
        return (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["state"]["last_seq"]


def find_guarded_routes(app: object) -> Iterator[tuple[str, str]]:
    """The changing routes that the guard protects; routes outside of it authenticate their senders otherwise."""
    if isinstance(app, Starlette):
        for route in app.routes:
            if isinstance(route, Mount):
                yield from find_guarded_routes(route.app)
            elif isinstance(route, Route):
                yield from ((method, route.path) for method in route.methods or () if method not in SAFE)
    elif isinstance(app, Guard | Login | Authentication):
        for inner in vars(app).values():
            yield from find_guarded_routes(inner)


def find_changing_routes(connection: Connection, tasks: TaskGroup) -> list[tuple[str, str]]:
    whole = application(connection, tasks)
    assert isinstance(whole, Starlette)
    [mounted] = [route.app for route in whole.routes if isinstance(route, Mount)]
    found = [(method, path.replace(":path}", "}")) for method, path in find_guarded_routes(mounted)]
    return [("POST", LOGIN), *sorted(found)]


async def open_deployment(home: Path, token: str | None) -> AsyncIterator[Deployment]:
    async with served(home, token) as (client, connection), anyio.create_task_group() as tasks:
        yield Deployment(client, connection, find_changing_routes(connection, tasks))


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async for one in open_deployment(tmp_path_factory.mktemp("open"), None):
        yield one


@pytest.fixture(scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async for one in open_deployment(tmp_path_factory.mktemp("locked"), TOKEN):
        yield one


async def test_the_guarded_routes_are_found(deployment: Deployment) -> None:
    assert {method for method, _ in deployment.routes} == {"POST", "PUT", "DELETE"}
    assert {"/login", "/api/{tenant}/runs", "/v2/execute", "/api/{tenant}/schedules/{name}"} <= {
        path for _, path in deployment.routes
    }
    assert len(deployment.routes) > 20


@pytest.mark.parametrize("host", ["evil.org", "127.0.0.1.evil.org", "localhost.evil.org:8723", ""])
async def test_a_foreign_host_name_is_check_refused(deployment: Deployment, host: str) -> None:
    await deployment.check_refused((403, "http.host"), {"Host": host})


@pytest.mark.parametrize("origin", ["http://evil.org", "null", "https://127.0.0.1.evil.org"])
async def test_a_foreign_origin_is_check_refused(deployment: Deployment, origin: str) -> None:
    await deployment.check_refused((403, "http.origin"), {"Origin": origin})
    # Also with the header of our page, and as a form, which a browser sends without a preflight request.
    await deployment.check_refused((403, "http.origin"), {"Origin": origin, "Callboard-Page": "1"})
    await deployment.check_refused((403, "http.origin"), {"Origin": origin, **FORM})


async def test_a_form_from_the_own_origin_is_check_refused(deployment: Deployment) -> None:
    await deployment.check_refused((403, "http.page"), {"Origin": deployment.own, **FORM})
    await deployment.check_refused((415, "http.media_type"), {"Origin": deployment.own, "Callboard-Page": "1", **FORM})
    await deployment.check_refused((415, "http.media_type"), FORM)


async def test_a_request_without_the_token_is_check_refused(locked: Deployment) -> None:
    known = locked._replace(routes=[route for route in locked.routes if route[1] != LOGIN])
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Host": "evil.org"}):
        await known.check_refused((401, "http.unauthorized"), headers)


async def test_a_request_with_only_the_cookie_is_check_refused(locked: Deployment) -> None:
    page = {"Origin": locked.own, "Callboard-Page": "1"}
    answer = await locked.client.post(locked.client.base_url.join(LOGIN), json={"token": TOKEN}, headers=page)
    cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    locked.client.cookies.clear()
    await locked.check_refused((403, "http.origin"), cookie)
    await locked.check_refused((403, "http.origin"), {**cookie, "Origin": "http://evil.org", "Callboard-Page": "1"})
    await locked.check_refused((403, "http.page"), {**cookie, "Origin": locked.own})
