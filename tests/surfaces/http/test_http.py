"""The runtime over HTTP: requests over a socket, with a worker."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from jsonschema import Draft202012Validator

from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from callboard.surfaces.http import app as module
from callboard.surfaces.http import live
from callboard.surfaces.http.address import AddressUnusable, check_address, listening
from callboard.surfaces.http.openapi import document
from callboard.surfaces.http.routes import ROUTES
from tests.support.flows import flow, returned
from tests.support.http_application import PATIENCE_S, code_of, perform, served
from tests.support.workdir import Workdir, read_json
from tests.support.workflows import document as workflow

STARTS = 200
PLACES = 2
TOKEN = "t0ken"

ONE: dict[str, Any] = {
    "definition": {"source": json.dumps(workflow({"a": {}}, []))},
    "model": "scripted",
    "script": {"turns": {"a": [{"text": "done"}]}},
}
SAID = {**ONE, "script": {"turns": {"a": [{"text": "Hello!", "progress": ["Hel", "lo!"], "delay_ms": 50}]}}}
LONG = {**ONE, "script": {"turns": {"a": [{"text": "late", "delay_ms": 600_000}]}}}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(tmp_path) as (found, _):
        yield found


def root(client: httpx2.AsyncClient, path: str) -> str:
    """The address of a path outside of the tenant's API."""
    return str(client.base_url.copy_with(path=path))


# -- runs -------------------------------------------------------------------------------------------------------------


async def test_a_run_is_started_and_read_to_its_end(client: httpx2.AsyncClient) -> None:
    span = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
    started = await client.post("/runs", json=ONE, headers={"Idempotency-Key": "one", **span})
    assert (started.status_code, started.json()) == (202, {"status": "accepted", "run_id": "one"})
    for same in (ONE, {**ONE, "run_id": None}):
        again = await client.post("/runs", json=same, headers={"Idempotency-Key": "one"})
        assert again.json() == {"status": "accepted", "run_id": "one", "duplicate": True}
    result = await client.get("/runs/one/result", params={"wait_s": PATIENCE_S})
    assert (result.status_code, result.json()["status"]) == (200, "completed")
    assert (await client.get("/runs/one")).json()["status"] == "completed"
    assert (await client.get("/runs/one/trace")).json()["run"] == "one"
    page = (await client.get("/runs/one/events", params={"types": "run.accepted,run.end", "limit": 2})).json()
    assert [one["event"]["type"] for one in page["events"]] == ["run.accepted", "run.end"]
    assert page["events"][0]["event"]["payload"]["trace"].items() >= span.items()
    rows = (await client.get("/runs", params={"status": "completed"})).json()
    assert [row["run"] for row in rows["runs"]] == ["one"]
    # The sequence grows when the worker stores other messages.
    asked = {"where": "status=completed and run=one and started<1h", "q": "one"}
    found = (await client.get("/runs", params=asked)).json()
    assert found == {**rows, "sequence": found["sequence"]}
    none = (await client.get("/runs", params={"where": "not run=one"})).json()
    assert none == {"runs": [], "more": False, "sequence": none["sequence"]}
    assert rows["sequence"] <= found["sequence"] <= none["sequence"]
    assert code_of(await client.get("/runs", params={"where": "run=one or"})) == (400, "find.where")
    assert code_of(await client.get("/runs/one/state")) == (400, "state.none")


async def test_a_command_to_a_run_returns_its_verdict(client: httpx2.AsyncClient) -> None:
    run = (await client.post("/runs", json=LONG)).json()["run_id"]
    assert code_of(await client.get(f"/runs/{run}/result")) == (409, "run.not_ended")
    output = await client.post(
        f"/runs/{run}/cancel", json={"reason": "enough", "by": "ada"}, params={"wait_s": PATIENCE_S}
    )
    assert (output.status_code, output.json()["verdict"]) == (202, "accepted")
    assert (await client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})).json()["status"] == "cancelled"
    assert code_of(await client.post(f"/runs/{run}/cancel")) == (400, "tell.refused")
    assert code_of(await client.post("/runs/nix/cancel")) == (404, "tell.refused")
    assert code_of(await client.post(f"/runs/{run}/cancel", json={"x": 1})) == (400, "tell.refused")


