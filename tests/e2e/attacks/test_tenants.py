"""Tenants of a shared server use only the variables and hosts that the operator names for them."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.errors import ConfigInvalid
from callboard.languages.skills.shipped import shipped_functions
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import Config, load
from callboard.runtime.worker.lent_environment import Lender
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli import exits
from callboard.surfaces.nats.micro_service import open_service
from tests.bus.nats.test_connection import nats_server
from tests.e2e.attacks.attack_runs import (
    attack,
    deployment,
    flow,
    leaks,
    mcp_source,
    script,
    serve_attacker,
    value_of,
    worker_env,
    workflow,
)
from tests.support.graphs import graph, node
from tests.support.service_api import service_api
from tests.support.workdir import Workdir
from tests.surfaces.nats.test_door import ask, connect_user

START = StartRun(DefinitionSource(source=""))


def header(url: str, variable: str) -> dict[str, Any]:
    return flow(mcp_source(url, headers={"X": f"${{{variable}}}"}))


async def test_a_variable_is_sent_to_the_hosts_of_the_tenant_only(tmp_path: Path) -> None:
    with serve_attacker() as named, serve_attacker() as other:
        hosts = [url.removeprefix("http://") for url in (named.url, other.url)]
        tenants = {"acme": {"env": {"SHOP_TOKEN": hosts[:1], "FLOOR": []}, "allow_hosts": hosts}}
        env = {**worker_env(), "FLOOR": "3"}
        async with deployment(tmp_path, env, tenant="acme", tenants=tenants) as connection:
            outcome = await attack(connection, "named", "flow", header(named.url, "SHOP_TOKEN"))
            assert outcome.lent == [("SHOP_TOKEN", hosts[0])]
            assert named.leaked == {"SHOP_TOKEN"}
            cases = [(other.url, "SHOP_TOKEN"), (named.url, "GITHUB_TOKEN"), (named.url, "HOME"), (named.url, "FLOOR")]
            cases += [(named.url, "NO_SUCH_THING"), (f"http://a@{hosts[0]}", "SHOP_TOKEN")]
            for k, (url, variable) in enumerate(cases):
                named.heard.clear()
                outcome = await attack(connection, f"r{k}", "flow", header(url, variable))
                assert "tool.refused" in outcome.text
                assert named.heard == []
                assert variable != "HOME" or "[tenants.acme.env]" in outcome.text
        assert other.heard == []


async def test_a_named_variable_is_not_sent_unencrypted_to_a_host_that_is_not_allowed(tmp_path: Path) -> None:
    tenants = {"acme": {"env": {"SHOP_TOKEN": ["shop.example"]}}}
    async with deployment(tmp_path, worker_env(), tenant="acme", tenants=tenants) as connection:
        outcome = await attack(connection, "r", "flow", header("http://shop.example/mcp", "SHOP_TOKEN"))
    assert "SHOP_TOKEN may not go to shop.example" in outcome.text


async def test_programs_get_the_variables_of_the_tenant_only(tmp_path: Path) -> None:
    dumped = tmp_path / "env.json"
    dump = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    program = {"type": "mcp", "name": "desk", "command": [sys.executable, "-c", dump, str(dumped)]}
    settings = {"tools_allow_mcp_commands": ["*"], "tools_allow_python": ["os:getenv"]}
    tenants = {"acme": {"env": {"SHOP_TOKEN": []}}}
    async with deployment(tmp_path, worker_env(), tenant="acme", tenants=tenants, **settings) as connection:
        outcome = await attack(connection, "one", "flow", flow({**program, "env": {"T": "SHOP_TOKEN"}}))
        assert outcome.lent == [("SHOP_TOKEN", f"MCP server desk ({sys.executable})")]
        assert leaks(dumped.read_text()) == {"SHOP_TOKEN"}
        dumped.unlink()
        outcome = await attack(connection, "two", "flow", flow({**program, "env": {"T": "GITHUB_TOKEN"}}))
        assert "tool.refused" in outcome.text
        assert not dumped.exists()
        source = {"type": "python", "functions": {"look": "os:getenv"}}
        for variable, found in (("SHOP_TOKEN", True), ("GITHUB_TOKEN", False), ("PATH", True)):
            document = flow(source, key=variable, default="nothing")
            outcome = await attack(connection, f"python-{variable}", "flow", document)
            assert ('"output":"nothing"' not in outcome.stored) is found
            assert leaks(outcome.text) == set(), "what the operator names is kept out of the log"


async def test_unset_lists_permit_the_shipped_tools_and_no_program(tmp_path: Path) -> None:
    async with deployment(tmp_path, worker_env(), shared="on") as connection:
        outcome = await attack(connection, "program", "flow", flow({"type": "mcp", "name": "d", "command": ["true"]}))
        assert "may not run the program true" in outcome.text
        source = {"type": "python", "functions": {"look": "os:getenv"}}
        outcome = await attack(connection, "python", "flow", flow(source, key="PATH"))
        assert "may not run the Python function os:getenv" in outcome.text
    assert len(shipped_functions()) > 20
    assert all(path.startswith("callboard.actors.skills.") for path in shipped_functions())


async def test_a_connector_uses_a_secret_that_is_named_for_the_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shipped skill and a service of graphs have no credential of the worker unless the operator names it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    document = workflow({})
    del document["skills"]
    document["nodes"]["a"]["skills"] = ["github"]
    skill = ("workflow", document, {"script": script("github_get_issue", repo="acme/shop", number=7)})
    message = {"action_type": "send_message", "channel": "#c", "message": "Hello"}
    action = graph([node("say", "EXTERNAL_ACTION", "SLACK", **message)], triggers=[])
    service = ("graph", action, {"options": {"user_id": "u", "start_from_node": "say"}})
    with service_api() as api:
        for k, named in enumerate(({}, {"GITHUB_TOKEN": [], "SLACK_BOT_TOKEN": []})):
            folder = tmp_path / str(k)
            folder.mkdir()
            tenants = {"acme": {"env": named}}
            async with deployment(folder, {**worker_env(), **api.config}, tenant="acme", tenants=tenants) as connection:
                asked_before = len(api.asked)
                for j, (language, source, fields) in enumerate((skill, service)):
                    await attack(connection, f"r{j}", language, source, **fields)
                assert (len(api.asked) - asked_before == 2) is bool(named)


def create_lender(env: dict[str, str] | None = None, *, guest: bool = False, **settings: Any) -> Lender:
    return Lender(load(settings, env={}), env or {}, guest=guest)


def test_a_server_is_shared_by_settings_tenants_or_credentials() -> None:
    assert not create_lender().is_shared("default")
    assert create_lender().is_shared("acme"), "another tenant than the one of the configuration"
    assert create_lender(shared="on").is_shared("default")
    assert not create_lender(shared="off").is_shared("acme")
    assert create_lender(tenants={"default": {}}).is_shared("default")
    assert create_lender(tenants={"*": {}}).is_shared("default")
    assert not create_lender(tenants={"acme": {}}).is_shared("default")
    signed: dict[str, Any] = {"nats_url": "nats://127.0.0.1:1", "nats_nkey_seed": "SU" + "A" * 56}
    assert create_lender(**signed).is_shared("default")
    assert not create_lender(guest=True, **signed).is_shared("default")
    assert create_lender(guest=True, **signed).is_shared("acme")
    assert create_lender(nats_url="nats://127.0.0.1:1", nats_creds="x.creds").is_shared("default")


def test_the_star_names_the_variables_of_other_tenants() -> None:
    tenants = {"*": {"env": {"A": []}}, "acme": {"env": {"B": []}}}
    one = create_lender({"A": "1", "B": "2", "CALLBOARD_X": "3"}, tenants=tenants)
    assert one.of_processes("globex") == {"A": "1"}
    assert one.of_processes("acme") == {"B": "2"}
    assert one.lending("globex", START).named == {"A": ()}


def test_the_operator_cannot_name_a_variable_of_the_runtime() -> None:
    for variable in ("CALLBOARD_NATS_TOKEN", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "NATS_CREDS", "OTEL_X"):
        with pytest.raises(ConfigInvalid, match=variable):
            load({"tenants": {"acme": {"env": {variable: []}}}}, env={})


def test_a_copy_of_a_configured_secret_is_reserved() -> None:
    key = "a-long-key-of-an-endpoint"
    env = {
        "MINE": key,
        "INSIDE": f"Bearer {key}",
        "OTHER": "x",
        "ANTHROPIC_API_KEY": "k-anthropic",
        "COPY": "k-anthropic",
    }
    endpoints = {"ours": {"api": "openai", "base_url": "http://127.0.0.1:1", "key": "${MINE}"}}
    config = load({"endpoints": endpoints}, env=env)
    assert isinstance(config, Config)
    assert Lender(config, env).of_processes("default") == {"OTHER": "x"}
    assert Lender(config, env).lending("default", START).refusals([]) == []


async def test_a_tenant_with_an_account_gets_no_secret(tmp_path: Path) -> None:
    """On a server as `callboard tenant add` sets it up."""
    workdir = Workdir(tmp_path)
    assert workdir.run("tenant", "add", "ada").exit_code == exits.OK
    with serve_attacker() as thief:
        async with nats_server(tmp_path, 'include "accounts.conf"') as url:
            seed = (tmp_path / "callboard.nk").read_text().strip()
            config = load({"nats_url": url, "nats_nkey_seed": seed, "allow_scripts": True}, env={})
            env = worker_env()
            async with (
                open_connection(config) as connection,
                open_worker(connection, env),
                open_service(connection),
                connect_user(workdir, url, "ada") as ada,
            ):
                for variable in ("SHOP_TOKEN", "GITHUB_TOKEN", "CALLBOARD_NATS_NKEY_SEED"):
                    text = json.dumps(header(thief.url, variable))
                    start = {"definition": {"source": text}, "run_id": variable, "model": "scripted"}
                    with anyio.fail_after(60):
                        verdict = await ask(ada, "ada", "start", json.dumps(start).encode())
                        assert verdict["status"] == "accepted"
                        query = json.dumps({"run_id": variable, "wait_s": 30}).encode()
                        result = await ask(ada, "ada", "result", query)
                    assert result["status"] == "failed"
                    assert value_of(variable) not in json.dumps(result)
    assert thief.heard == []
