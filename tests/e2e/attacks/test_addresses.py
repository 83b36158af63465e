"""A start has the worker connect to addresses inside of the operator's network: by MCP servers and by HTTP requests."""

import ipaddress
import socket
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.actors.lending.addresses import AddressRefused, Reach, checked_addresses, is_forbidden, is_public
from tests.e2e.attacks.attack_runs import (
    GRAPH_START,
    attack,
    deployment,
    flow,
    graph,
    mcp_source,
    serve_attacker,
    worker_env,
)

FORBIDDEN = [
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fe80::1%lo",
    "febf::1",
    "fd00:ec2::254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "ff02::1",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::169.254.169.254",
    "64:ff9b:1:a9fe:a9:fe00::",
    "64:ff9b:1:ffa9:fe:a9fe::",
    "64:ff9b:1:ffff:a9:fea9:fe00:0",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe:0:0:0:0",
    "2001::5601:5601",
    "2606:4700::5efe:169.254.169.254",
    "2606:4700::200:5efe:169.254.169.254",
]
"""Addresses that are always refused, also in their disguises."""

PRIVATE = [
    *("127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "::1", "::"),
    *("fd12::1", "::ffff:10.0.0.1", "::10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"),
]
PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::8.8.8.8", "2002:808:808::1"]


@pytest.mark.parametrize("address", FORBIDDEN)
async def test_a_forbidden_address_is_refused_even_if_allowed(address: str) -> None:
    with pytest.raises(AddressRefused, match="always refused"):
        await checked_addresses(address, 80, Reach(private=True, allow_hosts=frozenset({address, f"{address}:80"})))


@pytest.mark.parametrize("address", PRIVATE)
async def test_a_private_address_needs_a_single_user_or_a_permission(address: str) -> None:
    with pytest.raises(AddressRefused, match="not of the public internet"):
        await checked_addresses(address, 80, Reach())
    assert await checked_addresses(address, 80, Reach(private=True))
    assert await checked_addresses(address, 80, Reach(allow_hosts=frozenset({f"{address}:80"})))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_permitted(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    assert not is_forbidden(ipaddress.ip_address(address))


@pytest.mark.parametrize("written", ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518"])
async def test_a_numeric_host_is_checked_as_its_address(written: str) -> None:
    with pytest.raises(AddressRefused):
        await checked_addresses(written, 80, Reach(private=True, allow_hosts=frozenset({written})))


def mcp_flow(url: str, **more: Any) -> dict[str, Any]:
    return flow(mcp_source(url, **more))


METADATA = [
    "http://169.254.169.254/mcp",
    "http://[::ffff:169.254.169.254]/mcp",
    "http://[fe80::1]/mcp",
    "http://2852039166/",
]


async def test_no_mcp_server_is_at_a_link_local_address_even_for_a_single_user(tmp_path: Path) -> None:
    async with deployment(tmp_path, worker_env()) as connection:
        for k, url in enumerate(METADATA):
            outcome = await attack(connection, f"flow-{k}", "flow", mcp_flow(url))
            assert "always refused" in outcome.text
            outcome = await attack(connection, f"graph-{k}", "graph", graph(mcp_server_url=url), **GRAPH_START)
            assert "always refused" in outcome.text


async def test_a_shared_server_reaches_no_private_address_unless_the_operator_allows_it(tmp_path: Path) -> None:
    with serve_attacker() as inside, serve_attacker() as other:
        tenants = {"acme": {"allow_hosts": [inside.url.removeprefix("http://")]}}
        async with deployment(tmp_path, worker_env(), tenant="acme", tenants=tenants) as connection:
            for k, url in enumerate((other.url, other.url.replace("127.0.0.1", "localhost"), "http://[::1]:9/")):
                outcome = await attack(connection, f"r{k}", "flow", mcp_flow(url))
                assert "not of the public internet" in outcome.text
            assert other.heard == []
            await attack(connection, "allowed", "flow", mcp_flow(inside.url))
            assert inside.heard


async def test_a_name_that_changes_its_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name whose address changes between two look-ups (DNS rebinding)."""
    with serve_attacker() as inside:
        port = int(inside.url.rpartition(":")[2])
        asked: list[str] = []
        real = anyio.getaddrinfo

        async def resolved(host: Any, port: Any, **more: Any) -> Any:
            if host != "rebinding.example":
                return await real(host, port, **more)
            asked.append(host)
            address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(anyio, "getaddrinfo", resolved)
        async with deployment(tmp_path, worker_env(), shared="on") as connection:
            outcome = await attack(connection, "r", "flow", mcp_flow(f"http://rebinding.example:{port}/mcp"))
        assert len(asked) == 2, "it was checked before, and as it was connected to"
        assert outcome.status == "failed"
    assert inside.heard == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_carries_no_header_to_another_server(tmp_path: Path, status: int) -> None:
    with serve_attacker() as thief, serve_attacker(status, thief.url) as first:
        async with deployment(tmp_path, worker_env()) as connection:
            await attack(connection, "r", "flow", mcp_flow(first.url, headers={"X": "${SHOP_TOKEN}"}))
    assert first.leaked == {"SHOP_TOKEN"}
    assert thief.heard == []


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data", "http://[::ffff:a9fe:a9fe]/"])
async def test_an_http_request_reaches_no_metadata_service_even_at_an_allowed_host(tmp_path: Path, target: str) -> None:
    providers = {"http": {"allow_hosts": ["169.254.169.254", "::ffff:a9fe:a9fe", "127.0.0.1"]}}
    with serve_attacker(302, target) as first:
        allowed = {"http": {"allow_hosts": [*providers["http"]["allow_hosts"], first.url.removeprefix("http://")]}}
        async with deployment(tmp_path, worker_env(), providers=allowed) as connection:
            for k, url in enumerate((target, first.url)):
                call = {"provider": "mwl:provider.call/callboard/http/v1", "with": {"url": url}}
                document = mcp_flow(url)
                document["steps"]["a"]["call"] = call
                outcome = await attack(connection, f"r{k}", "flow", document)
                assert "always refused" in outcome.text
        assert first.heard
