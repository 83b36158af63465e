"""The engine's HTTP API: workflows, executions and their logs, in the terms of its design document."""

import datetime as dt
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from callboard.bus.events import HumanAsked, RunAccepted, RunParked, payload_of
from callboard.bus.nats.registrations import read_registration
from callboard.bus.subjects import Subjects
from callboard.features.access.keys import ApiKeys
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations.operations import Operations
from callboard.service.operations.run_lists import Listings
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.engine.routes import Health, engine_routes, health_route
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.app import http_app

PATIENCE_S = 30.0

GO = {"id": "go", "name": "go", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}}
SORT = {
    "id": "sort",
    "name": "sort",
    "type": "FLOW",
    "subtype": "IF",
    "configurations": {"condition_expression": "true"},
}
ASK = {
    "id": "approve",
    "name": "approve",
    "type": "HUMAN_IN_THE_LOOP",
    "subtype": "IN_APP_APPROVAL",
    "configurations": {"interaction_type": "approval", "message": "Ship it?"},
}
WAIT = {"id": "paid", "name": "paid", "type": "FLOW", "subtype": "WAIT", "configurations": {"wait_type": "event"}}


def body(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    wires = [{"id": f"c-{one['id']}", "from_node": "go", "to_node": one["id"]} for one in nodes]
    return {"name": "Desk", "created_by": "ada", "nodes": [GO, *nodes], "connections": wires, **more}


Deployment = tuple[httpx2.AsyncClient, Connection]


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    home = tmp_path_factory.mktemp("engine")
    flags = {"data_dir": home, "sync": "1s", "tenant": "acme", "partitions": 2, "park_linger_s": 0.0}
    async with (
        open_connection(load(flags, env={}, cwd=home), "test") as connection,
        open_worker(connection, env={}),
        anyio.create_task_group() as tasks,
    ):
        operations = Operations(connection.log, Definitions(), Listings(connection.log, tasks)).operations()
        access = Access("0perator", keys=ApiKeys(connection.log, "acme"))
        engine = engine_routes(connection.log, "acme", operations)
        app = http_app(
            connection.log, "acme", operations, access, more=engine, open_to_all=[health_route(connection.log, "acme")]
        )
        headers = {"authorization": "Bearer 0perator"}
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            client.timeout = httpx2.Timeout(PATIENCE_S)
            yield client, connection
        tasks.cancel_scope.cancel()


async def request(client: httpx2.AsyncClient, method: str, path: str, status: int = 200, **more: Any) -> Any:
    answer = await client.request(method, path, **more)
    assert answer.status_code == status, answer.text
    return answer.json()


async def create_workflow(client: httpx2.AsyncClient, *nodes: dict[str, Any], **more: Any) -> str:
    return (await request(client, "POST", "/v2/workflows", json=body(*nodes, **more)))["workflow"]["id"]


async def start_execution(deployment: Deployment, workflow: str, waits_for: str) -> str:
    """Start a workflow and wait for an event of its run."""
    client, connection = deployment
    started = await request(
        client, "POST", f"/v2/workflows/{workflow}/execute", json={"trigger_data": {"user_id": "ada"}}
    )
    run = started["execution_id"]
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type=waits_for) as feed:
            async for _ in feed:
                return run
    raise AssertionError("the feed has ended")


async def wait_for_end(deployment: Deployment, run: str) -> Any:
    client, connection = deployment
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type="run.end") as feed:
            async for _ in feed:
                break
    return await request(client, "GET", f"/v2/executions/{run}")


# -- workflows --------------------------------------------------------------------------------------------------------