async def test_a_refused_start_lists_all_problems(client: httpx2.AsyncClient) -> None:
    refused = await client.post("/runs", json={**ONE, "input": 1, "more": 1, "run_id": 7})
    assert code_of(refused) == (400, "start.refused")
    assert {one["where"] for one in refused.json()["error"]["problems"]} >= {"more", "run_id"}


async def test_concurrent_starts_are_all_accepted(client: httpx2.AsyncClient) -> None:
    source = json.dumps(flow({"r": returned(1)}))
    verdicts: dict[str, int] = {}

    async def start(number: int) -> None:
        run = f"run-{number}"
        response = await client.post("/runs", json={"definition": {"source": source}, "run_id": run})
        verdicts[run] = response.status_code

    async with anyio.create_task_group() as tasks:
        for number in range(STARTS):
            tasks.start_soon(start, number)
    assert verdicts == {f"run-{number}": 202 for number in range(STARTS)}
    for run in verdicts:
        assert (await client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})).status_code == 200


# -- definitions, schedules -------------------------------------------------------------------------------------------


async def test_definitions_are_registered_looked_up_and_rolled_back(client: httpx2.AsyncClient) -> None:
    for title in ("One", "Two"):
        source = json.dumps(workflow({"a": {"name": title}}, []))
        assert (await client.post("/definitions", json={"name": "desk", "source": source})).status_code == 200
    found = (await client.get("/definitions/desk")).json()
    assert '"Two"' in found["source"]
    assert (await client.get(f"/definitions/{found['hash']}")).json()["name"] == "desk"
    versions = (await client.get("/definitions/desk/versions")).json()["versions"]
    assert len(versions) == 2
    assert (await client.post("/definitions/desk/rollback")).status_code == 200
    assert '"One"' in (await client.get("/definitions/desk")).json()["source"]
    assert code_of(await client.get("/definitions/nix")) == (404, "definition.unknown")


async def test_schedules_are_added_changed_and_removed(client: httpx2.AsyncClient) -> None:
    wanted = {"name": "daily", "when": {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}, "start": ONE}
    assert (await client.post("/schedules", json=wanted)).json()["when"] == "0 9 * * * Europe/Berlin"
    assert (await client.post("/schedules/daily/pause")).json()["paused"]
    assert "paused" not in (await client.post("/schedules/daily/resume")).json()
    assert [row["name"] for row in (await client.get("/schedules")).json()] == ["daily"]
    assert (await client.delete("/schedules/daily")).json() is None
    assert code_of(await client.delete("/schedules/daily")) == (404, "schedule.unknown")
    assert code_of(await client.post("/schedules", json={**wanted, "when": {"cron": "x"}})) == (400, "schedule.refused")


# -- live -------------------------------------------------------------------------------------------------------------


