"""Cold runs over HTTP: every operation that reads a run answers as before the run was moved."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2

from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.nats.cooling import cool_runs
from callboard.bus.nats.segments import SegmentFolder
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from callboard.surfaces.http.routes import ROUTES
from tests.support.http_application import perform, served
from tests.support.service_client import SCRIPT, SOURCE

LARGE = "x" * (INLINE_BYTES_MAX + 1)

OF_A_RUN = [route for route in ROUTES if "{run_id}" in route.path and route.method == "GET"]
OF_MANY = [
    "/runs",
    "/count?where=status%3Dcompleted",
    "/runs?order=-duration",
    "/values?of=definition",
    "/costs?by=day",
]
OTHERS = ["/diff?left=one&right=two", "/questions?run_id=one", "/questions/closed?run_id=one"]


async def read_addresses(client: httpx2.AsyncClient, run: str) -> list[str]:
    """The addresses of all operations that read a run. A new route with other parameters fails here."""
    page = (await client.get(f"/runs/{run}/events", params={"limit": 1000})).json()
    events = [one["event"] for one in page["events"]]
    values = {
        "run_id": [run],
        "n": [str(events[at]["n"]) for at in (1, len(events) // 2, -1)],
        "key": [event["key"] for event in events if event["type"] == "model.call"],
        "sha256": [digest for event in events for digest in re.findall(r'"([0-9a-f]{64})"', json.dumps(event))][:3],
    }
    found: list[str] = []
    for route in OF_A_RUN:
        paths = [route.path]
        for name in re.findall(r"\{(\w+)\}", route.path):
            assert values[name]
            paths = [path.replace(f"{{{name}}}", value.replace("#", "%23")) for path in paths for value in values[name]]
        found += paths
    return found


async def get_all(client: httpx2.AsyncClient, paths: list[str]) -> dict[str, tuple[int, str]]:
    got = {path: await client.get(path) for path in paths}
    return {path: (one.status_code, one.text) for path, one in got.items()}


async def move(connection: Connection, home: Path, *runs: str) -> None:
    refs = [RunRef("acme", run) for run in runs]
    assert await cool_runs(connection.log, SegmentFolder(home / "cold"), refs) == refs


async def test_a_cold_run_is_read_as_before(tmp_path: Path) -> None:
    message = {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT, "input": {"q": LARGE}}
    async with served(tmp_path) as (client, connection):
        for run in ("one", "two"):
            assert (await perform(client, run, message))["status"] == "completed"
        forked = await fork(client, "one", "hot-fork")
        paths = [*await read_addresses(client, "one"), *OTHERS]
        hot = await get_all(client, paths)
        # A run without a state document has the other statuses.
        assert {status for status, _text in hot.values()} <= {200, 400, 404, 409}
        assert len([path for path, (status, _text) in hot.items() if status == 200]) > len(OF_A_RUN) - 3
        listed = await get_all(client, OF_MANY)

        await move(connection, tmp_path, "one", "two")
        assert await get_all(client, paths) == hot
        cold = await get_all(client, OF_MANY)
        assert {path: without_sequence(text) for path, (_status, text) in cold.items()} == {
            path: without_sequence(text) for path, (_status, text) in listed.items()
        }
        # A fork begins with the events in the segment; a command to the ended run is refused.
        assert await fork(client, "one", "cold-fork") == forked
        refused = await client.post("/runs/one/cancel", json={})
        assert (refused.status_code, "ended" in refused.text) == (400, True)


def without_sequence(text: str) -> Any:
    found = json.loads(text)
    found.pop("sequence", None)
    return found


async def fork(client: httpx2.AsyncClient, run: str, name: str) -> list[tuple[int, str]]:
    """Fork a run at its second node, wait for the end, and return the events of the fork."""
    created = await client.post(f"/runs/{run}/fork", json={"from": "b", "start": {"run_id": name}})
    assert created.status_code == 202, created.text
    assert (await client.get(f"/runs/{name}/result", params={"wait_s": 30})).json()["status"] == "completed"
    page = (await client.get(f"/runs/{name}/events", params={"limit": 1000})).json()
    return [(one["event"]["n"], one["event"]["type"]) for one in page["events"]]
