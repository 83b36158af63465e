"""The engine's own interface over HTTP: workflows, executions and their logs, in the words of its design document."""

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
from callboard.bus.subjects import Subjects
from callboard.features.access.keys import ApiKeys
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations.operations import Operations
from callboard.service.operations.run_lists import Listings
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.engine.health import Health
from callboard.surfaces.engine.routes import engine_routes, health_route
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


async def said(client: httpx2.AsyncClient, method: str, path: str, status: int = 200, **more: Any) -> Any:
    answer = await client.request(method, path, **more)
    assert answer.status_code == status, answer.text
    return answer.json()


async def made(client: httpx2.AsyncClient, *nodes: dict[str, Any], **more: Any) -> str:
    return (await said(client, "POST", "/v2/workflows", json=body(*nodes, **more)))["workflow"]["id"]


async def begun(deployment: Deployment, workflow: str, waits_for: str) -> str:
    """Start a workflow and wait until its run has come to an event."""
    client, connection = deployment
    started = await said(client, "POST", f"/v2/workflows/{workflow}/execute", json={"trigger_data": {"user_id": "ada"}})
    run = started["execution_id"]
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type=waits_for) as feed:
            async for _ in feed:
                return run
    raise AssertionError("the feed has ended")


async def ended(deployment: Deployment, run: str) -> Any:
    client, connection = deployment
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type="run.end") as feed:
            async for _ in feed:
                break
    return await said(client, "GET", f"/v2/executions/{run}")


# -- workflows --------------------------------------------------------------------------------------------------------


async def test_a_workflow_is_made_shown_changed_and_listed(deployment: Deployment) -> None:
    client, _ = deployment
    whole = (await said(client, "POST", "/v2/workflows", json=body(SORT, tags=["desk"])))["workflow"]
    assert (whole["user_id"], whole["active"], whole["triggers"]) == ("ada", True, ["go"])
    id = whole["id"]
    found = await said(client, "GET", f"/v2/workflows/{id}")
    assert (found["found"], found["workflow"]["name"]) == (True, "Desk")
    changed = await said(client, "PUT", f"/v2/workflows/{id}", json={"name": "Counter"})
    assert (changed["success"], changed["workflow"]["name"], changed["workflow"]["tags"]) == (True, "Counter", ["desk"])
    again = await said(client, "PUT", f"/v2/workflows/{id}", json={"name": "Counter"})
    named = await said(client, "PUT", f"/v2/workflows/{id}", json={"version": "beta"})
    tagged = await said(client, "PUT", f"/v2/workflows/{id}", json={"tags": ["desk", "new"]})
    versions = [one["workflow"]["version"] for one in (changed, again, named, tagged)]
    assert (whole["version"], versions) == ("1.0", ["1.1", "1.1", "beta", "beta.1"])
    listed = await said(client, "GET", "/v2/workflows", params={"tags": "desk", "limit": 1})
    assert [one["id"] for one in listed["workflows"]] == [id]
    assert (await said(client, "GET", "/v2/workflows/nix"))["found"] is False
    assert "not found" in (await said(client, "PUT", "/v2/workflows/nix", 404, json={}))["detail"]


async def test_what_is_no_workflow_is_told(deployment: Deployment) -> None:
    client, _ = deployment
    assert "nodes" in (await said(client, "POST", "/v2/workflows", 400, json={"name": "x"}))["detail"]
    nothing = {**body(SORT), "nodes": None}
    assert "nodes" in (await said(client, "POST", "/v2/workflows", 400, json=nothing))["detail"]
    odd = body({**SORT, "id": "go"})
    assert "go" in (await said(client, "POST", "/v2/workflows", 400, json=odd))["detail"]
    assert "not a JSON object" in (await said(client, "POST", "/v2/workflows", 400, json=[1]))["detail"]