async def test_a_workflow_is_created_shown_changed_and_listed(deployment: Deployment) -> None:
    client, _ = deployment
    whole = (await request(client, "POST", "/v2/workflows", json=body(SORT, tags=["desk"])))["workflow"]
    assert (whole["user_id"], whole["active"], whole["triggers"]) == ("ada", True, ["go"])
    id = whole["id"]
    found = await request(client, "GET", f"/v2/workflows/{id}")
    assert (found["found"], found["workflow"]["name"]) == (True, "Desk")
    changed = await request(client, "PUT", f"/v2/workflows/{id}", json={"name": "Counter"})
    assert (changed["success"], changed["workflow"]["name"], changed["workflow"]["tags"]) == (True, "Counter", ["desk"])
    again = await request(client, "PUT", f"/v2/workflows/{id}", json={"name": "Counter"})
    named = await request(client, "PUT", f"/v2/workflows/{id}", json={"version": "beta"})
    tagged = await request(client, "PUT", f"/v2/workflows/{id}", json={"tags": ["desk", "new"]})
    versions = [one["workflow"]["version"] for one in (changed, again, named, tagged)]
    assert (whole["version"], versions) == ("1.0", ["1.1", "1.1", "beta", "beta.1"])
    listed = await request(client, "GET", "/v2/workflows", params={"tags": "desk", "limit": 1})
    assert [one["id"] for one in listed["workflows"]] == [id]
    assert (await request(client, "GET", "/v2/workflows/nix"))["found"] is False
    assert "not found" in (await request(client, "PUT", "/v2/workflows/nix", 404, json={}))["detail"]


async def test_a_malformed_workflow_is_refused(deployment: Deployment) -> None:
    client, _ = deployment
    assert "nodes" in (await request(client, "POST", "/v2/workflows", 400, json={"name": "x"}))["detail"]
    nothing = {**body(SORT), "nodes": None}
    assert "nodes" in (await request(client, "POST", "/v2/workflows", 400, json=nothing))["detail"]
    odd = body({**SORT, "id": "go"})
    assert "go" in (await request(client, "POST", "/v2/workflows", 400, json=odd))["detail"]
    assert "not a JSON object" in (await request(client, "POST", "/v2/workflows", 400, json=[1]))["detail"]


async def test_templates_are_those_of_the_nodes(deployment: Deployment) -> None:
    client, _ = deployment
    everything = await request(client, "GET", "/v2/workflows/node-templates")
    flows = await request(client, "GET", "/v2/workflows/node-templates", params={"node_type": "FLOW"})
    assert everything["total_count"] > flows["total_count"] > 5
    assert {one["category"] for one in flows["node_templates"]} == {"flow"}
    hook = next(one for one in everything["node_templates"] if one["id"] == "TRIGGER.WEBHOOK")
    assert hook["required_params"] == ["webhook_path"]


# -- executions -------------------------------------------------------------------------------------------------------


async def test_an_execution_is_awaited_or_not(deployment: Deployment) -> None:
    client, _ = deployment
    id = await create_workflow(client, SORT)
    at_once = await request(client, "POST", f"/v2/workflows/{id}/execute", json={"trigger_data": {"items": [1]}})
    assert (at_once["success"], at_once["execution"]["status"], at_once["execution"]["workflow_id"]) == (
        True,
        "RUNNING",
        id,
    )
    waited = await request(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False})
    assert (waited["success"], waited["execution"]["status"]) == (True, "SUCCESS")
    assert waited["execution"]["execution_sequence"] == ["go", "sort"]
    shown = await wait_for_end(deployment, at_once["execution_id"])
    assert (shown["status"], shown["workflow_id"], shown["created_at"] <= shown["updated_at"]) == ("SUCCESS", id, True)
    listed = await request(client, "GET", f"/v2/workflows/{id}/executions")
    assert {one["execution_id"] for one in listed["executions"]} == {at_once["execution_id"], waited["execution_id"]}
    assert (listed["total_count"], listed["has_more"]) == (2, False)
    page = await request(client, "GET", f"/v2/workflows/{id}/executions", params={"limit": 1})
    assert (len(page["executions"]), page["total_count"], page["has_more"]) == (1, 2, True)
    await request(client, "PUT", f"/v2/workflows/{id}", json={"description": "Sorts."})
    later = await request(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False})
    assert [one["execution"]["workflow_version"] for one in (waited, later)] == ["1.0", "1.1"]
    # The same key again is the same execution.
    key = {"idempotency-key": "once"}
    runs = [await request(client, "POST", f"/v2/workflows/{id}/execute", headers=key, json={}) for _ in range(2)]
    assert [one["execution_id"] for one in runs] == ["once", "once"]


