"""The cache of runs that are read: the order of readers, and its bound."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from callboard.surfaces.http import histories
from callboard.surfaces.http.histories import Histories
from tests.support.http_application import perform
from tests.surfaces.http.test_readings import TWO, Deployment
from tests.surfaces.http.test_readings import deployment as deployment  # the fixtures
from tests.surfaces.http.test_readings import turns as turns
from tests.surfaces.http.test_readings import two as two


class ObservedLog:
    """The log of a connection; calls a function after each reading."""

    def __init__(self, connection: Connection, note: Callable[[Any, int], None]) -> None:
        self._log, self._note = connection.log, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, ref: RunRef, after: int, limit: int, bytes_max: int) -> Any:
        found = await self._log.read(ref, after, limit, bytes_max)
        self._note(found, bytes_max)
        return found


def observed_histories(connection: Connection, note: Callable[[Any, int], None]) -> Histories:
    log: Any = ObservedLog(connection, note)
    return Histories(log, "acme")


async def test_the_first_rows_do_not_wait_for_the_last(
    deployment: Deployment, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "READ_EVENTS", 1)
    _, connection = deployment
    read: list[int] = []

    begun = anyio.Event()

    def note(found: Any, _bytes_max: int) -> None:
        read.append(len(found))
        begun.set()

    kept = observed_histories(connection, note)
    order: list[str] = []

    async def look(until: int | None) -> None:
        await kept.of(two, until)
        order.append("first" if until else "all")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look, None)
        await begun.wait()
        tasks.start_soon(look, 3)
    assert order == ["first", "all"]
    assert sum(read) == len((await kept.of(two)).events)


async def test_reading_a_run_evicts_others_from_the_cache(
    deployment: Deployment, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, connection = deployment
    for run in ("third", "fourth"):
        await perform(client, run, TWO)
    sizes: list[int] = []

    def note(found: Any, bytes_max: int) -> None:
        sizes.append(kept.size)
        assert len(found) <= 1 or sum(len(item.data) for item in found[:-1]) < 2 * bytes_max

    kept = observed_histories(connection, note)
    whole = (await kept.of(two)).size
    read_at_once = len(sizes)
    monkeypatch.setattr(histories, "READ_BYTES", 2_000)
    monkeypatch.setattr(histories, "KEPT_BYTES_MAX", whole)
    for run in ("third", "fourth", two):
        assert (await kept.of(run)).has_ended
    assert len(sizes) > 4 * read_at_once
    assert max(sizes) < 1.2 * whole
    assert kept.size < 1.2 * whole