async def test_templates_are_those_of_the_nodes(deployment: Deployment) -> None:
    client, _ = deployment
    everything = await said(client, "GET", "/v2/workflows/node-templates")
    flows = await said(client, "GET", "/v2/workflows/node-templates", params={"node_type": "FLOW"})
    assert everything["total_count"] > flows["total_count"] > 5
    assert {one["category"] for one in flows["node_templates"]} == {"flow"}
    hook = next(one for one in everything["node_templates"] if one["id"] == "TRIGGER.WEBHOOK")
    assert hook["required_params"] == ["webhook_path"]


# -- executions -------------------------------------------------------------------------------------------------------


async def test_an_execution_is_awaited_or_not(deployment: Deployment) -> None:
    client, _ = deployment
    id = await made(client, SORT)
    at_once = await said(client, "POST", f"/v2/workflows/{id}/execute", json={"trigger_data": {"items": [1]}})
    assert (at_once["success"], at_once["execution"]["status"], at_once["execution"]["workflow_id"]) == (
        True,
        "RUNNING",
        id,
    )
    waited = await said(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False})
    assert (waited["success"], waited["execution"]["status"]) == (True, "SUCCESS")
    assert waited["execution"]["execution_sequence"] == ["go", "sort"]
    shown = await ended(deployment, at_once["execution_id"])
    assert (shown["status"], shown["workflow_id"], shown["created_at"] <= shown["updated_at"]) == ("SUCCESS", id, True)
    listed = await said(client, "GET", f"/v2/workflows/{id}/executions")
    assert {one["execution_id"] for one in listed["executions"]} == {at_once["execution_id"], waited["execution_id"]}
    assert (listed["total_count"], listed["has_more"]) == (2, False)
    page = await said(client, "GET", f"/v2/workflows/{id}/executions", params={"limit": 1})
    assert (len(page["executions"]), page["total_count"], page["has_more"]) == (1, 2, True)
    await said(client, "PUT", f"/v2/workflows/{id}", json={"description": "Sorts."})
    later = await said(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False})
    assert [one["execution"]["workflow_version"] for one in (waited, later)] == ["1.0", "1.1"]
    # The same key again is the same execution.
    key = {"idempotency-key": "once"}
    runs = [await said(client, "POST", f"/v2/workflows/{id}/execute", headers=key, json={}) for _ in range(2)]
    assert [one["execution_id"] for one in runs] == ["once", "once"]


async def test_starts_that_come_to_nothing_say_so(deployment: Deployment) -> None:
    client, _ = deployment
    unknown = await said(client, "POST", "/v2/workflows/nix/execute", json={})
    assert unknown == {"success": False, "execution_id": "", "error": "Workflow nix not found"}
    id = await made(client, SORT)
    refused = await said(client, "POST", f"/v2/workflows/{id}/execute", json={"start_from_node": "nix"})
    assert (refused["success"], "cannot start from the unknown node 'nix'" in refused["error"]) == (False, True)
    assert (await said(client, "POST", "/v2/execute", json={}))["success"] is False


async def test_a_workflow_in_the_request_is_executed(deployment: Deployment) -> None:
    client, _ = deployment
    workflow = {"metadata": {"id": "inline", "name": "Inline", "created_by": "ada"}, **body(SORT), "triggers": ["go"]}
    asked = {"workflow": workflow, "trigger": {"trigger_type": "MANUAL", "trigger_data": {"n": 1}}}
    done = await said(client, "POST", "/v2/execute", json={**asked, "async_execution": False})
    assert (done["success"], done["execution"]["trigger_info"]["trigger_data"]) == (True, {"n": 1})


async def test_members_of_a_request_to_execute_take_effect_or_are_warned_of(deployment: Deployment) -> None:
    client, connection = deployment
    id = await made(client, {**SORT, "subtype": "NO_SUCH_STEP"})
    asked = {"trigger_data": {}, "parallel": True, "paralel": True}
    begun = await said(client, "POST", f"/v2/workflows/{id}/execute", json=asked)
    accepted = payload_of((await connection.client.events(begun["execution_id"]))[0])
    assert isinstance(accepted, RunAccepted)
    assert accepted.start["options"]["parallel"] is True
    unknown, unspecified = begun["warnings"]
    assert (unknown["code"], unknown["where"]) == ("start.unknown_field", "paralel")
    assert "did you mean 'parallel'?" in unknown["message"]
    assert unspecified["code"] == "UNKNOWN_TYPE"


