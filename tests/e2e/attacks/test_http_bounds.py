"""Clients with idle or incomplete connections do not block other clients."""

import json
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import httpx2
import pytest
from anyio.abc import ByteStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callboard.service.operations.operation import ApiError
from callboard.surfaces.http import http_server
from callboard.surfaces.http.http_server import BoundedProtocol, connections_max, serve_app
from callboard.surfaces.http.request_body import ClientSlots

PATIENCE_S = 10.0


async def _hello(_request: Request) -> Response:
    return JSONResponse({"ok": True})


@asynccontextmanager
async def serve_hello() -> AsyncGenerator[int]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_app, Starlette(routes=[Route("/", _hello)]), bound)
            yield bound.getsockname()[1]
            tasks.cancel_scope.cancel()


async def is_answered(port: int) -> bool:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        return json.loads((await client.get(f"http://127.0.0.1:{port}/")).content) == {"ok": True}


async def until_closed(stream: ByteStream) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await stream.receive()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /"])
async def test_a_connection_without_a_complete_head_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_wait_s", 0.2)
    async with serve_hello() as port:
        stream = await anyio.connect_tcp("127.0.0.1", port)
        if sent:
            await stream.send(sent)
        with anyio.fail_after(PATIENCE_S):
            await until_closed(stream)
        await stream.aclose()
        assert await is_answered(port)


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked",
        "HTTP/1.1\r\nHost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 4",
        "HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked",
        "HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5",
    ],
)
async def test_a_request_of_ambiguous_length_is_refused_and_its_rest_not_read(head: str) -> None:
    follows = "0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serve_hello() as port:
        stream = await anyio.connect_tcp("127.0.0.1", port)
        await stream.send(f"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / {head}\r\n\r\n{follows}".encode())
        found = b""
        with anyio.fail_after(PATIENCE_S), suppress(anyio.EndOfStream):
            while True:
                found += await stream.receive()
        await stream.aclose()
        assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"200", b"400"]
        assert await is_answered(port)


async def test_connections_above_the_maximum_are_closed_and_others_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)
    async with serve_hello() as port:
        idle = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(3)]
        beyond = await anyio.connect_tcp("127.0.0.1", port)
        with anyio.fail_after(PATIENCE_S):
            await until_closed(beyond)
        await idle[0].send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await idle[0].receive()).startswith(b"HTTP/1.1 200")
        for stream in (*idle, beyond):
            await stream.aclose()


def test_the_maximum_of_connections_is_half_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server.resource, "getrlimit", lambda _which: (300, 300))
    assert connections_max() == 150


def test_a_client_has_a_bounded_number_of_places() -> None:
    places = ClientSlots(each=2, most=3)

    def request(host: str) -> Request:
        return Request({"type": "http", "client": (host, 1), "headers": []})

    with places.take(request("a")), places.take(request("a")):
        with pytest.raises(ApiError), places.take(request("a")):
            pass
        with places.take(request("b")), pytest.raises(ApiError), places.take(request("c")):
            pass
        with places.take(request("c")):
            pass
