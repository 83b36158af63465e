"""A fresh server and worker for a benchmark, in a temporary folder, and chains of nodes to run."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from callboard.lib.canonical_json import canonical
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.service.worker.bootstrap import open_worker

EVENTS_AROUND = 5
"""Events other than those of nodes: accepted, claimed, start, sources resolved, end; the last node has no route."""

EVENTS_PER_NODE = 5
"""Enter, call, result, exit, route."""


def quiet() -> None:
    """Keep log lines out of the figures."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


def settings(folder: str, sync: str, **flags: Any) -> Config:
    return load({"data_dir": folder, "sync": sync, **flags}, env={})


@asynccontextmanager
async def fresh_deployment(sync: str, **flags: Any) -> AsyncGenerator[Connection]:
    """Start an empty embedded server."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_connection(settings(folder, sync, **flags)) as connection:
            yield connection


@asynccontextmanager
async def staffed_connection(sync: str, **flags: Any) -> AsyncGenerator[Connection]:
    """Start the same with a worker, like `callboard up`."""
    async with fresh_deployment(sync, **flags) as connection, open_worker(connection, {}):
        yield connection


def chain(nodes: int) -> str:
    """Return a workflow of ``nodes`` nodes in sequence."""
    document = {
        "id": f"chain-{nodes}",
        "name": "Chain",
        "entry": "n0",
        "nodes": {f"n{i}": {"name": f"Node {i}", "instruction": "Count."} for i in range(nodes)},
        "edges": [{"from": f"n{i}", "to": f"n{i + 1}"} for i in range(nodes - 1)],
    }
    return canonical(document).decode()


def start_message(nodes: int, run_id: str) -> dict[str, Any]:
    """Return the start of a chain on a scripted model that answers at once."""
    return {
        "definition": {"language": "workflow", "source": chain(nodes)},
        "run_id": run_id,
        "model": "scripted",
        "script": {"default": {"text": "ok"}},
    }


def events_of(nodes: int) -> int:
    """Return how many events a chain's log has."""
    return EVENTS_AROUND + EVENTS_PER_NODE * nodes - 1