async def test_a_failed_start_has_its_reason(deployment: Deployment) -> None:
    client, _ = deployment
    unknown = await request(client, "POST", "/v2/workflows/nix/execute", json={})
    assert unknown == {"success": False, "execution_id": "", "error": "Workflow nix not found"}
    id = await create_workflow(client, SORT)
    refused = await request(client, "POST", f"/v2/workflows/{id}/execute", json={"start_from_node": "nix"})
    assert (refused["success"], "cannot start from the unknown node 'nix'" in refused["error"]) == (False, True)
    assert (await request(client, "POST", "/v2/execute", json={}))["success"] is False


async def test_a_workflow_in_the_request_is_executed(deployment: Deployment) -> None:
    client, _ = deployment
    workflow = {"metadata": {"id": "inline", "name": "Inline", "created_by": "ada"}, **body(SORT), "triggers": ["go"]}
    asked = {"workflow": workflow, "trigger": {"trigger_type": "MANUAL", "trigger_data": {"n": 1}}}
    done = await request(client, "POST", "/v2/execute", json={**asked, "async_execution": False})
    assert (done["success"], done["execution"]["trigger_info"]["trigger_data"]) == (True, {"n": 1})


async def test_members_of_an_execution_request_have_an_effect_or_a_warning(deployment: Deployment) -> None:
    client, connection = deployment
    id = await create_workflow(client, {**SORT, "subtype": "NO_SUCH_STEP"})
    asked = {"trigger_data": {}, "parallel": True, "paralel": True}
    started = await request(client, "POST", f"/v2/workflows/{id}/execute", json=asked)
    accepted = payload_of((await connection.client.events(started["execution_id"]))[0])
    assert isinstance(accepted, RunAccepted)
    assert accepted.start["options"]["parallel"] is True
    unknown, unspecified = started["warnings"]
    assert (unknown["code"], unknown["where"]) == ("start.unknown_field", "paralel")
    assert "did you mean 'parallel'?" in unknown["message"]
    assert unspecified["code"] == "UNKNOWN_TYPE"


async def test_an_execution_with_a_question_is_resumed_once(deployment: Deployment) -> None:
    client, connection = deployment
    run = await start_execution(deployment, await create_workflow(client, ASK), HumanAsked.type)
    assert (await request(client, "GET", f"/v2/executions/{run}"))["status"] == "WAITING_FOR_HUMAN"
    path = f"/v2/executions/{run}/resume"
    assert "is not waiting" in (await request(client, "POST", path, 409, json=_answer("go")))["detail"]
    assert "user_response" in (await request(client, "POST", path, 400, json={"node_id": "approve"}))["detail"]
    [row] = (await request(client, "GET", f"/v2/executions/{run}"))["hil_interactions"]
    other = {"interaction_id": "another", **_answer("approve")}
    assert "'another'" in (await request(client, "POST", path, 409, json=other))["detail"]
    resumed = await request(client, "POST", path, json={"interaction_id": row["id"], **_answer("approve")})
    assert resumed == {"message": "Execution resumed", "execution_id": run}
    done = await wait_for_end(deployment, run)
    assert done["status"] == "SUCCESS"
    assert done["node_executions"]["approve"]["output_data"]["confirmed"]["comment"] == "Good."
    await request(client, "POST", path, 409, json=_answer("approve"))
    await request(client, "POST", "/v2/executions/nix/resume", 404, json=_answer("approve"))
    answered = [event for event in await connection.client.events(run) if event.type == "human.answered"]
    assert [payload_of(event).by for event in answered] == ["operator"]  # pyright: ignore[reportAttributeAccessIssue]


