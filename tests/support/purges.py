"""Purges in tests: whole ones, and interrupted ones."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats import purge as purging
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.purge import PurgeMark
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection
from callboard.service.operations.removal import purge_run

TENANT = "acme"
MARK = PurgeMark(by="ada", reason="asked to")
CALLS_BEFORE_DEATH = 2
"""The requests of a purge before it is interrupted: then the mark is stored, and a part of the run is left."""


async def purged(connection: Connection, run: str, mark: PurgeMark = MARK) -> int:
    """Purge a run."""
    return await purge_run(Client(connection.log, TENANT), run, mark)


async def left(connection: Connection, word: str) -> list[str]:
    """Return the subjects of the stream that contain a word."""
    body = {"subjects_filter": ">"}
    found = await api(connection.log.requests, f"STREAM.INFO.{connection.log.stream}", body)
    return [subject for subject in found["state"].get("subjects", {}) if word in subject]


@contextmanager
def broken_off() -> Generator[None]:
    """Interrupt each purge in this block, as if its process were killed, also when it is tried again."""
    calls = 0

    async def dies(requests: Any, verb: str, body: Any) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls > CALLS_BEFORE_DEATH:
            raise NoAnswer("killed")
        return await api(requests, verb, body)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(purging, "api", dies)
        yield