async def test_an_execution_that_asks_is_resumed_once(deployment: Deployment) -> None:
    client, connection = deployment
    run = await begun(deployment, await made(client, ASK), HumanAsked.type)
    assert (await said(client, "GET", f"/v2/executions/{run}"))["status"] == "WAITING_FOR_HUMAN"
    path = f"/v2/executions/{run}/resume"
    assert "is not waiting" in (await said(client, "POST", path, 409, json=_answer("go")))["detail"]
    assert "user_response" in (await said(client, "POST", path, 400, json={"node_id": "approve"}))["detail"]
    [row] = (await said(client, "GET", f"/v2/executions/{run}"))["hil_interactions"]
    other = {"interaction_id": "another", **_answer("approve")}
    assert "'another'" in (await said(client, "POST", path, 409, json=other))["detail"]
    resumed = await said(client, "POST", path, json={"interaction_id": row["id"], **_answer("approve")})
    assert resumed == {"message": "Execution resumed", "execution_id": run}
    done = await ended(deployment, run)
    assert done["status"] == "SUCCESS"
    assert done["node_executions"]["approve"]["output_data"]["confirmed"]["comment"] == "Good."
    await said(client, "POST", path, 409, json=_answer("approve"))
    await said(client, "POST", "/v2/executions/nix/resume", 404, json=_answer("approve"))
    answered = [event for event in await connection.client.events(run) if event.type == "human.answered"]
    assert [payload_of(event).by for event in answered] == ["operator"]  # pyright: ignore[reportAttributeAccessIssue]


def _answer(node: str) -> dict[str, Any]:
    return {"node_id": node, "user_response": {"approved": True, "comment": "Good."}}


async def test_an_execution_that_waits_is_resumed(deployment: Deployment) -> None:
    client, _ = deployment
    run = await begun(deployment, await made(client, WAIT), RunParked.type)
    await said(client, "POST", f"/v2/executions/{run}/resume", json={"node_id": "paid", "resume_data": {"eur": 3}})
    assert (await ended(deployment, run))["status"] == "SUCCESS"


async def test_an_execution_is_cancelled_and_stays_so(deployment: Deployment) -> None:
    client, _ = deployment
    run = await begun(deployment, await made(client, ASK), HumanAsked.type)
    cancelled = await said(client, "POST", f"/v2/executions/{run}/cancel")
    assert (cancelled["success"], cancelled["execution_id"]) == (True, run)
    assert (await ended(deployment, run))["status"] == "CANCELED"
    assert (await said(client, "POST", f"/v2/executions/{run}/cancel"))["success"] is False
    await said(client, "POST", f"/v2/executions/{run}/resume", 409, json=_answer("approve"))
    assert (await said(client, "GET", f"/v2/executions/{run}"))["status"] == "CANCELED"


async def test_what_is_sent_again_with_its_key_acts_once_and_is_answered_as_before(deployment: Deployment) -> None:
    client, connection = deployment
    second = {**ASK, "id": "then", "name": "then"}
    run = await begun(deployment, await made(client, ASK, second), HumanAsked.type)
    resume, key = f"/v2/executions/{run}/resume", {"Idempotency-Key": "k-1"}
    answer = {"user_response": {"approved": True}}
    resumed = [await said(client, "POST", resume, json=answer, headers=key) for _ in range(3)]
    assert resumed == [{"message": "Execution resumed", "execution_id": run}] * 3
    told = {"message": "half"}
    for _ in range(2):
        await said(client, "POST", f"/v2/executions/{run}/milestone", json=told, headers={"Idempotency-Key": "m-1"})
    cancel = [await said(client, "POST", f"/v2/executions/{run}/cancel", headers=key) for _ in range(2)]
    assert [one["success"] for one in cancel] == [True, True]
    await ended(deployment, run)
    assert await said(client, "POST", resume, json=answer, headers=key) == resumed[0]
    assert (await said(client, "POST", f"/v2/executions/{run}/cancel", headers=key))["success"] is True
    types = [event.type for event in await connection.client.events(run)]
    assert [types.count(one) for one in ("human.answered", "signal.received", "cancel.requested")] == [1, 1, 1]