def _answer(node: str) -> dict[str, Any]:
    return {"node_id": node, "user_response": {"approved": True, "comment": "Good."}}


async def test_an_execution_that_waits_is_resumed(deployment: Deployment) -> None:
    client, _ = deployment
    run = await start_execution(deployment, await create_workflow(client, WAIT), RunParked.type)
    await request(client, "POST", f"/v2/executions/{run}/resume", json={"node_id": "paid", "resume_data": {"eur": 3}})
    assert (await wait_for_end(deployment, run))["status"] == "SUCCESS"


async def test_an_execution_is_cancelled_and_stays_so(deployment: Deployment) -> None:
    client, _ = deployment
    run = await start_execution(deployment, await create_workflow(client, ASK), HumanAsked.type)
    cancelled = await request(client, "POST", f"/v2/executions/{run}/cancel")
    assert (cancelled["success"], cancelled["execution_id"]) == (True, run)
    assert (await wait_for_end(deployment, run))["status"] == "CANCELED"
    assert (await request(client, "POST", f"/v2/executions/{run}/cancel"))["success"] is False
    await request(client, "POST", f"/v2/executions/{run}/resume", 409, json=_answer("approve"))
    assert (await request(client, "GET", f"/v2/executions/{run}"))["status"] == "CANCELED"


async def test_a_request_repeated_with_its_key_acts_once(deployment: Deployment) -> None:
    client, connection = deployment
    second = {**ASK, "id": "then", "name": "then"}
    run = await start_execution(deployment, await create_workflow(client, ASK, second), HumanAsked.type)
    resume, key = f"/v2/executions/{run}/resume", {"Idempotency-Key": "k-1"}
    answer = {"user_response": {"approved": True}}
    resumed = [await request(client, "POST", resume, json=answer, headers=key) for _ in range(3)]
    assert resumed == [{"message": "Execution resumed", "execution_id": run}] * 3
    milestone = {"message": "half"}
    for _ in range(2):
        await request(
            client, "POST", f"/v2/executions/{run}/milestone", json=milestone, headers={"Idempotency-Key": "m-1"}
        )
    cancel = [await request(client, "POST", f"/v2/executions/{run}/cancel", headers=key) for _ in range(2)]
    assert [one["success"] for one in cancel] == [True, True]
    await wait_for_end(deployment, run)
    assert await request(client, "POST", resume, json=answer, headers=key) == resumed[0]
    assert (await request(client, "POST", f"/v2/executions/{run}/cancel", headers=key))["success"] is True
    types = [event.type for event in await connection.client.events(run)]
    assert [types.count(one) for one in ("human.answered", "signal.received", "cancel.requested")] == [1, 1, 1]


async def test_free_text_does_not_answer_an_approval(deployment: Deployment) -> None:
    client, connection = deployment
    run = await start_execution(deployment, await create_workflow(client, ASK), HumanAsked.type)
    resume = f"/v2/executions/{run}/resume"
    refused = await request(client, "POST", resume, 409, json={"user_response": "I do not approve this"})
    assert "free text" in refused["detail"]
    assert (await request(client, "GET", f"/v2/executions/{run}"))["status"] == "WAITING_FOR_HUMAN"
    assert [payload_of(event) for event in await connection.client.events(run) if event.type == "human.closed"] == []
    await request(client, "POST", resume, json={"user_response": "approve"})
    assert (await wait_for_end(deployment, run))["status"] == "SUCCESS"


