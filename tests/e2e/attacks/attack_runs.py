"""Attacks: a server that records its requests, a worker whose environment has secrets, and runs."""

import json
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field

from callboard.bus import events as ev
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.http_server import http_server

PATIENCE_S = 60.0

RUNTIMES = (
    "CALLBOARD_NATS_NKEY_SEED",
    "CALLBOARD_CREDENTIALS_KEY",
    "CALLBOARD_FETCH_TOKEN",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "NATS_URL",
    "NATS_TOKEN",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "MY_ENDPOINT_KEY",
)
"""Variables of the runtime and of models; the last one is of a configured endpoint."""

ENDPOINTS = {"ours": {"api": "openai", "base_url": "http://127.0.0.1:9", "key": "leak-MY_ENDPOINT_KEY-of-the-worker"}}

CONNECTORS = ("GITHUB_TOKEN", "SLACK_BOT_TOKEN", "SENTRY_AUTH_TOKEN", "LINEAR_API_KEY", "DD_API_KEY", "NOTION_TOKEN")


def value_of(variable: str) -> str:
    """The value of a worker's variable, which contains its name."""
    return f"leak-{variable}-of-the-worker"


def worker_env(*more: str) -> dict[str, str]:
    """The environment of a worker with these secrets, and an ordinary variable."""
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "SHOP_TOKEN": value_of("SHOP_TOKEN"), "NO_PROXY": "127.0.0.1"}
    return {**plain, **{name: value_of(name) for name in (*RUNTIMES, *CONNECTORS, *more)}}


class Attacker(Struct):
    """A server of the attacker: ``heard`` has all requests as text."""

    url: str = ""
    heard: list[str] = field(default_factory=list[str])

    @property
    def leaked(self) -> set[str]:
        """The variables whose values were received."""
        return leaks("\n".join(self.heard))


def leaks(text: str) -> set[str]:
    """Return the variables of the worker whose values are in a text."""
    names = (*RUNTIMES, *CONNECTORS, "SHOP_TOKEN", "DD_APP_KEY")
    return {name for name in names if value_of(name) in text}


@contextmanager
def serve_attacker(status: int = 404, location: str = "") -> Generator[Attacker]:
    """Serve; every request is recorded and answered with a status."""
    found = Attacker()

    class Keeping(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode("utf-8", "replace")
            found.heard.append(f"{self.command} {self.path}\n{self.headers}\n{body}")
            self.send_response(status)
            if location:
                self.send_header("location", location)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with http_server(Keeping) as url:
        found.url = url
        yield found


@asynccontextmanager
async def deployment(folder: Path, env: Mapping[str, str], **settings: Any) -> AsyncGenerator[Connection]:
    """A worker with its own server, for the length of the block."""
    given = {"data_dir": folder / "data", "partitions": 2, "allow_scripts": True, **settings}
    config = load(given, env={}, cwd=folder)
    async with open_connection(config) as connection, open_worker(connection, env):
        yield connection


class Outcome(Struct):
    """The result of a start: its problems, or how the run ended and all that its log holds."""

    problems: list[str] = field(default_factory=list[str])
    status: str = "rejected"
    payloads: list[Any] = field(default_factory=list[Any])
    stored: str = ""

    @property
    def text(self) -> str:
        return "\n".join([*self.problems, self.stored])

    @property
    def lent(self) -> list[tuple[str, str]]:
        """The lent variables that the run records, with their targets."""
        data = [one.data for one in self.payloads if isinstance(one, ev.NodeProgress) and one.data]
        return [(lent["variable"], lent["to"]) for one in data for lent in one.get("lent", [])]


async def attack(connection: Connection, run: str, language: str, source: Any, **fields: Any) -> Outcome:
    """Start a run, and wait until it has ended or is refused."""
    text = source if isinstance(source, str) else json.dumps(source)
    message = {"definition": {"language": language, "source": text}, "run_id": run, "model": "scripted", **fields}
    verdict = await connection.client.start(message)
    if verdict.status == "rejected":
        return Outcome([f"{problem.code} {problem.where} {problem.message}" for problem in verdict.problems])
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type=ev.RunEnd.type) as found:
            await anext(aiter(found))
        events = await connection.client.events(run)
    payloads = [ev.payload_of(event) for event in events]
    stored = "\n".join(bytes(event.payload).decode() for event in events)
    end = payloads[-1]
    assert isinstance(end, ev.RunEnd)
    return Outcome([], end.status, payloads, stored)


# -- definitions ------------------------------------------------------------------------------------------------------


def workflow(skill: dict[str, Any]) -> dict[str, Any]:
    """A workflow of one node and one skill."""
    node = {"name": "Look", "instruction": "Look.", "skills": ["mine"]}
    return {
        "id": "w",
        "name": "W",
        "entry": "a",
        "nodes": {"a": node},
        "edges": [],
        "skills": {"mine": {"instruction": "Use it.", **skill}},
    }


def flow(source: dict[str, Any], tool: str = "look", **arguments: Any) -> dict[str, Any]:
    """A flow that calls one tool of a source."""
    call = {
        "provider": "mwl:provider.call/callboard/tool/v1",
        "with": {"source": source, "tool": tool, "arguments": arguments},
    }
    return {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "a",
        "steps": {"a": {"action": "Call", "call": call, "next": "end"}, "end": {"action": "Return"}},
    }


def mcp_source(url: str, **more: Any) -> dict[str, Any]:
    """An MCP server as a source of tools."""
    return {"type": "mcp", "name": "desk", "url": url, **more}


def graph(**configurations: Any) -> dict[str, Any]:
    """A graph whose one node calls a tool of an MCP server."""
    tool = {
        "id": "tool",
        "name": "tool",
        "type": "TOOL",
        "subtype": "GOOGLE_CALENDAR_MCP_TOOL",
        "configurations": {"available_tools": ["google_calendar_events"], **configurations},
    }
    hook = {"id": "hook", "name": "hook", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}}
    return {
        "metadata": {"id": "g", "name": "g", "created_time": 0, "created_by": "u"},
        "nodes": [hook, tool],
        "connections": [{"id": "c", "from_node": "hook", "to_node": "tool"}],
        "triggers": ["hook"],
    }


GRAPH_START = {"input": {"tool_name": "google_calendar_events"}, "options": {"user_id": "u", "start_from_node": "tool"}}


def script(tool: str, **input: Any) -> dict[str, Any]:
    """A model that calls one tool of the workflow's node and then ends."""
    return {"turns": {"a": [{"tool_calls": [{"tool": tool, "input": input}]}, {"text": "Done."}]}}
