"""Existing NATS installations: NATS_URL, contexts of the tool `nats`, JetStream in the domain of a leaf node's hub."""

import json
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.errors import ConfigInvalid, JetStreamDisabled
from callboard.bus.nats.server.program import find_server
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import Config, load
from callboard.service.worker.bootstrap import open_worker
from tests.support.cluster import tied
from tests.support.ports import free_ports
from tests.support.workdir import ONE_NODE

PATIENCE_S = 60.0


def context(tmp_path: Path, name: str = "there", **members: Any) -> dict[str, str]:
    """Write a context; return the environment in which it is found."""
    folder = tmp_path / "config" / "nats" / "context"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"description": "", "user": "", **members}))
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def test_the_server_in_nats_url_is_used_unless_another_is_configured(tmp_path: Path) -> None:
    env = {"NATS_URL": "nats://a:1"}
    assert load(env=env, cwd=tmp_path).nats_url == "nats://a:1"
    assert load(env={**env, "CALLBOARD_NATS_URL": "nats://b:1"}, cwd=tmp_path).nats_url == "nats://b:1"
    assert load({"data_dir": "store"}, env={**env, "NATS_CONTEXT": "nobody"}, cwd=tmp_path).nats_url is None
    (tmp_path / "callboard.toml").write_text('nats_url = "nats://c:1"\n')
    assert load(env=env, cwd=tmp_path).nats_url == "nats://c:1"


def test_a_context_supplies_all_settings_that_are_not_configured(tmp_path: Path) -> None:
    (tmp_path / "seed").write_text("SUAB\n")
    env = context(
        tmp_path, url="tls://there:4222", creds="~/a.creds", nkey="~/seed", jetstream_domain="hub", inbox_prefix="_I"
    )
    found = load({"nats_context": "there"}, env={**env, "NATS_URL": "nats://a:1"}, cwd=tmp_path)
    assert (found.nats_url, found.nats_domain, found.nats_inbox_prefix) == ("tls://there:4222", "hub", "_I")
    assert found.nats_creds == tmp_path / "a.creds"
    assert found.credentials().nkey_seed == "SUAB"
    assert {name: source for name, _value, source in found.explain()}["nats_domain"] == "context there"
    asked = load(env={**env, "NATS_CONTEXT": "there", "CALLBOARD_NATS_URL": "nats://b:1"}, cwd=tmp_path)
    assert (asked.nats_url, asked.nats_domain) == ("nats://b:1", "hub")
    by_file = load(
        {"nats_context": str(tmp_path / "config/nats/context/there.json")}, env={"HOME": str(tmp_path)}, cwd=tmp_path
    )
    assert by_file.nats_url == "tls://there:4222"


@pytest.mark.parametrize(
    ("members", "name", "said"),
    [
        ({}, "nobody", "does not exist"),
        ({}, "../x", "does not exist"),
        ({}, "a b", "invalid name of a context"),
        ({"nsc": "nsc://o/a/u", "socks_proxy": "x"}, "there", "has nsc, socks_proxy, which Callboard does not support"),
        ({"nkey": "/nowhere/seed"}, "there", "the nkey of"),
    ],
)
def test_a_context_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: Any, name: str, said: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    with pytest.raises(ConfigInvalid) as caught:
        load({"nats_context": name}, env=context(tmp_path, **members), cwd=tmp_path)
    assert [problem.code for problem in caught.value.problems] == ["config.context"]
    assert said in caught.value.problems[0].message


@contextmanager
def leaf(tmp_path: Path) -> Generator[str]:
    """Two servers: the hub has JetStream, in a domain; the other is a leaf of it without. Yields the leaf's address."""
    ours, hubs, leaves = free_ports(3)
    store = json.dumps(str(tmp_path / "store"))
    configs = {
        "hub": f"port: {hubs}\nserver_name: hub\njetstream {{ store_dir: {store}, domain: hub }}\n"
        f"leafnodes {{ host: 127.0.0.1, port: {leaves} }}\n",
        "leaf": f"port: {ours}\nserver_name: leaf\n"
        f'leafnodes {{ reconnect: "100ms", remotes: [{{ url: "nats-leaf://127.0.0.1:{leaves}" }}] }}\n',
    }
    with ExitStack() as stack:
        for name, text in configs.items():
            (tmp_path / f"{name}.conf").write_text(f"host: 127.0.0.1\n{text}")
            command = tied([find_server(), "-c", str(tmp_path / f"{name}.conf")])
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)
        yield f"nats://127.0.0.1:{ours}"


async def test_runs_are_executed_through_a_leaf_node_in_the_domain_of_its_hub(tmp_path: Path) -> None:
    with leaf(tmp_path) as url:
        given = {"nats_url": url, "nats_domain": "hub", "nats_inbox_prefix": "_I_test", "allow_scripts": True}
        config = Config.model_validate({**given, "partitions": 1})
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    async with open_connection(config, "test") as connection, open_worker(connection, env={}):
                        info = await connection.nc.jetstream().stream_info(connection.log.stream)
                        assert (info.config.description or "").startswith("Callboard")
                        message = {"definition": {"source": ONE_NODE}, "script": {"default": {"text": "ok"}}}
                        verdict = await connection.client.start({**message, "model": "scripted", "run_id": "far"})
                        assert verdict.status == "accepted"
                        async with connection.client.follow("far", event_type="run.end") as feed:
                            async for recorded in feed:
                                assert recorded.event.run == "far"
                                return
                except* JetStreamDisabled:
                    await anyio.sleep(0.05)  # the leaf has not reached its hub yet
