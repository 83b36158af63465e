"""The operations that read runs over HTTP, in one deployment for all tests."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
import msgspec
import pytest
from jsonschema import Draft202012Validator

from callboard.actors.models.model import ModelTurn
from callboard.actors.models.scripted import ScriptedModel
from callboard.bus.effects import Failure
from callboard.bus.events import (
    DefinitionRef,
    Outline,
    OutlineNode,
    Parent,
    RunAccepted,
    RunEnd,
    RunFailed,
    RunQuarantined,
    Warned,
)
from callboard.bus.nats.jetstream_api import api
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from callboard.runtime.hosting.code_loader import load_object
from callboard.surfaces.http.openapi import document
from callboard.surfaces.http.routes import ROUTES
from tests.support import python_workflows
from tests.support.event_logs import Log
from tests.support.flows import build_question
from tests.support.http_application import PATIENCE_S, code_of, perform, served
from tests.support.page_server import append_events
from tests.support.workflows import document as workflow

Deployment = tuple[httpx2.AsyncClient, Connection]


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async with served(tmp_path_factory.mktemp("readings")) as found:
        yield found


@pytest.fixture
def client(deployment: Deployment) -> httpx2.AsyncClient:
    return deployment[0]


async def get_json(client: httpx2.AsyncClient, path: str, **query: Any) -> Any:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def start_until_asked(deployment: Deployment, run: str, start: dict[str, Any]) -> None:
    """Start a run and wait until it asks."""
    client, connection = deployment
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type="human.asked") as feed:
            started = await client.post("/runs", json={**start, "run_id": run})
            assert started.status_code == 202, started.text
            await anext(feed)


async def test_a_question_is_listed_until_it_is_answered(deployment: Deployment) -> None:
    start = build_question(question="Which?", type="select", options=["red", "blue"], data={"of": 1}, channel="desk")
    client, _ = deployment
    await start_until_asked(deployment, "asks", start)
    (found,) = (await get_json(client, "/questions", run_id="asks"))["questions"]
    assert found == found | {
        "run": "asks",
        "who": "desk",
        "question": "Which?",
        "schema": {"enum": ["red", "blue"]},
        "options": [{"value": "red", "label": "red"}, {"value": "blue", "label": "blue"}],
        "data": {"of": 1},
    }
    answer = {"interaction": found["key"], "user_response": "blue", "by": "ada"}
    assert (await client.post("/runs/asks/answer", json=answer)).status_code == 202
    assert (await get_json(client, "/runs/asks/result", wait_s=PATIENCE_S))["output"] == "blue"
    assert (await get_json(client, "/questions", run_id="asks")) == {"questions": [], "more": False, "count": 0}


async def test_the_questions_of_a_run_that_is_killed_are_gone(deployment: Deployment) -> None:
    client, _ = deployment
    await start_until_asked(deployment, "killed", build_question(question="Really?", type="confirm"))
    (found,) = (await get_json(client, "/questions", run_id="killed"))["questions"]
    assert found["schema"] == {"enum": ["yes", "no"]}
    assert [found] == (await get_json(client, "/questions", definition=found["definition"]))["questions"]
    assert (await client.post("/runs/killed/kill", json={})).status_code == 202
    await get_json(client, "/runs/killed/result", wait_s=PATIENCE_S)
    assert (await get_json(client, "/questions"))["questions"] == []


TWO: dict[str, Any] = {
    "definition": {"source": json.dumps(workflow({"a": {}, "b": {}}, [{"from": "a", "to": "b"}]))},
    "model": "scripted",
    "script": {"turns": {"a": [{"data": {"found": 3}}], "b": [{"text": "x" * 300_000}]}},
}


@pytest.fixture(scope="module")
async def turns() -> AsyncIterator[list[ModelTurn]]:
    """The requests that the scripted model received."""
    heard: list[ModelTurn] = []
    answered = ScriptedModel.turn

    async def noted(self: ScriptedModel, turn: ModelTurn, *more: Any) -> Any:
        heard.append(turn)
        return await answered(self, turn, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedModel, "turn", noted)
        yield heard


@pytest.fixture(scope="module")
async def two(deployment: Deployment, turns: list[ModelTurn]) -> str:
    """An ended run of two nodes; the second answer is a large value."""
    client, _ = deployment
    await perform(client, "two", TWO)
    return "two"


async def events_page(client: httpx2.AsyncClient, run: str) -> list[dict[str, Any]]:
    return (await get_json(client, f"/runs/{run}/events", limit=1000))["events"]


async def events_of(client: httpx2.AsyncClient, run: str) -> list[dict[str, Any]]:
    return [one["event"] for one in await events_page(client, run)]


async def test_the_drawing_of_a_run_has_its_nodes_and_edges(client: httpx2.AsyncClient, two: str) -> None:
    found = await get_json(client, f"/runs/{two}/graph")
    assert [node["id"] for node in found["nodes"]] == ["a", "b"]
    assert [(edge["from"], edge["to"]) for edge in found["edges"]] == [("a", "b"), ("", "a"), ("b", "")]
    assert {mark["kind"] for mark in found["marks"]} == {"begin", "end"}
    for node in found["nodes"]:
        assert 0 <= node["x"] <= found["width"] - node["w"]
        assert 0 <= node["y"] <= found["height"] - node["h"]
    across = await get_json(client, f"/runs/{two}/graph", direction="LR")
    assert (across["outline"], across["direction"]) == (found["outline"], "LR")
    assert across["width"] > found["width"]
    assert (await client.get(f"/runs/{two}/graph", params={"direction": "UP"})).status_code == 400


async def test_the_index_is_read_in_pieces(client: httpx2.AsyncClient, two: str) -> None:
    events = await events_of(client, two)
    whole = await get_json(client, f"/runs/{two}/index")
    assert (whole["count"], whole["last"], whole["more"], whole["ended"]) == (len(events), len(events), False, True)
    assert [whole["types"][place] for place in whole["type"]] == [event["type"] for event in events]
    first = await get_json(client, f"/runs/{two}/index", limit=3)
    assert (first["last"], first["more"]) == (3, True)
    rest = await get_json(client, f"/runs/{two}/index", after=3)
    types = [piece["types"][place] for piece in (first, rest) for place in piece["type"]]
    assert types == [event["type"] for event in events]
    assert (await get_json(client, f"/runs/{two}/index", after=len(events)))["count"] == 0


def build_child() -> Log:
    created = Log("a-child", "small")
    created.accepted(parent=Parent("above", "ask", 1))
    return created.failed("boom", "it broke")


def build_scheduled() -> Log:
    created = Log("a-due", "small")
    # A newer version may write more members of a schedule.
    start = {"scheduled": {"schedule": "daily", "due": "2026-11-24T08:00:00+00:00", "calendar": "work"}}
    created.add(RunAccepted(DefinitionRef("graph", "ab" * 32, "{}", "small"), start))
    created.add(RunQuarantined("log.unreadable", 7, "cb.here", "it is none"))
    return created


def build_warned() -> Log:
    created = Log("a-warned", "small").started()
    created.add(RunEnd("completed", warnings=[Warned("a.thing", "look"), Warned("b.thing", "look")]))
    return created


NOWHERE = {"parent": None, "schedule": None, "forked_from": None, "continues": None}


@pytest.mark.parametrize(
    ("made", "origin", "ending"),
    [
        (
            build_child(),
            {"language": "workflow", "parent": "above"},
            {"code": "boom", "message": "it broke", "warnings": 0},
        ),
        (
            build_scheduled(),
            {"language": "graph", "schedule": "daily"},
            {"code": "log.unreadable", "message": "it is none", "warnings": 0},
        ),
        (build_warned(), {"language": "workflow"}, {"code": None, "message": "", "warnings": 2}),
    ],
)
async def test_the_index_has_the_origin_and_the_end_of_a_run(
    deployment: Deployment, made: Log, origin: dict[str, Any], ending: dict[str, Any]
) -> None:
    client, connection = deployment
    await append_events(connection.log, made.run, made.events)
    found = await get_json(client, f"/runs/{made.run}/index")
    origin = NOWHERE | origin | {"definition_hash": "ab" * 32}
    ending = {"continued_as": None} | ending
    assert (found["origin"], found["ending"]) == (origin, ending)
    first = await get_json(client, f"/runs/{made.run}/index", limit=1)
    assert (first["origin"], first["ending"]) == (origin, None)


async def test_a_run_is_read_as_of_an_event(client: httpx2.AsyncClient, two: str) -> None:
    events = await events_of(client, two)
    entered = next(event["n"] for event in events if event["type"] == "node.enter" and event["path"] == "b")
    found = await get_json(client, f"/runs/{two}/at/{entered}")
    assert (found["n"], found["last"], found["result"]["status"]) == (entered, len(events), "running")
    assert found["diagram"] == found["diagram"] | {"colours": {"a": "success", "b": "current"}, "taken": {"0": 1}}
    last = await get_json(client, f"/runs/{two}/at/0")
    assert (last["n"], last["result"]["status"]) == (len(events), "completed")
    assert last["diagram"]["entered"] == {"a": 1, "b": 1}
    for n in (-1, len(events) + 1):
        assert (await client.get(f"/runs/{two}/at/{n}")).status_code == 404


async def test_failures_are_counted_to_the_last_event(deployment: Deployment) -> None:
    client, connection = deployment
    log = Log("fails-later").started()
    last = await append_events(connection.log, log.run, log.events)
    assert await get_json(client, f"/runs/{log.run}/failures") == {}
    known = len(log.events)
    log.enter("bake")
    log.exit("bake", outcome="failed")
    n = len(log.events)
    error = Failure("workflow.node_failed", "failed nodes: bake", previous=Failure("node.broke", "bake broke"))
    log.add(RunFailed(error))
    log.add(RunEnd("failed", error=error))
    await append_events(connection.log, log.run, log.events[known:], last)
    steps = {"count": 1, "path": "bake", "n": n}
    assert await get_json(client, f"/runs/{log.run}/failures") == {"ended_at": n, "steps": steps}


async def test_a_replay_names_the_open_effects(client: httpx2.AsyncClient, two: str) -> None:
    events = await events_of(client, two)
    call = next(event for event in events if event["type"] == "model.call" and event["path"] == "b")
    found = await get_json(client, f"/runs/{two}/replay/{call['n']}")
    assert [one["key"] for one in found["open"]] == [call["key"]]
    assert (found["at"], found["standing"]["status"], found["unwritten"]) == (call["n"], "running", [])
    assert (await get_json(client, f"/runs/{two}/replay/0"))["ended"]


async def test_the_stacks_of_a_workflow_in_python_are_read_at_an_event(deployment: Deployment) -> None:
    client, _ = deployment
    source = load_object(python_workflows.triage).definitions["triage"]
    await start_until_asked(
        deployment, "triaged", {"definition": {"source": source}, "input": {"service": "shop", "urls": ["a"]}}
    )
    found = await get_json(client, "/runs/triaged/stacks/0")
    (task,) = found["tasks"]
    frame = task["frames"][-1]
    assert (task["task"], task["effect"]["type"]) == ("", "human.asked")
    assert (frame["function"], frame["locals"]) == ("triage", None)
    answered = document()["paths"]["/api/{tenant}/runs/{run_id}/stacks/{n}"]["get"]["responses"]["200"]["content"]
    schema = answered["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document()["components"]}).validate(found)
    assert frame["source"].startswith('verdict = await ask("Restart it?"')
    assert found["sources"][frame["file"]].splitlines()[frame["line"] - 1].strip() == frame["source"]
    assert (await client.get("/runs/triaged/stacks/999")).status_code == 404
    assert (await client.post("/runs/triaged/kill", json={})).status_code == 202


async def test_a_run_without_code_has_no_stacks(client: httpx2.AsyncClient, two: str) -> None:
    refused = await client.get(f"/runs/{two}/stacks/3")
    assert code_of(refused) == (409, "debug.no_code")


async def test_events_keep_their_numbers_after_an_unreadable_one(deployment: Deployment) -> None:
    client, connection = deployment
    created = Log("torn", "torn").started(Outline([OutlineNode(name) for name in "abc"]))
    for name in "abc":
        created.enter(name)
        created.exit(name)
    events = created.events
    lost = next(event for event in events if event.type == "node.exit" and event.path == "a")
    after = await append_events(connection.log, "torn", events[: lost.n - 1])
    subject = connection.log.subjects.event(RunRef("acme", "torn"), "torn", lost.type)
    torn = await connection.log.nc.jetstream().publish(subject, b'{"run": "torn')
    assert torn.seq > after
    await append_events(connection.log, "torn", events[lost.n :], torn.seq)
    last = events[-1].n
    for event in events[lost.n :]:
        found = await get_json(client, f"/runs/torn/at/{event.n}")
        assert (found["n"], found["last"]) == (event.n, last)
    entered = [event.n for event in events if event.type == "node.enter"]
    found = await get_json(client, f"/runs/torn/at/{entered[1]}")
    assert found["diagram"]["colours"]["b"] == "current"
    assert "c" not in found["diagram"]["entered"]
    before = await get_json(client, f"/runs/torn/at/{lost.n}")
    assert (before["n"], before["diagram"]["colours"]["a"]) == (lost.n - 1, "current")
    refused = await client.get(f"/runs/torn/replay/{lost.n}")
    assert code_of(refused) == (409, "log.unreadable")
    for path in ("at", "replay"):
        assert (await client.get(f"/runs/torn/{path}/{last + 1}")).status_code == 404
    # Pieces of any size contain all readable events.
    for limit in (1, 2, lost.n):
        count, place, more = 0, 0, True
        while more:
            piece = await get_json(client, "/runs/torn/index", after=place, limit=limit)
            assert piece["last"] > place
            count, place, more = count + piece["count"], piece["last"], piece["more"]
        assert (count, place) == (len(events) - 1, last)


async def test_the_recorded_request_of_a_model_is_the_one_it_received(
    client: httpx2.AsyncClient, two: str, turns: list[ModelTurn]
) -> None:
    recorded = [turn for turn in turns if turn.path in ("a", "b")]
    assert len(recorded) == 2
    for turn in recorded:
        found = await get_json(client, f"/runs/{two}/seen/{quote(turn.key)}")
        assert [one["message"] for one in found["messages"]] == msgspec.to_builtins(turn.messages)
        assert (found["system"], found["verified"]) == (turn.system, True)
        assert found["result"]["n"] > found["n"]
    for key in ("nix", "a#1.1!turn.7"):
        assert (await client.get(f"/runs/{two}/seen/{quote(key)}")).json()["error"]["code"] == "replay.no_call"


async def test_a_large_value_is_read(client: httpx2.AsyncClient, two: str) -> None:
    blobs = [digest for event in await events_of(client, two) for digest in event.get("blobs", [])]
    assert blobs
    assert "x" * 300_000 in json.dumps(await get_json(client, f"/runs/{two}/blob/{blobs[0]}"))
    for digest in ("0" * 64, "nix"):
        assert (await client.get(f"/runs/{two}/blob/{digest}")).status_code == 404


async def test_a_run_is_exported_as_files(client: httpx2.AsyncClient, two: str) -> None:
    lines = (await client.get(f"/runs/{two}/export.jsonl")).text.splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert "x" * 300_000 in lines[-1]
    spans = (await get_json(client, f"/runs/{two}/export.jaeger"))["data"][0]["spans"]
    assert len(spans) == 5
    drawing = await client.get(f"/runs/{two}/export.svg")
    assert drawing.headers["content-type"] == "image/svg+xml"
    assert drawing.text.startswith("<svg")


async def test_large_answers_are_compressed(client: httpx2.AsyncClient, two: str) -> None:
    plain = await client.get(f"/runs/{two}/export.jsonl", headers={"Accept-Encoding": "identity"})
    packed = await client.get(f"/runs/{two}/export.jsonl", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content


@pytest.mark.parametrize("path", ["graph", "index", "at/1", "failures", "replay/1", "stacks/1", "seen/a", "export.svg"])
async def test_an_unknown_run_is_not_found(client: httpx2.AsyncClient, path: str) -> None:
    response = await client.get(f"/runs/nix/{path}")
    assert code_of(response) == (404, "run.unknown")


NOT_OF_EVERY_RUN = ("state", "blob", "stacks")


async def test_answers_conform_to_the_document(client: httpx2.AsyncClient, two: str) -> None:
    whole = document()
    events = await events_of(client, two)
    call = next(event["key"] for event in events if event["type"] == "model.call")
    read = {"run_id": two, "n": 7, "key": quote(call), "sha256": events[-1].get("blobs", ["0" * 64])[0]}
    checked = 0
    for route in ROUTES:
        if (
            route.method == "GET"
            and route.path.startswith("/runs/{run_id}/")
            and route.operation not in NOT_OF_EVERY_RUN
        ):
            response = await client.get(route.path.format(**read))
            assert response.status_code == 200, response.text
            content = whole["paths"][f"/api/{{tenant}}{route.path}"]["get"]["responses"]["200"]["content"]
            assert response.headers["content-type"].partition(";")[0] in content
            if schema := content.get("application/json", {}).get("schema"):
                Draft202012Validator({**schema, "components": whole["components"]}).validate(response.json())
            checked += 1
    assert checked > 8


# -- the list of runs -------------------------------------------------------------------------------------------------


async def list_runs(client: httpx2.AsyncClient, **query: Any) -> list[str]:
    return [row["run"] for row in (await get_json(client, "/runs", **query))["runs"]]


async def test_runs_are_searched(client: httpx2.AsyncClient, two: str) -> None:
    (row,) = (await get_json(client, "/runs", q="TWO"))["runs"]
    assert (row["status"], row["run"]) == ("completed", two)
    assert row["duration_s"] >= 0
    assert (
        await list_runs(client, q="TWO", since="3600")
        == await list_runs(client, q="two", since="2026-01-01T00:00:00Z")
        == [two]
    )
    assert await list_runs(client, since="2999-01-01T00:00:00Z") == []
    assert two in await list_runs(client, definition=row["definition"], status="completed")
    assert two not in await list_runs(client, before=two)
    for query in ({"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}):
        assert (await client.get("/runs", params=query)).status_code == 400
    assert (await client.get("/runs", params={"before": "nix"})).status_code == 404


async def test_two_runs_are_compared(client: httpx2.AsyncClient, two: str) -> None:
    other = {**TWO, "run_id": "other", "script": {"turns": {"a": [{"data": {"found": 4}}], "b": [{"text": "y"}]}}}
    assert (await client.post("/runs", json=other)).status_code == 202
    await get_json(client, "/runs/other/result", wait_s=PATIENCE_S)
    found = await get_json(client, "/diff", left=two, right="other")
    assert (found["equal"], found["definition"], found["parting"]) == (False, None, None)
    assert [node["path"] for node in found["nodes"]] == ["a", "b"]
    assert (await get_json(client, "/diff", left=two, right=two))["equal"]
    schema = {"$ref": "#/components/schemas/RunDiff"}
    Draft202012Validator({**schema, "components": document()["components"]}).validate(found)
    assert (await client.get("/diff", params={"left": two})).json()["error"]["code"] == "api.malformed"
    assert (await client.get("/diff", params={"left": two, "right": "nix"})).status_code == 404


async def test_workers_report_their_load(deployment: Deployment) -> None:
    client, connection = deployment
    found = await get_json(client, "/workers")
    (worker,) = found["workers"]
    assert worker["load"]["partitions"] == list(range(connection.log.partitions))
    assert worker["load"]["runs_max"] == connection.config.runs_active_max
    assert worker["load"]["effects_max"] == connection.config.effects_active_max
    assert (found["unowned"], found["queue"]["starts"], worker["word"]) == ([], 0, "here")


async def test_a_removed_run_is_not_read_from_a_cache(deployment: Deployment) -> None:
    client, connection = deployment
    for number in (1, 2):
        start = {**TWO, "run_id": "gone", "script": {"turns": {"a": [{"text": str(number)}], "b": [{"text": "b"}]}}}
        assert (await client.post("/runs", json=start)).status_code == 202
        await get_json(client, "/runs/gone/result", wait_s=PATIENCE_S)
        whole = await get_json(client, "/runs/gone/index")
        assert whole["sequence"][0] == (await events_page(client, "gone"))[0]["sequence"]
        assert (await get_json(client, "/runs/gone/at/0"))["n"] == whole["count"]
        for family in ("run", "blob", "cmd.*"):
            purge = {"filter": f"cb.{family}.acme.gone.>"}
            await api(connection.log.requests, f"STREAM.PURGE.{connection.log.stream}", purge)
        for path in ("index", "at/0", "replay/0", "export.jsonl"):
            assert (await client.get(f"/runs/gone/{path}")).status_code == 404