async def test_free_text_opens_no_gate_whatever_the_interface(deployment: Deployment) -> None:
    client, connection = deployment
    run = await begun(deployment, await made(client, ASK), HumanAsked.type)
    resume = f"/v2/executions/{run}/resume"
    refused = await said(client, "POST", resume, 409, json={"user_response": "I do not approve this"})
    assert "free text" in refused["detail"]
    assert (await said(client, "GET", f"/v2/executions/{run}"))["status"] == "WAITING_FOR_HUMAN"
    assert [payload_of(event) for event in await connection.client.events(run) if event.type == "human.closed"] == []
    await said(client, "POST", resume, json={"user_response": "approve"})
    assert (await ended(deployment, run))["status"] == "SUCCESS"


async def test_what_happened_is_told_entry_by_entry(deployment: Deployment) -> None:
    client, _ = deployment
    id = await made(client, SORT)
    run = (await said(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False}))["execution_id"]
    logs = await said(client, "GET", f"/v2/workflows/executions/{run}/logs")
    kinds = [one["event_type"] for one in logs["logs"]]
    assert (kinds[0], kinds[-1], kinds.count("step_completed")) == ("workflow_started", "workflow_completed", 2)
    assert "2/2 steps" in logs["logs"][-1]["message"]
    page = await said(
        client, "GET", f"/v2/workflows/executions/{run}/logs", params={"limit": 2, "offset": 1, "level": "info"}
    )
    assert page["logs"] == logs["logs"][1:3]
    assert page["pagination"] == {"limit": 2, "offset": 1, "has_more": True}
    assert (await said(client, "GET", f"/v2/workflows/executions/{run}/logs", params={"level": "warn"}))["logs"] == []
    summary = await said(client, "GET", f"/v2/executions/{run}/logs/summary")
    assert summary["by_event"]["step_started"] == 2
    progress = (await said(client, "GET", f"/v2/executions/{run}/progress"))["progress"]
    assert (progress["completed_nodes"], progress["total_nodes"], progress["status"]) == (2, 2, "SUCCESS")
    await said(client, "GET", "/v2/workflows/executions/nix/logs", 404)
    await said(client, "GET", f"/v2/workflows/executions/{run}/logs", 400, params={"limit": "x"})


def told(stream: httpx2.Response) -> list[tuple[str, Any]]:
    """What a stream of log entries told: of an entry its type, else what there is."""
    assert stream.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in stream.text.splitlines() if line.startswith("data: ")]
    found = [json.loads(line) for line in lines]
    assert {"timestamp", "execution_id"} <= set(found[0])
    return [(one["event_type"], one["data"].get("event_type") or one["data"]) for one in found]


async def test_what_happens_is_told_as_it_happens(deployment: Deployment) -> None:
    client, _ = deployment
    run = await begun(deployment, await made(client, WAIT), "run.parked")
    path = f"/v2/executions/{run}/logs/stream"
    now = told(await client.get(path, params={"follow": "false"}))
    assert [kind for kind, _ in now] == ["log"] * (len(now) - 1) + ["info"]
    milestone = {"message": "paid", "user_message": "It is paid.", "data": {"eur": 3}}
    answer = await said(client, "POST", f"/v2/executions/{run}/milestone", json=milestone)
    assert answer == {"success": True, "execution_id": run}
    streams: list[httpx2.Response] = []

    async def follow() -> None:
        streams.append(await client.get(path))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await said(client, "POST", f"/v2/executions/{run}/resume", json={"resume_data": {"ok": True}})
    live = told(streams[0])
    assert live[: len(now) - 1] == now[:-1]
    logs = (await said(client, "GET", f"/v2/workflows/executions/{run}/logs"))["logs"]
    assert live == [("log", one["event_type"]) for one in logs] + [("complete", {"total_count": len(logs)})]
    assert told(await client.get(path)) == live
    (entry,) = [one for one in logs if one["is_milestone"]]
    assert (entry["message"], entry["data"]) == ("It is paid.", {"eur": 3})
    await said(client, "POST", f"/v2/executions/{run}/milestone", 409, json=milestone)
    await said(client, "POST", f"/v2/executions/{run}/milestone", 400, json={})
    await said(client, "POST", "/v2/executions/nix/milestone", 404, json=milestone)
    await said(client, "GET", path, 400, params={"follow": "x"})
    await said(client, "GET", "/v2/executions/nix/logs/stream", 404)
    assert (await said(client, "GET", "/v2/logs/health"))["status"] == "healthy"


