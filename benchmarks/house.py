"""A fresh house for a benchmark: an embedded server in a temporary folder, a worker, and chains of nodes to run."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from callboard.bus.effects import canonical
from callboard.runtime.bootstrap import open_worker
from callboard.runtime.collector import settled_collector
from callboard.runtime.config import Config, load
from callboard.runtime.house import House, open_house

EVENTS_AROUND = 5
"""Besides its nodes' events: accepted, claimed, start, sources resolved, end; the last node has no route."""

EVENTS_PER_NODE = 5
"""Enter, call, result, exit, route."""


def quiet() -> None:
    """Keep the log out of the figures."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


def settings(folder: str, sync: str, **flags: Any) -> Config:
    return load({"data_dir": folder, "sync": sync, **flags}, env={})


@asynccontextmanager
async def fresh_house(sync: str, **flags: Any) -> AsyncGenerator[House]:
    """An embedded server with nothing in it."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_house(settings(folder, sync, **flags)) as house:
            yield house


@asynccontextmanager
async def staffed_house(sync: str, **flags: Any) -> AsyncGenerator[House]:
    """The same with a worker, as `callboard up` has it."""
    async with fresh_house(sync, **flags) as house, open_worker(house, {}):
        with settled_collector():
            yield house


def chain(nodes: int) -> str:
    """A workflow of so many nodes, one after the other."""
    document = {
        "id": f"chain-{nodes}",
        "name": "Chain",
        "entry": "n0",
        "nodes": {f"n{i}": {"name": f"Node {i}", "instruction": "Count."} for i in range(nodes)},
        "edges": [{"from": f"n{i}", "to": f"n{i + 1}"} for i in range(nodes - 1)],
    }
    return canonical(document).decode()


def start_message(nodes: int, run_id: str) -> dict[str, Any]:
    """A start of a chain on a scripted model that answers at once."""
    return {
        "definition": {"language": "workflow", "source": chain(nodes)},
        "run_id": run_id,
        "model": "scripted",
        "script": {"default": {"text": "ok"}},
    }


def events_of(nodes: int) -> int:
    """How many events a chain's log has."""
    return EVENTS_AROUND + EVENTS_PER_NODE * nodes - 1
