"""The doctor finds what is wrong with a deployment, and names what to do."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.events import RunEnd
from callboard.bus.nats.commit import OutgoingMessage
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.files.event_files import store
from callboard.service.operations.doctor import growth
from callboard.service.operations.doctor.examination import examine, tenants_of
from callboard.service.operations.doctor.findings import Level
from callboard.service.operations.doctor.growth import file_system_of
from tests.bus.nats.test_connection import nats_server
from tests.support.event_logs import Log


@asynccontextmanager
async def deployed(home: Path, **settings: Any) -> AsyncGenerator[Connection]:
    config = load({"data_dir": home / "data", "tenant": "acme", **settings}, env={}, cwd=home)
    async with open_connection(config, "test") as connection:
        yield connection


async def levels(connection: Connection) -> dict[str, Level]:
    findings = await examine(connection)
    assert all(bool(one.remedy) == (one.level != "ok") for one in findings)
    return {one.check: one.level for one in findings}


async def test_an_embedded_server_has_no_findings(tmp_path: Path) -> None:
    async with deployed(tmp_path) as connection:
        found = await levels(connection)
    found.pop("worker-user")
    assert set(found.values()) == {"ok"}, found


async def test_tenants_that_share_a_server_are_found(tmp_path: Path) -> None:
    settings = {"shared": "off", "sync": "1s", "http_listen": "0.0.0.0:8723"}
    async with deployed(tmp_path, **settings) as connection:
        await connection.log.publish(OutgoingMessage("cb.start.globex", b"{}", {}))
        assert await tenants_of(connection) == ["acme", "globex"]
        (tmp_path / "data" / "nats").chmod(0o755)
        found = await levels(connection)
    assert found["tenants-accounts"] == "warning"
    assert found["tenants-shared"] == "error"
    assert found["store-sync"] == "warning"
    assert found["http-transport"] == "warning"
    assert found["files-permissions"] == "error"


async def test_a_server_without_users_is_found(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as url, deployed(tmp_path, nats_url=url) as connection:
        found = await levels(connection)
    assert found["server-authentication"] == "error"
    assert found["store-replicas"] == "warning"


@pytest.mark.parametrize("shared", ["auto", "on"])
async def test_a_shared_server_is_checked_for_what_its_tenants_may_bring(tmp_path: Path, shared: str) -> None:
    async with deployed(tmp_path, shared=shared, code="bounded") as connection:
        await connection.log.publish(OutgoingMessage("cb.start.globex", b"{}", {}))
        found = await levels(connection)
    assert found["tenants-shared"] == "ok"
    assert found["tools-scripts"] == "warning"
    assert found["tools-code"] == "error"


async def test_growth_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log("Run-1")
    log.accepted()
    log.add(RunEnd("completed"))
    async with deployed(tmp_path) as connection:
        await store(connection.log, "acme", {log.run: log.events})
        found = {one.check: one for one in await examine(connection)}
        assert found["store-contents"].message.startswith("1 runs, of which 1 have ended")
        assert f"{len(log.events)} events" in found["store-contents"].message
        assert "nats-server 2." in found["server-version"].message
        monkeypatch.setattr(growth, "FINISHED_MAX", 1)
        monkeypatch.setattr(growth, "DISK_SHARE", 2)
        monkeypatch.setattr(growth, "memory_quota", lambda: 1_000)
        connection.log.clock.ahead_s = -2.0
        found = await levels(connection)
    assert found["store-growth"] == found["server-memory"] == found["store-disk"] == found["clock"] == "warning"


def test_the_file_system_of_a_folder_is_the_nearest(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nnone {tmp_path} ext4 rw 0 0\nnone {tmp_path} tmpfs rw 0 0\nbroken\n")
    assert file_system_of(tmp_path / "data", mounts) == "tmpfs"
    assert file_system_of(Path("/elsewhere"), mounts) == "ext4"
    assert file_system_of(tmp_path, tmp_path / "none") == ""
