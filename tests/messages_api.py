"""A local HTTP server that speaks Anthropic's Messages API as a test scripts it, and keeps what it was asked.

It answers ``POST /v1/messages`` with the next `Answer` of its list: a stream of server-sent events, or an error; whole,
cut off, or falling silent. Raw sockets and no web framework, because the broken answers are the point.
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
class MessagesApi:
    """A running server. Put answers in, read requests out; a request beyond the last answer gets status 418."""

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque[Answer])
    requests: list[Received] = field(default_factory=list[Received])

    def will(self, *answers: Answer) -> None:
        """Queue answers."""
        self.answers.extend(answers)


@asynccontextmanager
async def messages_api() -> AsyncGenerator[MessagesApi]:
    """Serve on a free port of the loopback interface for the length of the block."""
    api = MessagesApi()
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


async def _serve(api: MessagesApi, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    api.requests.append(Received(head[0].split(" ")[1], headers, json.loads(body)))
    answer = api.answers.popleft() if api.answers else failing(418, "api_error", "no answer is scripted")
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


def failing(status: int, kind: str, message: str = "scripted", headers: Mapping[str, str] | None = None) -> Answer:
    """An error as the API words it."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return Answer(body, status, {"content-type": "application/json", "request-id": "req_1", **(headers or {})})


def streaming(events: Iterable[Mapping[str, Any] | str], ending: Ending = "whole") -> Answer:
    """A stream of events, each an object with its ``type``, or raw text for what no honest server would send."""
    pieces = [
        event if isinstance(event, str) else f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        for event in events
    ]
    return Answer("".join(pieces).encode(), ending=ending)


def saying(text: str, **usage: int) -> Answer:
    """A whole reply of plain text, streamed in pieces of five characters."""
    return streaming([*start(**usage), *text_block(0, text), *stop("end_turn")])


def start(**usage: int) -> list[dict[str, Any]]:
    """How every stream begins; ``usage`` as the API counts: fresh, written to and read from the cache apart."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-served",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1, **usage},
    }
    return [{"type": "message_start", "message": message}, {"type": "ping"}]


def text_block(index: int, text: str) -> list[dict[str, Any]]:
    """A block of text."""
    deltas = [{"type": "text_delta", "text": text[at : at + 5]} for at in range(0, len(text), 5)]
    return _block(index, {"type": "text", "text": ""}, deltas)


def tool_block(index: int, id: str, name: str, raw_input: str) -> list[dict[str, Any]]:
    """A tool call whose input is streamed as the given text, JSON or not."""
    deltas = [
        {"type": "input_json_delta", "partial_json": raw_input[at : at + 7]} for at in range(0, len(raw_input), 7)
    ]
    return _block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, deltas)


def stop(reason: str | None, output_tokens: int = 7, **delta: Any) -> list[dict[str, Any]]:
    """How a whole stream ends."""
    usage = {"output_tokens": output_tokens}
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None, **delta}, "usage": usage},
        {"type": "message_stop"},
    ]


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]
