"""A worker whose clock is wrong, and one that starts while the cluster has no leader."""

import datetime as dt
import json
from pathlib import Path

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.errors import ClockSkewed
from callboard.bus.nats import jetstream, server_clock
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import open_log
from callboard.bus.subjects import Subjects
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.cluster import SERVERS, cluster
from tests.support.flows import flow, returned

PATIENCE_S = 30.0
HOUR = dt.timedelta(hours=1)
NAP = json.dumps(flow({"nap": {"action": "Sleep", "for": "PT1S", "next": "done"}, "done": returned()}))


@pytest.fixture(params=[HOUR, -HOUR], ids=["ahead", "behind"])
def shift(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dt.timedelta:
    """A clock that is an hour off."""

    def now() -> dt.datetime:
        return dt.datetime.now(dt.UTC) + request.param

    class ShiftedClock(server_clock.ServerClock):
        def now(self) -> dt.datetime:
            return now() - self._offset

    monkeypatch.setattr(server_clock, "local_now", now)
    monkeypatch.setattr(jetstream, "ServerClock", ShiftedClock)
    return request.param


async def test_a_sleep_has_the_right_length_with_a_wrong_clock(tmp_path: Path, shift: dt.timedelta) -> None:
    settings = {"data_dir": tmp_path, "sync": "100ms", "park_linger_s": 0, "clock_skew_max_s": 2 * HOUR.total_seconds()}
    config = load(settings, env={}, cwd=tmp_path)
    async with open_connection(config, "test") as connection, open_worker(connection, env={}):
        assert connection.log.clock.ahead_s == pytest.approx(shift.total_seconds(), abs=5)
        start = {"definition": {"source": NAP}, "run_id": "nap", "model": "scripted", "script": {}}
        verdict = await connection.client.start(start)
        assert verdict.status == "accepted", verdict
        with anyio.fail_after(PATIENCE_S):
            async with connection.client.follow("nap") as feed:
                async for item in feed:
                    assert abs(item.event.time - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)
                    if item.event.type == ev.RunEnd.type:
                        break
        parked = [event for event in await connection.client.events("nap") if event.type == ev.RunParked.type]
        assert parked


async def test_a_worker_with_a_wrong_clock_does_not_start(tmp_path: Path, shift: dt.timedelta) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={}, cwd=tmp_path)
    async with open_connection(config, "test") as connection:
        with pytest.raises(ClockSkewed, match=r"3600 s (ahead of|behind) the server"):
            async with open_worker(connection, env={}):
                pass


async def test_opening_a_log_waits_for_a_new_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        async with open_nats_connection(servers.url, name="first") as nc:
            log = await open_log(nc, Subjects(), partitions=4, replicas=SERVERS)
            leader = await servers.leader(log.stream)
        servers.kill(leader)
        others = ",".join(url for i, url in enumerate(servers.urls) if i != leader)
        async with open_nats_connection(others, name="second") as nc:
            again = await open_log(nc, Subjects(), partitions=4, replicas=SERVERS)
            assert again.store == log.store
