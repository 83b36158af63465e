"""A deployment with a worker and the service, and a client that uses subjects and JSON alone: fixtures to import."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from callboard.bus.commands import REPLY_HEADER
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.nats.micro_service import open_service

PATIENCE_S = 30.0
SOURCE = json.dumps(
    {
        "id": "count",
        "name": "Count",
        "entry": "a",
        "nodes": {"a": {"name": "A", "instruction": "Count."}, "b": {"name": "B", "instruction": "Add."}},
        "edges": [{"from": "a", "to": "b"}],
    }
)
SCRIPT = {"turns": {"a": [{"data": {"found": 3}}], "b": [{"data": {"sum": 4}}]}}
WAITS = {"turns": {"a": [{"data": {"found": 3}, "delay_ms": 60_000}]}}


class Caller:
    """A client that uses subjects and JSON, without Callboard's client."""

    def __init__(self, nc: Client, tenant: str = "acme") -> None:
        self.nc = nc
        self.tenant = tenant

    async def ask(self, verb: str, body: Any = None, *, raw: bytes | None = None) -> Any:
        data = raw if raw is not None else json.dumps({} if body is None else body).encode()
        message = await self.nc.request(f"cb.api.{self.tenant}.{verb}", data, timeout=2 * PATIENCE_S)
        answer = json.loads(message.data)
        failed = (
            isinstance(answer, dict)
            and "error" in answer
            and "code" in (answer["error"] or {})
            and "status" not in answer
        )
        assert ("Nats-Service-Error-Code" in (message.headers or {})) == failed
        return answer

    async def told_to(self, subject: str, message: bytes) -> Any:
        """Publish a start or a command, and wait for its verdict, without the service."""
        inbox = self.nc.new_inbox()
        waiting = await self.nc.subscribe(inbox)
        await self.nc.publish(subject, message, headers={REPLY_HEADER: inbox})
        verdict = await waiting.next_msg(2 * PATIENCE_S)
        await waiting.unsubscribe()
        return json.loads(verdict.data)

    async def refused(self, verb: str, body: Any = None, *, raw: bytes | None = None) -> dict[str, Any]:
        return (await self.ask(verb, body, raw=raw))["error"]

    async def start(self, **message: Any) -> str:
        message = {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT, **message}
        verdict = await self.ask("start", message)
        assert verdict.get("status") == "accepted", verdict
        return verdict["run_id"]

    async def finished(self, **message: Any) -> str:
        run = await self.start(**message)
        await self.ask("result", {"run_id": run, "wait_s": PATIENCE_S})
        return run


@asynccontextmanager
async def standing(home: Path) -> AsyncGenerator[Connection]:
    """A deployment with a worker and the service."""
    flags = {"data_dir": home, "sync": "100ms"}
    async with (
        open_connection(load(flags, env={}, cwd=home), "test") as connection,
        open_worker(connection, env={}),
        open_service(connection, verdict_wait_s=PATIENCE_S),
    ):
        yield connection


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    async with standing(tmp_path) as opened:
        yield opened


@pytest.fixture
async def caller(connection: Connection) -> AsyncIterator[Caller]:
    assert connection.server is not None
    nc = await nats.connect(connection.server.url)
    yield Caller(nc)
    await nc.close()


@pytest.fixture(scope="module")
async def refusing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    """A client of a deployment that the tests of a module share: for requests without an effect."""
    async with standing(tmp_path_factory.mktemp("refusing")) as opened:
        assert opened.server is not None
        nc = await nats.connect(opened.server.url)
        yield Caller(nc)
        await nc.close()