class Unreachable:
    """A log without a server, or whose server says nothing."""

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


async def test_health_is_that_of_the_log(deployment: Deployment) -> None:
    client, connection = deployment
    found = await said(client, "GET", "/health")
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


async def test_a_workflow_that_is_deleted_is_started_no_more_and_can_be_brought_back(deployment: Deployment) -> None:
    client, connection = deployment
    id = await made(client, SORT, tags=["gone"])
    run = (await said(client, "POST", f"/v2/workflows/{id}/execute", json={"async_execution": False}))["execution_id"]
    assert (await said(client, "DELETE", f"/v2/workflows/{id}"))["success"] is True
    for method in ("DELETE", "PUT"):
        await said(client, method, f"/v2/workflows/{id}", 404, json={})
    assert (await said(client, "GET", f"/v2/workflows/{id}"))["found"] is False
    assert (await said(client, "GET", "/v2/workflows", params={"tags": "gone"}))["workflows"] == []
    refused = await said(client, "POST", f"/v2/workflows/{id}/execute", json={})
    assert (refused["success"], "not found" in refused["error"]) == (False, True)
    # What was is still there, and so is the way back.
    assert (await said(client, "GET", f"/v2/executions/{run}"))["status"] == "SUCCESS"
    listed = (await said(client, "GET", f"/api/acme/definitions/{id}/versions"))["versions"]
    assert [(one["number"], bool(one["hash"]), one.get("in_force", False)) for one in listed] == [
        (2, False, False),
        (1, True, False),
    ]
    await said(client, "POST", f"/api/acme/definitions/{id}/rollback", 404, params={"to": "v2"})
    assert (await said(client, "POST", f"/api/acme/definitions/{id}/rollback"))["hash"] == listed[1]["hash"]
    assert (await said(client, "GET", f"/v2/workflows/{id}"))["found"] is True
    assert await connection.log.definition("acme", id) is not None


async def test_it_asks_who_somebody_is_but_for_health(deployment: Deployment) -> None:
    client, connection = deployment
    reader, _ = await ApiKeys(connection.log, "acme").add("engine", ["read"], dt.datetime.now(dt.UTC))
    nobody = {"authorization": ""}
    assert (await said(client, "GET", "/health", headers=nobody))["status"] == "healthy"
    await said(client, "GET", "/v2/workflows", 401, headers=nobody)
    bearer = {"authorization": f"Bearer {reader}"}
    await said(client, "GET", "/v2/workflows", headers=bearer)
    for path in (
        "/v2/execute",
        "/v2/workflows",
        "/v2/executions/x/resume",
        "/v2/executions/x/cancel",
        "/v2/executions/x/milestone",
    ):
        await said(client, "POST", path, 403, headers=bearer, json={})
    # Who may only start is told of what they have started, and of no other, though they know its id.
    starter, _ = await ApiKeys(connection.log, "acme").add("starts", ["start"], dt.datetime.now(dt.UTC))
    id = await made(client, SORT)
    for keys, status in (("theirs", 403), ("own", 200)):
        begun = {"idempotency-key": keys, **({"authorization": f"Bearer {starter}"} if keys == "own" else {})}
        execute, waits = f"/v2/workflows/{id}/execute", {"async_execution": False}
        await said(client, "POST", execute, headers=begun, json=waits)
        again = begun | {"authorization": f"Bearer {starter}"}
        await said(client, "POST", execute, status, headers=again, json=waits)
