"""Hostile starts, end to end: each ends clearly and by name. What bounds them is counted, and tested where it is."""

from pathlib import Path

import pytest

from callboard.runtime.settings.config import load
from callboard.runtime.worker.bootstrap import open_worker
from callboard.service.client.connection import open_connection
from tests.support.flows import flow, returned
from tests.support.hostile_starts import CORPUS, GROUPS, Hostile, start, what_becomes


def test_there_are_many() -> None:
    assert len(CORPUS) == sum(map(len, GROUPS.values())) >= 60


@pytest.mark.parametrize("group", GROUPS)
async def test_hostile_starts_end_by_name(tmp_path: Path, group: str) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms", "tenant": "acme"}, env={}, cwd=tmp_path)
    async with open_connection(config, "test") as connection, open_worker(connection, env={}):
        became = {name: await what_becomes(connection, hostile) for name, hostile in GROUPS[group].items()}
        assert became == {name: hostile.ends for name, hostile in GROUPS[group].items()}
        assert await what_becomes(connection, Hostile("", lambda: start(flow({"r": returned(1)})))) == ""
