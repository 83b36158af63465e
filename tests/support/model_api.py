"""A local HTTP server that speaks for a provider of models as a test scripts it, and keeps what it was asked.

It answers every request with the next `Answer` of its list: a stream of server-sent events, or an error; whole, cut
off, or falling silent. Raw sockets and no web framework, because the broken answers are the point.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

REQUEST_BYTES_MAX = 16 * 1024 * 1024

Ending = Literal["whole", "short", "reset", "silent"]
"""How a body ends: as it should; properly closed, but too early; with the connection gone; never."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer: status, headers and body, and how the body ends."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    ending: Ending = "whole"


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(slots=True)
class ModelApi:
    """A running server. Put answers in, read requests out; a request beyond the last answer gets status 418."""

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque[Answer])
    requests: list[Received] = field(default_factory=list[Received])

    def will(self, *answers: Answer) -> None:
        """Queue answers."""
        self.answers.extend(answers)


@asynccontextmanager
async def model_api() -> AsyncGenerator[ModelApi]:
    """Serve on a free port of the loopback interface for the length of the block."""
    api = ModelApi()
    open_connections: set[asyncio.Task[Any]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        try:
            await _serve(api, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client went away, as it may
        finally:
            open_connections.discard(task)
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=REQUEST_BYTES_MAX)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        for task in list(open_connections):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await server.wait_closed()


async def _serve(api: ModelApi, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    api.requests.append(Received(head[0].split(" ")[1], headers, json.loads(body)))
    answer = api.answers.popleft() if api.answers else refusing(418, {"error": {"message": "no answer is scripted"}})
    fields = {"content-type": "text/event-stream", "connection": "close", **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} Scripted", *(f"{name}: {value}" for name, value in fields.items())]
    writer.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode("latin-1"))
    if answer.body:
        writer.write(b"%x\r\n%s\r\n" % (len(answer.body), answer.body))
    match answer.ending:
        case "whole" | "short":
            writer.write(b"0\r\n\r\n")
        case "reset":
            writer.write(b"ffff\r\nnot that many bytes")
        case "silent":
            await writer.drain()
            await asyncio.Event().wait()
    await writer.drain()


# -- answers ----------------------------------------------------------------------------------------------------------


def refusing(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """An error, with its body as JSON."""
    return Answer(json.dumps(body).encode(), status, {"content-type": "application/json", **(headers or {})})


def streaming(events: Iterable[Any], ending: Ending = "whole") -> Answer:
    """A stream of events, each an object, with its ``type`` if it has one, or raw text for malformed events."""
    return Answer("".join(_sent(event) for event in events).encode(), ending=ending)


def _sent(event: Any) -> str:
    if isinstance(event, str):
        return event
    kind = f"event: {event['type']}\n" if "type" in event else ""
    return f"{kind}data: {json.dumps(event)}\n\n"
