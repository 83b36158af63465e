"""A worker, and the application over HTTP at a free address, with a client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup
from starlette.types import ASGIApp

from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations.run_lists import Listings
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.engine.routes import engine_routes
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.address import listening, url_of
from callboard.surfaces.http.app import http_app
from callboard.surfaces.http.http_server import serve_app
from callboard.surfaces.http.metrics import Metrics
from callboard.surfaces.http.readiness import Readiness
from callboard.surfaces.http.routes import offered_operations

PATIENCE_S = 30.0


def code_of(response: httpx2.Response) -> tuple[int, str]:
    """The status of a refused request, and the code of its error."""
    return response.status_code, response.json()["error"]["code"]


def application(connection: Connection, tasks: TaskGroup, token: str | None = None) -> ASGIApp:
    """The application over an open connection."""
    listings = Listings(connection.log, tasks, prices=connection.config.price_table())
    operations = offered_operations(connection, listings, verdict_wait_s=PATIENCE_S)
    metrics = Metrics(connection, listings, tasks)
    engine = engine_routes(connection.log, "acme", operations)
    return http_app(connection.log, "acme", operations, access=Access(token, open=True), metrics=metrics, more=engine)


@asynccontextmanager
async def served(
    home: Path, token: str | None = None, **settings: Any
) -> AsyncGenerator[tuple[httpx2.AsyncClient, Connection]]:
    """Serve for the length of a block."""
    flags = {"data_dir": home, "sync": "100ms", "tenant": "acme", "partitions": 4, "allow_scripts": True, **settings}
    with listening("127.0.0.1", 0, "http") as bound:
        async with (
            open_connection(load(flags, env={}, cwd=home), "test") as connection,
            open_worker(connection, env={}),
            anyio.create_task_group() as tasks,
        ):
            readiness = Readiness(connection.log, "acme")
            tasks.start_soon(serve_app, application(connection, tasks, token), bound, readiness.find_problem)
            url = f"{url_of(bound)}/api/acme"
            async with httpx2.AsyncClient(base_url=url, timeout=2 * PATIENCE_S, trust_env=False) as client:
                yield client, connection
            tasks.cancel_scope.cancel()


async def perform(client: httpx2.AsyncClient, run: str, start: dict[str, Any]) -> dict[str, Any]:
    """Start a run; return its result when it has ended."""
    started = await client.post("/runs", json={**start, "run_id": run})
    assert started.status_code == 202, started.text
    return (await client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})).json()
