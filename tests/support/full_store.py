"""Stores that are filled and emptied, and a deployment with such a store."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from nats.aio.msg import Msg
from nats.js.errors import APIError

from callboard.bus import events as ev
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.server.data_directory import ServerStore
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.nats.micro_service import open_service
from tests.support.workflows import document

PATIENCE_S = 30.0
STORE_BYTES_MAX = 4_000_000
SOURCE = json.dumps(document({"a": {}}, []))


@pytest.fixture(autouse=True)
def small_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerStore, "bytes_max", lambda *_: STORE_BYTES_MAX)


async def fill(log: JetStreamLog, leaving: int = 0) -> None:
    """Fill the store with ballast and leave a number of bytes free."""
    stream = log.nc.jetstream()
    await stream.add_stream(name="BALLAST", subjects=["ballast"])
    while (room := STORE_BYTES_MAX - leaving - (await stream.account_info()).storage) > 1_000:
        await stream.publish("ballast", b"x" * min(room - 500, 500_000))
    with suppress(APIError):
        while not leaving:
            # The server refuses the message that exceeds the quota.
            await stream.publish("ballast", b"x" * 500)


async def make_room(log: JetStreamLog) -> None:
    await log.nc.jetstream().delete_stream("BALLAST")


# -- the deployment ----------------------------------------------------------------------------------------------------


def start(run: str, **fields: Any) -> dict[str, Any]:
    script = {"default": {"text": "done"}}
    return {"definition": {"source": SOURCE}, "model": "scripted", "script": script, "run_id": run, **fields}


def start_with_nats_tool(run: str) -> dict[str, Any]:
    """A run that calls a tool which the test answers."""
    tool = {"name": "ask", "description": "ask", "input_schema": {"type": "object"}, "nats": "test.ask"}
    skill = {"id": "s", "name": "s", "description": "s", "category": "general", "tools": [tool]}
    source = json.dumps(document({"a": {"skills": ["s"]}}, []))
    turns = [{"tool_calls": [{"tool": "ask", "input": {}}]}, {"text": "done"}]
    return start(run, definition={"source": source}, script={"turns": {"a": turns}}, options={"skills": [skill]})


@dataclass
class Deployment:
    """A deployment with a worker, its log entries about the store, and the requests of its tool."""

    connection: Connection
    store_logs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tool_requests: list[Msg] = field(default_factory=list[Msg])
    has_request: anyio.Event = field(default_factory=anyio.Event)

    @property
    def client(self) -> Client:
        return self.connection.client

    async def take_request(self, message: Msg) -> None:
        self.tool_requests.append(message)
        self.has_request.set()

    def record_log_entry(self, _logger: Any, _method: str, entry: Any) -> Any:
        if "store" in entry["event"]:
            self.store_logs.append(entry)
        raise structlog.DropEvent

    async def status(self, run: str) -> str:
        """Wait for a run's end and return its status."""
        with anyio.fail_after(PATIENCE_S):
            async with self.client.follow(run, event_type=ev.RunEnd.type) as feed:
                async for recorded in feed:
                    payload = ev.payload_of(recorded.event)
                    assert isinstance(payload, ev.RunEnd)
                    return payload.status
        raise AssertionError(f"{run} never ended")


def config_for(home: Path) -> Config:
    return load({"data_dir": home, "sync": "100ms", "tenant": "acme"}, env={}, cwd=home)


@asynccontextmanager
async def open_deployment(home: Path) -> AsyncGenerator[Deployment]:
    async with (
        open_connection(config_for(home), "test") as connection,
        open_worker(connection, env={}),
        open_service(connection),
    ):
        deployment = Deployment(connection)
        structlog.configure(processors=[deployment.record_log_entry])
        await connection.nc.subscribe("test.ask", cb=deployment.take_request)
        yield deployment
