"""Tenants with their own accounts: none publishes on the subjects of another, or receives from them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from callboard.bus.nats.accounts import ASKED, HEARD, SAID
from callboard.bus.nats.client import ReconnectingClient
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli import exits
from callboard.surfaces.nats.micro_service import open_service
from tests.bus.nats.test_connection import nats_server
from tests.support.workdir import ONE_NODE, Workdir

SECRET = "nobody else's"


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir(tmp_path)


@asynccontextmanager
async def open_deployment(workdir: Workdir) -> AsyncGenerator[str]:
    """A server with the accounts of two tenants, and a worker; yields its URL."""
    for tenant in ("ada", "bob"):
        assert workdir.run("tenant", "add", tenant).exit_code == exits.OK
    async with nats_server(workdir.folder, 'include "accounts.conf"') as url:
        seed = (workdir.folder / "callboard.nk").read_text().strip()
        config = load({"nats_url": url, "nats_nkey_seed": seed, "allow_scripts": True}, env={})
        async with open_connection(config) as connection, open_worker(connection, {}), open_service(connection):
            yield url


@asynccontextmanager
async def connect_user(workdir: Workdir, url: str, tenant: str) -> AsyncGenerator[Client]:
    """Any NATS client, with the key of a tenant's user."""
    nc = ReconnectingClient()
    seed = (workdir.folder / f"{tenant}.nk").read_text().strip()
    try:
        await nc.connect(url, nkeys_seed_str=seed, allow_reconnect=False)
        yield nc
    finally:
        await nc.close()


def start(run_id: str) -> bytes:
    message = {
        "definition": {"source": ONE_NODE},
        "run_id": run_id,
        "model": "scripted",
        "script": {"turns": {"a": [{"text": SECRET, "delay_ms": 0}]}},
    }
    return json.dumps(message).encode()


async def ask(nc: Client, tenant: str, verb: str, body: bytes) -> Any:
    return json.loads((await nc.request(f"cb.api.{tenant}.{verb}", body, timeout=30)).data)


async def test_a_tenant_reaches_its_own_runs_only(workdir: Workdir) -> None:
    async with (
        open_deployment(workdir) as url,
        connect_user(workdir, url, "ada") as ada,
        connect_user(workdir, url, "bob") as bob,
    ):
        heard: list[Msg] = []

        async def hear(message: Msg) -> None:
            heard.append(message)

        hearing = await ada.subscribe(">", cb=hear)
        for nc, tenant in ((bob, "bob"), (ada, "ada")):
            assert (await ask(nc, tenant, "start", start("one")))["status"] == "accepted"
            result = await ask(nc, tenant, "result", b'{"run_id": "one", "wait_s": 30}')
            assert result["status"] == "completed"
        acknowledged = await bob.request("cb.start.bob", start("two"), timeout=30)
        assert json.loads(acknowledged.data)["stream"] == "CB_CALLBOARD"
        await ask(bob, "bob", "result", b'{"run_id": "two", "wait_s": 30}')
        await ada.flush()
        output = [message.subject for message in heard]
        assert any(subject.endswith("run.end") for subject in output)
        assert not [subject for subject in output if ".bob" in subject]
        await hearing.unsubscribe()

        for pattern in (*SAID, *ASKED, *HEARD):
            subject = pattern.format(prefix="cb", tenant="bob").replace(">", "one.kill")
            with pytest.raises(NoRespondersError):
                await ada.request(subject, start("three"), timeout=30)
        for subject in ("cb.beat", "cb.queue.0.bob.one.kill"):
            with pytest.raises(NoRespondersError):
                await ada.request(subject, b"{}", timeout=30)
        # Her account has no JetStream.
        for verb in ("INFO", "STREAM.NAMES", "STREAM.MSG.GET.CB_CALLBOARD", "STREAM.PURGE.CB_CALLBOARD"):
            reply = json.loads((await ada.request(f"$JS.API.{verb}", b"{}", timeout=30)).data)
            assert "JetStream not enabled" in reply["error"]["description"]
        rows = (await ask(bob, "bob", "runs", b"{}"))["runs"]
        assert {(row["run"], row["status"]) for row in rows} == {("one", "completed"), ("two", "completed")}


async def test_a_removed_tenant_cannot_connect(workdir: Workdir) -> None:
    for args in (("add", "ada"), ("add", "bob"), ("remove", "ada")):
        assert workdir.run("tenant", *args).exit_code == exits.OK
    assert list(workdir.run_json("tenant", "list")["tenants"]) == ["bob"]
    async with nats_server(workdir.folder, 'include "accounts.conf"') as url:
        with anyio.fail_after(30):
            with pytest.raises(Exception, match="Authorization"):
                async with connect_user(workdir, url, "ada"):
                    pass
            async with connect_user(workdir, url, "bob") as bob:
                assert bob.is_connected


def test_keys_are_private_to_their_owner_and_not_replaced(workdir: Workdir) -> None:
    assert workdir.run("tenant", "add", "Ada & Sons").exit_code == exits.OK
    keys = [workdir.folder / "Ada=20=26=20Sons.nk", workdir.folder / "callboard.nk"]
    assert all(key.stat().st_mode & 0o077 == 0 for key in keys)
    conf = (workdir.folder / "accounts.conf").read_text()
    assert not [key for key in keys if key.read_text().strip() in conf]
    for args, code in (
        (("add", "Ada & Sons"), "tenant.unusable"),
        (("add", "callboard"), "tenant.unusable"),
        (("add", "x", "--accounts", "one.yaml"), "tenant.accounts"),
        (("remove", "nobody"), "tenant.unusable"),
        (("list", "--accounts", "nowhere.conf"), "tenant.unusable"),
    ):
        workdir.write("one.yaml", ONE_NODE)
        refused = workdir.run("tenant", *args, "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (exits.UNUSABLE, code)
    assert (workdir.folder / "accounts.conf").read_text() == conf