async def test_the_log_of_an_execution_is_read_in_pages(deployment: Deployment) -> None:
    client, _ = deployment
    id = await create_workflow(client, SORT)
    run = (await request(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False}))[
        "execution_id"
    ]
    logs = await request(client, "GET", f"/v2/workflows/executions/{run}/logs")
    kinds = [one["event_type"] for one in logs["logs"]]
    assert (kinds[0], kinds[-1], kinds.count("step_completed")) == ("workflow_started", "workflow_completed", 2)
    assert "2/2 steps" in logs["logs"][-1]["message"]
    page = await request(
        client, "GET", f"/v2/workflows/executions/{run}/logs", params={"limit": 2, "offset": 1, "level": "info"}
    )
    assert page["logs"] == logs["logs"][1:3]
    assert page["pagination"] == {"limit": 2, "offset": 1, "has_more": True}
    assert (await request(client, "GET", f"/v2/workflows/executions/{run}/logs", params={"level": "warn"}))[
        "logs"
    ] == []
    summary = await request(client, "GET", f"/v2/executions/{run}/logs/summary")
    assert summary["by_event"]["step_started"] == 2
    progress = (await request(client, "GET", f"/v2/executions/{run}/progress"))["progress"]
    assert (progress["completed_nodes"], progress["total_nodes"], progress["status"]) == (2, 2, "SUCCESS")
    await request(client, "GET", "/v2/workflows/executions/nix/logs", 404)
    await request(client, "GET", f"/v2/workflows/executions/{run}/logs", 400, params={"limit": "x"})


def read_stream(stream: httpx2.Response) -> list[tuple[str, Any]]:
    """The entries of a log stream: the type of an entry, else its data."""
    assert stream.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in stream.text.splitlines() if line.startswith("data: ")]
    found = [json.loads(line) for line in lines]
    assert {"timestamp", "execution_id"} <= set(found[0])
    return [(one["event_type"], one["data"].get("event_type") or one["data"]) for one in found]


async def test_log_entries_and_milestones_are_streamed(deployment: Deployment) -> None:
    client, _ = deployment
    run = await start_execution(deployment, await create_workflow(client, WAIT), "run.parked")
    path = f"/v2/executions/{run}/logs/stream"
    now = read_stream(await client.get(path, params={"follow": "false"}))
    assert [kind for kind, _ in now] == ["log"] * (len(now) - 1) + ["info"]
    milestone = {"message": "paid", "user_message": "It is paid.", "data": {"eur": 3}}
    answer = await request(client, "POST", f"/v2/executions/{run}/milestone", json=milestone)
    assert answer == {"success": True, "execution_id": run}
    streams: list[httpx2.Response] = []

    async def follow() -> None:
        streams.append(await client.get(path))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await request(client, "POST", f"/v2/executions/{run}/resume", json={"resume_data": {"ok": True}})
    live = read_stream(streams[0])
    assert live[: len(now) - 1] == now[:-1]
    logs = (await request(client, "GET", f"/v2/workflows/executions/{run}/logs"))["logs"]
    assert live == [("log", one["event_type"]) for one in logs] + [("complete", {"total_count": len(logs)})]
    assert read_stream(await client.get(path)) == live
    (entry,) = [one for one in logs if one["is_milestone"]]
    assert (entry["message"], entry["data"]) == ("It is paid.", {"eur": 3})
    await request(client, "POST", f"/v2/executions/{run}/milestone", 409, json=milestone)
    await request(client, "POST", f"/v2/executions/{run}/milestone", 400, json={})
    await request(client, "POST", "/v2/executions/nix/milestone", 404, json=milestone)
    await request(client, "GET", path, 400, params={"follow": "x"})
    await request(client, "GET", "/v2/executions/nix/logs/stream", 404)
    assert (await request(client, "GET", "/v2/logs/health"))["status"] == "healthy"


class Unreachable:
    """A log without a server, or whose server does not answer."""

    def __init__(self, connected: bool) -> None:
        self.nc = self
        self.subjects = Subjects()
        self.is_connected = connected
        self.asked = 0

    async def last_message(self, _filter: str) -> None:
        self.asked += 1
        await anyio.sleep_forever()


async def health_of(log: Any, patience_s: float, times: int = 1) -> list[httpx2.Response]:
    health = Health(log, "acme", patience_s=patience_s, fresh_s=60)
    app = Starlette(routes=[Route("/health", health.serve)])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        return [await client.get("/health") for _ in range(times)]


