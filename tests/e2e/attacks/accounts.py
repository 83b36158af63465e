"""A server with an account for each of two tenants, and a worker that may run neither Python nor programs as tools."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from nats.aio.client import Client

from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli import exits
from callboard.surfaces.nats.micro_service import open_service
from tests.bus.nats.test_connection import nats_server
from tests.support.workdir import ONE_NODE, Workdir
from tests.surfaces.nats.test_door import connect_user

ATTACKER, VICTIM = "acme", "globex"
SECRET = "the victim's own words"
PATIENCE_S = 30.0


class Deployment(Struct, frozen=True):
    """The two tenants' own connections, and the runtime's."""

    url: str
    runtime: Connection
    attacker: Client
    victim: Client

    async def attack(self, verb: str, /, **asked: Any) -> Any:
        """Ask the service as the attacker."""
        return await self._asked(self.attacker, ATTACKER, verb, asked)

    async def defend(self, verb: str, /, **asked: Any) -> Any:
        """Ask the service as the victim."""
        return await self._asked(self.victim, VICTIM, verb, asked)

    async def _asked(self, nc: Client, tenant: str, verb: str, asked: dict[str, Any]) -> Any:
        body = json.dumps(asked).encode()
        return json.loads((await nc.request(f"cb.api.{tenant}.{verb}", body, timeout=PATIENCE_S)).data)

    async def performed(self, **start: Any) -> Any:
        """Perform a run of the attacker; return its end."""
        verdict = await self.attack("start", **start)
        assert verdict.get("status") == "accepted", verdict
        return await self.attack("result", run_id=verdict["run_id"], wait_s=PATIENCE_S)


@asynccontextmanager
async def deployment(workdir: Workdir, **settings: Any) -> AsyncGenerator[Deployment]:
    """Open the deployment; ``settings`` are further settings of the worker."""
    for tenant in (ATTACKER, VICTIM):
        assert workdir.run("tenant", "add", tenant).exit_code == exits.OK
    async with nats_server(workdir.folder, 'include "accounts.conf"') as url:
        seed = (workdir.folder / "callboard.nk").read_text().strip()
        given = {
            "nats_url": url,
            "nats_nkey_seed": seed,
            "partitions": 2,
            "allow_scripts": True,
            "tools_allow_python": ["none"],
            "tools_allow_mcp_commands": ["none"],
            **settings,
        }
        config = load(given, env={}, cwd=workdir.folder)
        async with (
            open_connection(config) as connection,
            open_worker(connection, {}),
            open_service(connection),
            connect_user(workdir, url, ATTACKER) as attacker,
            connect_user(workdir, url, VICTIM) as victim,
        ):
            yield Deployment(url, connection, attacker, victim)


def victim_start(run_id: str, **more: Any) -> dict[str, Any]:
    """A start of the victim whose run continues until it is cancelled or killed."""
    return {
        "definition": {"source": ONE_NODE},
        "run_id": run_id,
        "input": {"said": SECRET},
        "model": "scripted",
        "script": {"turns": {"a": [{"text": SECRET, "delay_ms": 120_000}]}},
        **more,
    }