async def follow_events(
    client: httpx2.AsyncClient, count: int, last: int | None = None, **query: Any
) -> list[tuple[int, str]]:
    """Follow until ``count`` events have come; return their ids and types."""
    headers = {"Last-Event-ID": str(last)} if last is not None else {}
    found: list[tuple[int, str]] = []
    number = 0
    async with client.stream("GET", "/live", params=query, headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream"
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data":
                found.append((number, json.loads(value)["type"]))
                if len(found) == count:
                    return found
    return found


async def test_events_are_streamed_and_resumed_after_a_sequence(client: httpx2.AsyncClient) -> None:
    await perform(client, "one", ONE)
    whole = (await client.get("/runs/one/events")).json()["events"]
    expected = [(one["sequence"], one["event"]["type"]) for one in whole]
    with anyio.fail_after(PATIENCE_S):
        assert await follow_events(client, len(expected), run="one", after=0) == expected
        # It resumes after any event without a gap or a repetition.
        for place in range(len(expected) - 1):
            rest = expected[place + 1 :]
            assert await follow_events(client, len(rest), last=expected[place][0], run="one") == rest
        ends = [one for one in expected if one[1] == "run.end"]
        assert await follow_events(client, 1, after=0, type="run.end") == ends
        # The stream begins with its sequence, so a follower can resume even before the first event.
        async with client.stream("GET", "/live", params={"run": "one"}) as response:
            lines = response.aiter_lines()
            begun = [await anext(lines) for _ in range(4)]
        assert begun[:2] + begun[3:] == [": live", "", ""]
        assert int(begun[2].removeprefix("id: ")) >= expected[-1][0]


async def test_several_topics_are_followed_without_duplicates(client: httpx2.AsyncClient) -> None:
    for run in ("one", "two"):
        await perform(client, run, SAID)
    pages = [(await client.get(f"/runs/{run}/events")).json()["events"] for run in ("one", "two")]
    whole = [(one["sequence"], one["event"]["type"]) for page in pages for one in page]
    of_all = [one for one in whole if one[1].startswith("run.")]
    expected = sorted({*whole[: len(pages[0])], *of_all})
    with anyio.fail_after(PATIENCE_S):
        assert await follow_events(client, len(expected), topics="runs,questions,run:one", after=0) == expected
        assert await follow_events(client, len(whole), topics="run:one,run:two", after=0) == sorted(whole)
        await client.post("/runs", json=SAID, headers={"Idempotency-Key": "two, too"})
        await client.get("/runs/two, too/result", params={"wait_s": PATIENCE_S})
        last, _ = max(whole)
        assert [kind for _, kind in await follow_events(client, 1, topic=["run:two, too", "run:one"], after=last)] == [
            "run.accepted"
        ]


async def test_tokens_of_models_are_streamed_between_events(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, connection):
        await check_tokens(client, connection)


async def check_tokens(client: httpx2.AsyncClient, connection: Connection) -> None:
    result = connection.log.subjects.live(RunRef("acme", "one"), "w", "model.delta")
    async with client.stream("GET", "/live", params={"topics": "run:one"}) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": live"
        for strange in (b"{}", b"nix", b'{"n": 1'):
            await connection.log.nc.publish(result, strange)
        await client.post("/runs", json=SAID, headers={"Idempotency-Key": "one"})
        pieces: list[dict[str, Any]] = []
        with anyio.fail_after(PATIENCE_S):
            async for line in lines:
                if line == "event: model.delta":
                    pieces.append(json.loads((await anext(lines)).removeprefix("data: ")))
                if line == "event: run.end":
                    break
    assert {piece["run"] for piece in pieces} == {"one"}
    assert "".join(piece["text"] for piece in pieces) == "Hello!"


async def test_a_head_request_for_the_stream_follows_nothing(client: httpx2.AsyncClient) -> None:
    with anyio.fail_after(PATIENCE_S):
        response = await client.head("/live")
    assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (200, live.MEDIA_TYPE)


@pytest.mark.parametrize(
    "query",
    [
        {"after": "x"},
        {"run": "x" * 500},
        {"topics": "nix"},
        {"topics": "run:a," * 33},
        *({"type": type} for type in ("run..end", "run end", ">.end", "run.>.x", "r*n", "run.end." * 40)),
    ],
)
async def test_a_malformed_topic_is_refused(client: httpx2.AsyncClient, query: dict[str, str]) -> None:
    assert code_of(await client.get("/live", params=query)) == (400, "api.malformed")


# -- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "more", "expected"),
    [
        ("GET", "/runs", {"headers": {"Host": "evil.org"}}, (403, "http.host")),
        ("GET", "/runs", {"headers": {"Host": "127.0.0.1.evil.org:80"}}, (403, "http.host")),
        ("GET", "/runs", {"headers": {"Origin": "http://evil.org"}}, (403, "http.origin")),
        ("GET", "/runs", {"headers": {"Origin": "null"}}, (403, "http.origin")),
        (
            "POST",
            "/runs",
            {"json": ONE, "headers": {"Origin": "http://127.0.0.1", "Host": "127.0.0.1"}},
            (403, "http.page"),
        ),
        ("POST", "/runs", {"data": {"x": "1"}}, (415, "http.media_type")),
        ("POST", "/runs", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, (415, "http.media_type")),
        ("POST", "/runs", {"content": b"{", "headers": {"Content-Type": "application/json"}}, (400, "api.malformed")),
        ("POST", "/runs", {"json": [1]}, (400, "api.malformed")),
        ("POST", "/runs", {}, (400, "start.refused")),
        ("GET", "/runs", {"params": {"limit": "many"}}, (400, "api.malformed")),
        ("GET", "/runs/one/events", {"params": {"after": "9" * 400}}, (400, "api.malformed")),
        ("GET", "/runs/one/events", {"params": {"after": "-1"}}, (400, "api.malformed")),
        ("GET", "/runs", {"params": {"limit": "0"}}, (400, "api.malformed")),
        ("GET", "/runs", {"params": {"statue": "failed"}}, (400, "api.malformed")),
        ("GET", "/nix", {}, (404, "http.unknown")),
        ("PUT", "/runs", {}, (405, "http.method")),
        ("GET", "/runs/nix", {}, (404, "run.unknown")),
    ],
)
async def test_a_refused_request_has_its_error_code(
    client: httpx2.AsyncClient, method: str, path: str, more: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert code_of(await client.request(method, path, **more)) == expected


async def test_a_wrong_method_is_refused_with_the_allowed_ones(client: httpx2.AsyncClient) -> None:
    for method, path, allow in (
        ("PUT", "/runs", "GET, HEAD, POST"),
        ("DELETE", "/runs/nix", "GET, HEAD"),
        ("GET", "/runs/nix/cancel", "POST"),
        ("POST", "/live", "GET, HEAD"),
    ):
        refused = await client.request(method, path)
        assert (refused.status_code, refused.headers["allow"]) == (405, allow), (method, path)


async def test_another_tenant_is_not_served(client: httpx2.AsyncClient) -> None:
    for path in ("/api/other/runs", "/api/other/live"):
        assert code_of(await client.get(root(client, path))) == (404, "http.tenant")


async def test_a_body_above_the_maximum_is_refused(client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_BYTES_MAX", 1_000)
    assert code_of(await client.post("/runs", json={"input": "x" * 2_000})) == (413, "http.too_large")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_caller_that_leaves_or_stalls_frees_its_place(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REQUESTS_MAX", PLACES)
    monkeypatch.setattr(module, "BODY_WAIT_S", 1.0)
    path, more = "/runs/long/result?wait_s=300", ""
    if method == "POST":
        path, more = "/runs", "content-type: application/json\r\ncontent-length: 9\r\n"
    async with served(tmp_path) as (client, _):
        assert (await client.post("/runs", json={**LONG, "run_id": "long"})).status_code == 202
        with ExitStack() as stack, anyio.fail_after(PATIENCE_S):
            address = client.base_url.host, client.base_url.port or 0
            refused = await client.get("/runs")
            while refused.status_code == 200:
                # A request of this test may take the last place, so wait with one that needs no place.
                one = stack.enter_context(socket.create_connection(address))
                one.sendall(f"{method} /api/acme{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}\r\n".encode())
                await client.get(root(client, "/healthz"))
                refused = await client.get("/runs")
            assert code_of(refused) == (503, "api.busy")
            if method == "GET":
                stack.close()
            while (await client.get("/runs")).status_code != 200:
                pass


async def test_every_request_but_health_needs_the_token(tmp_path: Path) -> None:
    async with served(tmp_path, TOKEN) as (client, _):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            assert code_of(await client.get("/runs", headers=headers)) == (401, "http.unauthorized")
            assert (await client.get(root(client, "/openapi.json"), headers=headers)).status_code == 401
        brought = {"Authorization": f"Bearer {TOKEN}", "Host": "callboard.example.org"}
        assert (await client.get("/runs", headers=brought)).status_code == 200
        assert (await client.get(root(client, "/healthz"))).json() == {"status": "ok"}


async def test_a_page_exchanges_the_token_for_a_cookie(tmp_path: Path) -> None:
    async with served(tmp_path, TOKEN) as (client, _):
        own = {"Origin": root(client, "/").rstrip("/")}
        page = {**own, "Callboard-Page": "1"}
        for path in ("/", "/t/acme/runs"):
            shell = await client.get(root(client, path))
            assert (shell.status_code, "acme" in shell.text) == (200, True)
            assert "default-src 'none'" in shell.headers["content-security-policy"]
        login = root(client, "/login")
        assert code_of(await client.post(login, json={"token": TOKEN}, headers=own)) == (403, "http.page")
        assert code_of(await client.post(login, json={"token": 7}, headers=page)) == (400, "api.malformed")
        kept = (await client.post(login, json={"token": TOKEN}, headers=page)).headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= set(kept.split("; "))
        assert (await client.get("/runs")).status_code == 200
        assert code_of(await client.post("/runs", json=ONE)) == (403, "http.origin")
        assert code_of(await client.post("/runs", json=ONE, headers=own)) == (403, "http.page")
        assert (await client.post("/runs", json=ONE, headers=page)).status_code == 202
        mine = kept.partition(";")[0]
        for theirs in ('{"a": 1}=x', "a[0]={}", "=", "nameless", 'a="', "ü=ä", "a=1; a=2"):
            beside = {b"Cookie": f"{theirs}; {mine}".encode()}
            assert (await client.get("/runs", headers=beside)).status_code == 200, theirs
        wrong = await client.post(login, json={"token": "wrong"}, headers=page)
        assert code_of(wrong) == (401, "http.unauthorized")
        assert wrong.headers["set-cookie"].startswith(f'{mine.partition("=")[0]}=""; ')
        assert code_of(await client.get("/runs")) == (401, "http.unauthorized")
        assert (await client.post(login, json={"token": ""}, headers=page)).status_code == 204


def test_only_the_loopback_is_served_without_a_token() -> None:
    with pytest.raises(AddressUnusable) as caught:
        check_address("0.0.0.0", 8723, None, "http")
    assert (caught.value.code, "CALLBOARD_HTTP_TOKEN" in caught.value.remedy) == ("http.token_missing", True)
    check_address("0.0.0.0", 8723, TOKEN, "http")


def test_accepted_connections_have_no_delay() -> None:
    with listening("127.0.0.1", 0, "http") as bound, socket.create_connection(bound.getsockname()):
        bound.setblocking(True)
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# -- the document -----------------------------------------------------------------------------------------------------


def test_the_document_has_every_route() -> None:
    paths = document()["paths"]
    assert len(paths) > 10
    operations = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(operations) == len(ROUTES) + 1
    names = [paths[path][method]["operationId"] for method, path in operations]
    assert len(set(names)) == len(names)
    Draft202012Validator.check_schema({"$defs": document()["components"]["schemas"]})


async def test_answers_conform_to_the_document(client: httpx2.AsyncClient) -> None:
    whole = (await client.get(root(client, "/openapi.json"))).json()
    assert whole == json.loads(json.dumps(document()))
    await perform(client, "one", ONE)
    await client.post("/definitions", json={"name": "desk", "source": ONE["definition"]["source"]})
    await client.post("/datasets/desk", json={"cases": [{"run": "one"}]})
    experiment = (await client.post("/datasets/desk/experiments", json={})).json()["run_id"]
    paths = [
        path
        for path, methods in whole["paths"].items()
        if "get" in methods and not path.endswith(("/live", "/diff")) and "/runs/{run_id}/" not in path
    ]
    assert len(paths) >= 6
    for path in paths:
        params = {"of": "definition"} if path.endswith("/values") else None
        run = experiment if "/experiments/" in path else "one"
        response = await client.get(path.removeprefix("/api/{tenant}").format(run_id=run, name="desk"), params=params)
        assert response.status_code == 200, path
        schema = whole["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": whole["components"]}).validate(response.json())


# -- at the command line ----------------------------------------------------------------------------------------------


def test_http_serves_beside_up_until_it_is_terminated(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    with workdir.up(), workdir.process("http", "--json", "--listen", "127.0.0.1:0") as process:
        url = read_json(process)["url"]
        assert url.endswith("/api/default")
        assert httpx2.get(f"{url}/runs", trust_env=False).json() == {"runs": [], "more": False, "sequence": 0}
        with httpx2.stream("GET", f"{url}/live", timeout=PATIENCE_S, trust_env=False) as reader:
            lines = reader.iter_lines()
            assert (next(lines), next(lines)) == (": live", "")
            assert next(lines).startswith("id: ")
            process.terminate()
            assert list(lines) == [""]
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, stderr) == (0, "")