async def test_health_follows_the_log(deployment: Deployment) -> None:
    client, connection = deployment
    found = await request(client, "GET", "/health")
    assert (found["status"], found["version"], found["service"]) == ("healthy", "2.0.0", "workflow_engine_v2")
    [well] = await health_of(connection.log, PATIENCE_S)
    assert well.status_code == 200
    [alone] = await health_of(Unreachable(connected=False), PATIENCE_S)
    assert (alone.status_code, alone.json()["status"]) == (503, "unhealthy")
    assert "not connected" in alone.json()["detail"]
    silent = Unreachable(connected=True)
    answers = await health_of(silent, 0.01, times=2)
    assert [(one.status_code, "has not answered" in one.json()["detail"]) for one in answers] == [(503, True)] * 2
    assert silent.asked == 1


async def test_a_deleted_workflow_cannot_be_started_and_can_be_restored(deployment: Deployment) -> None:
    client, connection = deployment
    id = await create_workflow(client, SORT, tags=["gone"])
    run = (await request(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False}))[
        "execution_id"
    ]
    assert (await request(client, "DELETE", f"/v2/workflows/{id}"))["success"] is True
    for method in ("DELETE", "PUT"):
        await request(client, method, f"/v2/workflows/{id}", 404, json={})
    assert (await request(client, "GET", f"/v2/workflows/{id}"))["found"] is False
    assert (await request(client, "GET", "/v2/workflows", params={"tags": "gone"}))["workflows"] == []
    refused = await request(client, "POST", f"/v2/workflows/{id}/execute", json={})
    assert (refused["success"], "not found" in refused["error"]) == (False, True)
    # Its executions and versions are kept, and it can be restored.
    assert (await request(client, "GET", f"/v2/executions/{run}"))["status"] == "SUCCESS"
    listed = (await request(client, "GET", f"/api/acme/definitions/{id}/versions"))["versions"]
    assert [(one["number"], bool(one["hash"]), one.get("in_force", False)) for one in listed] == [
        (2, False, False),
        (1, True, False),
    ]
    await request(client, "POST", f"/api/acme/definitions/{id}/rollback", 404, params={"to": "v2"})
    assert (await request(client, "POST", f"/api/acme/definitions/{id}/rollback"))["hash"] == listed[1]["hash"]
    assert (await request(client, "GET", f"/v2/workflows/{id}"))["found"] is True
    assert await read_registration(connection.log, "acme", id) is not None


async def test_every_route_but_health_needs_its_scope(deployment: Deployment) -> None:
    client, connection = deployment
    reader, _ = await ApiKeys(connection.log, "acme").add("engine", ["read"], dt.datetime.now(dt.UTC))
    nobody = {"authorization": ""}
    assert (await request(client, "GET", "/health", headers=nobody))["status"] == "healthy"
    await request(client, "GET", "/v2/workflows", 401, headers=nobody)
    bearer = {"authorization": f"Bearer {reader}"}
    await request(client, "GET", "/v2/workflows", headers=bearer)
    for path in (
        "/v2/execute",
        "/v2/workflows",
        "/v2/executions/x/resume",
        "/v2/executions/x/cancel",
        "/v2/executions/x/milestone",
    ):
        await request(client, "POST", path, 403, headers=bearer, json={})
    # A caller that may only start sees its own executions, and no other, even with the id.
    starter, _ = await ApiKeys(connection.log, "acme").add("starts", ["start"], dt.datetime.now(dt.UTC))
    id = await create_workflow(client, SORT)
    for keys, status in (("theirs", 403), ("own", 200)):
        headers = {"idempotency-key": keys, **({"authorization": f"Bearer {starter}"} if keys == "own" else {})}
        execute, waits = f"/v2/workflows/{id}/execute", {"async_execution": False}
        await request(client, "POST", execute, headers=headers, json=waits)
        again = headers | {"authorization": f"Bearer {starter}"}
        await request(client, "POST", execute, status, headers=again, json=waits)
