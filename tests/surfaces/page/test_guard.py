"""The guard of the page and of its API: whom no route that changes something lets in, and that they leave nothing."""

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
from tests.support.http_application import application, served

TOKEN = "t0ken"
START = {"definition": {"source": json.dumps(flow({"r": returned(1)}))}}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PLACES = {"tenant": "acme", "run_id": "nix", "name": "nix", "id": "nix", "sha256": "0", "n": "1", "key": "nix"}


class Deployment(NamedTuple):
    """A server, and what it has to guard."""

    client: httpx2.AsyncClient
    connection: Connection
    routes: list[tuple[str, str]]

    @property
    def own(self) -> str:
        """The origin of its page."""
        return str(self.client.base_url.join("/")).rstrip("/")

    async def refused(self, expected: tuple[int, str], headers: dict[str, str]) -> None:
        """See to it that no route takes what has these headers, and that nothing is recorded."""
        before = await self.last()

        async def ask(method: str, path: str) -> None:
            url = self.client.base_url.join(path.format(**PLACES))
            whole = {"token": TOKEN} if path == LOGIN else START
            sent: dict[str, Any] = {"content": b"token=t0ken"} if FORM.items() <= headers.items() else {"json": whole}
            answer = await self.client.request(method, url, headers=headers, **sent)
            assert (answer.status_code, answer.json()["error"]["code"]) == expected, (method, path)

        async with anyio.create_task_group() as tasks:
            for method, path in self.routes:
                tasks.start_soon(ask, method, path)
        assert await self.last() == before

    async def last(self) -> int:
        """The sequence of the last message of the whole stream."""
        log = self.connection.log
        return (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["state"]["last_seq"]


def guarded(app: object) -> Iterator[tuple[str, str]]:
    """The routes behind the guard that change something; whoever sends to those before it proves who they are."""
    if isinstance(app, Starlette):
        for route in app.routes:
            if isinstance(route, Mount):
                yield from guarded(route.app)
            elif isinstance(route, Route):
                yield from ((method, route.path) for method in route.methods or () if method not in SAFE)
    elif isinstance(app, Guard | Login | Authentication):
        for inner in vars(app).values():
            yield from guarded(inner)


def changing(connection: Connection, tasks: TaskGroup) -> list[tuple[str, str]]:
    whole = application(connection, tasks)
    assert isinstance(whole, Starlette)
    [behind] = [route.app for route in whole.routes if isinstance(route, Mount)]
    found = [(method, path.replace(":path}", "}")) for method, path in guarded(behind)]
    return [("POST", LOGIN), *sorted(found)]


async def _deployment(home: Path, token: str | None) -> AsyncIterator[Deployment]:
    async with served(home, token) as (client, connection), anyio.create_task_group() as tasks:
        yield Deployment(client, connection, changing(connection, tasks))


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async for one in _deployment(tmp_path_factory.mktemp("open"), None):
        yield one


@pytest.fixture(scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async for one in _deployment(tmp_path_factory.mktemp("locked"), TOKEN):
        yield one


async def test_all_routes_that_change_something_are_known(deployment: Deployment) -> None:
    assert {method for method, _ in deployment.routes} == {"POST", "PUT", "DELETE"}
    assert {"/login", "/api/{tenant}/runs", "/v2/execute", "/api/{tenant}/schedules/{name}"} <= {
        path for _, path in deployment.routes
    }
    assert len(deployment.routes) > 20


@pytest.mark.parametrize("host", ["evil.org", "127.0.0.1.evil.org", "localhost.evil.org:8723", ""])
async def test_a_name_that_is_not_ours_is_not_answered(deployment: Deployment, host: str) -> None:
    await deployment.refused((403, "http.host"), {"Host": host})


@pytest.mark.parametrize("origin", ["http://evil.org", "null", "https://127.0.0.1.evil.org"])
async def test_a_page_from_elsewhere_changes_nothing(deployment: Deployment, origin: str) -> None:
    await deployment.refused((403, "http.origin"), {"Origin": origin})
    # With what our own page brings as well, and as a form, which a browser sends without asking.
    await deployment.refused((403, "http.origin"), {"Origin": origin, "Callboard-Page": "1"})
    await deployment.refused((403, "http.origin"), {"Origin": origin, **FORM})


async def test_a_form_changes_nothing_even_from_our_own_address(deployment: Deployment) -> None:
    await deployment.refused((403, "http.page"), {"Origin": deployment.own, **FORM})
    await deployment.refused((415, "http.media_type"), {"Origin": deployment.own, "Callboard-Page": "1", **FORM})
    await deployment.refused((415, "http.media_type"), FORM)


async def test_nobody_is_let_in_without_the_token(locked: Deployment) -> None:
    known = locked._replace(routes=[route for route in locked.routes if route[1] != LOGIN])
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Host": "evil.org"}):
        await known.refused((401, "http.unauthorized"), headers)


async def test_the_cookie_alone_lets_nobody_in(locked: Deployment) -> None:
    page = {"Origin": locked.own, "Callboard-Page": "1"}
    answer = await locked.client.post(locked.client.base_url.join(LOGIN), json={"token": TOKEN}, headers=page)
    cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    locked.client.cookies.clear()
    await locked.refused((403, "http.origin"), cookie)
    await locked.refused((403, "http.origin"), {**cookie, "Origin": "http://evil.org", "Callboard-Page": "1"})
    await locked.refused((403, "http.page"), {**cookie, "Origin": locked.own})
