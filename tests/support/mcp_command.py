"""A server of `callboard mcp` over HTTP, with an embedded server and a worker."""

import json
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from tests.support.workdir import Workdir

QUICK = {"default": {"text": "ok"}}
SLOW = {"turns": {"a": [{"text": "late", "delay_ms": 600_000}]}}


@contextmanager
def serve_mcp(folder: Path, *files: tuple[str, Any]) -> Generator[tuple[Workdir, str]]:
    """Serve a folder; yield the folder and the address."""
    workdir = Workdir(folder)
    workdir.write_triage()
    for name, text in files:
        workdir.write(name, text)
    options = ("--folder", "flows", "--import-from", "tools", "--http", "127.0.0.1:0", "--json")
    with workdir.process("mcp", *options) as process:
        assert process.stdout is not None
        yield workdir, json.loads(process.stdout.readline())["url"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, ""), err


@asynccontextmanager
async def client_of(served: tuple[Workdir, str], **more: Any) -> AsyncGenerator[Client]:
    """A client of a server that is served; ``more`` is the client's own."""
    async with (
        httpx2.AsyncClient() as http,
        Client(streamable_http_client(served[1], http_client=http), **more) as client,
    ):
        yield client


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool; return its structured content, which the client has checked against the output schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result, CallToolResult)
    content: dict[str, Any] = result.structured_content
    assert json.loads(getattr(result.content[0], "text", "")) == content
    return content


async def refusal(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that refuses; return its error: text alone, since structured content has to fit the output schema."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    assert isinstance(result, CallToolResult)
    assert result.structured_content is None
    error: dict[str, Any] = json.loads(getattr(result.content[0], "text", ""))["error"]
    assert error["code"]
    assert error["message"]
    return error
