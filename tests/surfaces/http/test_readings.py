"""What the page reads over HTTP: one deployment for all tests here, with a few runs in it."""

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
from callboard.surfaces.http import histories
from callboard.surfaces.http.histories import Histories
from callboard.surfaces.http.openapi import document
from callboard.surfaces.http.routes import ROUTES
from tests.support import python_workflows
from tests.support.event_logs import Log
from tests.support.flows import call, flow, returned
from tests.support.http_application import PATIENCE_S, served
from tests.support.page_stage import put
from tests.support.workflows import document as workflow

Deployment = tuple[httpx2.AsyncClient, Connection]


def asking(**question: Any) -> dict[str, Any]:
    """The start of a run that asks and returns the answer."""
    asked = {"provider": "mwl:provider.call/callboard/human/v1", "with": question}
    steps = {"ask": call(asked), "done": returned()}
    return {"definition": {"source": json.dumps(flow(steps))}}


def paying() -> dict[str, Any]:
    """The start of a run that calls a tool after a person's approval, and returns its output."""
    source = {"type": "scripted", "tools": [{"name": "pay", "input_schema": PAYMENT}]}
    given = {"source": source, "tool": "pay", "arguments": {"cents": 900}, "approve": "always"}
    steps = {"pay": call({"provider": "mwl:provider.call/callboard/tool/v1", "with": given}), "done": returned()}
    return {"definition": {"source": json.dumps(flow(steps))}, "script": {"tools": {"pay": [{"output": "paid"}]}}}


PAYMENT = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async with served(tmp_path_factory.mktemp("house")) as found:
        yield found


@pytest.fixture
def client(deployment: Deployment) -> httpx2.AsyncClient:
    return deployment[0]


async def got(client: httpx2.AsyncClient, path: str, **query: Any) -> Any:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def asked(deployment: Deployment, run: str, start: dict[str, Any]) -> None:
    """Start a run and wait until it asks."""
    client, connection = deployment
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type="human.asked") as feed:
            started = await client.post("/runs", json={**start, "run_id": run})
            assert started.status_code == 202, started.text
            await anext(feed)


async def test_a_question_is_listed_until_it_is_answered(deployment: Deployment) -> None:
    start = asking(question="Which?", type="select", options=["red", "blue"], data={"of": 1}, channel="desk")
    client, _ = deployment
    await asked(deployment, "asks", start)
    (found,) = (await got(client, "/questions", run_id="asks"))["questions"]
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
    assert (await got(client, "/runs/asks/result", wait_s=PATIENCE_S))["output"] == "blue"
    assert (await got(client, "/questions", run_id="asks")) == {"questions": [], "more": False, "count": 0}


async def test_the_questions_of_a_run_that_is_killed_are_gone(deployment: Deployment) -> None:
    client, _ = deployment
    await asked(deployment, "killed", asking(question="Really?", type="confirm"))
    (found,) = (await got(client, "/questions", run_id="killed"))["questions"]
    assert found["schema"] == {"enum": ["yes", "no"]}
    assert [found] == (await got(client, "/questions", definition=found["definition"]))["questions"]
    assert (await client.post("/runs/killed/kill", json={})).status_code == 202
    await got(client, "/runs/killed/result", wait_s=PATIENCE_S)
    assert (await got(client, "/questions"))["questions"] == []


TWO: dict[str, Any] = {
    "definition": {"source": json.dumps(workflow({"a": {}, "b": {}}, [{"from": "a", "to": "b"}]))},
    "model": "scripted",
    "script": {"turns": {"a": [{"data": {"found": 3}}], "b": [{"text": "x" * 300_000}]}},
}


@pytest.fixture(scope="module")
async def turns() -> AsyncIterator[list[ModelTurn]]:
    """What models were asked, as they were asked it."""
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
    """A run of two nodes that is over; the second one's answer is a large value."""
    client, _ = deployment
    assert (await client.post("/runs", json={**TWO, "run_id": "two"})).status_code == 202
    await got(client, "/runs/two/result", wait_s=PATIENCE_S)
    return "two"


async def events_page(client: httpx2.AsyncClient, run: str) -> list[dict[str, Any]]:
    return (await got(client, f"/runs/{run}/events", limit=1000))["events"]


async def events_of(client: httpx2.AsyncClient, run: str) -> list[dict[str, Any]]:
    return [one["event"] for one in await events_page(client, run)]


async def test_the_geometry_of_a_run(client: httpx2.AsyncClient, two: str) -> None:
    found = await got(client, f"/runs/{two}/graph")
    assert [node["id"] for node in found["nodes"]] == ["a", "b"]
    assert [(edge["from"], edge["to"]) for edge in found["edges"]] == [("a", "b"), ("", "a"), ("b", "")]
    assert {mark["kind"] for mark in found["marks"]} == {"begin", "end"}
    for node in found["nodes"]:
        assert 0 <= node["x"] <= found["width"] - node["w"]
        assert 0 <= node["y"] <= found["height"] - node["h"]
    across = await got(client, f"/runs/{two}/graph", direction="LR")
    assert (across["outline"], across["direction"]) == (found["outline"], "LR")
    assert across["width"] > found["width"]
    assert (await client.get(f"/runs/{two}/graph", params={"direction": "UP"})).status_code == 400


async def test_the_index_comes_in_pieces(client: httpx2.AsyncClient, two: str) -> None:
    events = await events_of(client, two)
    whole = await got(client, f"/runs/{two}/index")
    assert (whole["count"], whole["last"], whole["more"], whole["ended"]) == (len(events), len(events), False, True)
    assert [whole["types"][place] for place in whole["type"]] == [event["type"] for event in events]
    first = await got(client, f"/runs/{two}/index", limit=3)
    assert (first["last"], first["more"]) == (3, True)
    rest = await got(client, f"/runs/{two}/index", after=3)
    types = [piece["types"][place] for piece in (first, rest) for place in piece["type"]]
    assert types == [event["type"] for event in events]
    assert (await got(client, f"/runs/{two}/index", after=len(events)))["count"] == 0


def child() -> Log:
    made = Log("a-child", "small")
    made.accepted(parent=Parent("above", "ask", 1))
    return made.failed("boom", "it broke")


def due() -> Log:
    made = Log("a-due", "small")
    # As a version writes it that knows more of schedules than this one.
    start = {"scheduled": {"schedule": "daily", "due": "2026-11-24T08:00:00+00:00", "calendar": "work"}}
    made.add(RunAccepted(DefinitionRef("graph", "ab" * 32, "{}", "small"), start))
    made.add(RunQuarantined("log.unreadable", 7, "cb.here", "it is none"))
    return made


def warned() -> Log:
    made = Log("a-warned", "small").started()
    made.add(RunEnd("completed", warnings=[Warned("a.thing", "look"), Warned("b.thing", "look")]))
    return made


NOWHERE = {"parent": None, "schedule": None, "forked_from": None, "continues": None}


@pytest.mark.parametrize(
    ("made", "origin", "ending"),
    [
        (child(), {"language": "workflow", "parent": "above"}, {"code": "boom", "message": "it broke", "warnings": 0}),
        (
            due(),
            {"language": "graph", "schedule": "daily"},
            {"code": "log.unreadable", "message": "it is none", "warnings": 0},
        ),
        (warned(), {"language": "workflow"}, {"code": None, "message": "", "warnings": 2}),
    ],
)
async def test_the_index_says_where_a_run_comes_from_and_what_it_came_to(
    deployment: Deployment, made: Log, origin: dict[str, Any], ending: dict[str, Any]
) -> None:
    client, connection = deployment
    await put(connection.log, made.run, made.events)
    found = await got(client, f"/runs/{made.run}/index")
    origin = NOWHERE | origin | {"definition_hash": "ab" * 32}
    ending = {"continued_as": None} | ending
    assert (found["origin"], found["ending"]) == (origin, ending)
    first = await got(client, f"/runs/{made.run}/index", limit=1)
    assert (first["origin"], first["ending"]) == (origin, None)


async def test_how_a_run_stood_behind_an_event(client: httpx2.AsyncClient, two: str) -> None:
    events = await events_of(client, two)
    entered = next(event["n"] for event in events if event["type"] == "node.enter" and event["path"] == "b")
    found = await got(client, f"/runs/{two}/at/{entered}")
    assert (found["n"], found["last"], found["result"]["status"]) == (entered, len(events), "running")
    assert found["diagram"] == found["diagram"] | {"colours": {"a": "success", "b": "current"}, "taken": {"0": 1}}
    last = await got(client, f"/runs/{two}/at/0")
    assert (last["n"], last["result"]["status"], last["diagram"]["entered"]) == (
        len(events),
        "completed",
        {"a": 1, "b": 1},
    )
    for n in (-1, len(events) + 1):
        assert (await client.get(f"/runs/{two}/at/{n}")).status_code == 404


async def test_failures_are_counted_as_far_as_the_run_has_come(deployment: Deployment) -> None:
    client, connection = deployment
    log = Log("fails-later").started()
    last = await put(connection.log, log.run, log.events)
    assert await got(client, f"/runs/{log.run}/failures") == {}
    known = len(log.events)
    log.enter("bake")
    log.exit("bake", outcome="failed")
    n = len(log.events)
    error = Failure("workflow.node_failed", "failed nodes: bake", previous=Failure("node.broke", "bake broke"))
    log.add(RunFailed(error))
    log.add(RunEnd("failed", error=error))
    await put(connection.log, log.run, log.events[known:], last)
    steps = {"count": 1, "path": "bake", "n": n}
    assert await got(client, f"/runs/{log.run}/failures") == {"ended_at": n, "steps": steps}


async def test_a_replay_says_what_the_interpreter_waits_for(client: httpx2.AsyncClient, two: str) -> None:
    events = await events_of(client, two)
    call = next(event for event in events if event["type"] == "model.call" and event["path"] == "b")
    found = await got(client, f"/runs/{two}/replay/{call['n']}")
    assert [one["key"] for one in found["open"]] == [call["key"]]
    assert (found["at"], found["standing"]["status"], found["unwritten"]) == (call["n"], "running", [])
    assert (await got(client, f"/runs/{two}/replay/0"))["ended"]


async def test_the_stacks_of_a_workflow_in_python_are_read_at_an_event(deployment: Deployment) -> None:
    client, _ = deployment
    source = load_object(python_workflows.triage).definitions["triage"]
    await asked(deployment, "triaged", {"definition": {"source": source}, "input": {"service": "shop", "urls": ["a"]}})
    found = await got(client, "/runs/triaged/stacks/0")
    (task,) = found["tasks"]
    frame = task["frames"][-1]
    assert (task["task"], frame["function"], frame["locals"], task["effect"]["type"]) == (
        "",
        "triage",
        None,
        "human.asked",
    )
    answered = document()["paths"]["/api/{tenant}/runs/{run_id}/stacks/{n}"]["get"]["responses"]["200"]["content"]
    schema = answered["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document()["components"]}).validate(found)
    assert frame["source"].startswith('verdict = await ask("Restart it?"')
    assert found["sources"][frame["file"]].splitlines()[frame["line"] - 1].strip() == frame["source"]
    assert (await client.get("/runs/triaged/stacks/999")).status_code == 404
    assert (await client.post("/runs/triaged/kill", json={})).status_code == 202


async def test_a_run_without_code_has_no_stacks(client: httpx2.AsyncClient, two: str) -> None:
    refused = await client.get(f"/runs/{two}/stacks/3")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "debug.no_code")


async def test_a_place_is_the_number_of_an_event_also_behind_one_that_cannot_be_read(deployment: Deployment) -> None:
    client, connection = deployment
    made = Log("torn", "torn").started(Outline([OutlineNode(name) for name in "abc"]))
    for name in "abc":
        made.enter(name)
        made.exit(name)
    events = made.events
    lost = next(event for event in events if event.type == "node.exit" and event.path == "a")
    after = await put(connection.log, "torn", events[: lost.n - 1])
    subject = connection.log.subjects.event(RunRef("acme", "torn"), "torn", lost.type)
    torn = await connection.log.nc.jetstream().publish(subject, b'{"run": "torn')
    assert torn.seq > after
    await put(connection.log, "torn", events[lost.n :], torn.seq)
    last = events[-1].n
    for event in events[lost.n :]:
        found = await got(client, f"/runs/torn/at/{event.n}")
        assert (found["n"], found["last"]) == (event.n, last)
    entered = [event.n for event in events if event.type == "node.enter"]
    found = await got(client, f"/runs/torn/at/{entered[1]}")
    assert found["diagram"]["colours"]["b"] == "current"
    assert "c" not in found["diagram"]["entered"]
    before = await got(client, f"/runs/torn/at/{lost.n}")
    assert (before["n"], before["diagram"]["colours"]["a"]) == (lost.n - 1, "current")
    refused = await client.get(f"/runs/torn/replay/{lost.n}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "log.unreadable")
    for path in ("at", "replay"):
        assert (await client.get(f"/runs/torn/{path}/{last + 1}")).status_code == 404
    # In pieces of any size all that can be read comes.
    for limit in (1, 2, lost.n):
        count, place, more = 0, 0, True
        while more:
            piece = await got(client, "/runs/torn/index", after=place, limit=limit)
            assert piece["last"] > place, "it gets on"
            count, place, more = count + piece["count"], piece["last"], piece["more"]
        assert (count, place) == (len(events) - 1, last)


async def test_what_a_model_saw_is_what_it_was_asked(
    client: httpx2.AsyncClient, two: str, turns: list[ModelTurn]
) -> None:
    asked = [turn for turn in turns if turn.path in ("a", "b")]
    assert len(asked) == 2
    for turn in asked:
        found = await got(client, f"/runs/{two}/seen/{quote(turn.key)}")
        assert [one["message"] for one in found["messages"]] == msgspec.to_builtins(turn.messages)
        assert (found["system"], found["verified"]) == (turn.system, True)
        assert found["result"]["n"] > found["n"]
    for key in ("nix", "a#1.1!turn.7"):
        assert (await client.get(f"/runs/{two}/seen/{quote(key)}")).json()["error"]["code"] == "replay.no_call"


async def test_a_large_value_is_handed_out(client: httpx2.AsyncClient, two: str) -> None:
    blobs = [digest for event in await events_of(client, two) for digest in event.get("blobs", [])]
    assert blobs
    assert "x" * 300_000 in json.dumps(await got(client, f"/runs/{two}/blob/{blobs[0]}"))
    for digest in ("0" * 64, "nix"):
        assert (await client.get(f"/runs/{two}/blob/{digest}")).status_code == 404


async def test_a_run_as_files(client: httpx2.AsyncClient, two: str) -> None:
    lines = (await client.get(f"/runs/{two}/export.jsonl")).text.splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert "x" * 300_000 in lines[-1]
    spans = (await got(client, f"/runs/{two}/export.jaeger"))["data"][0]["spans"]
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
async def test_of_a_run_that_is_none_there_is_nothing(client: httpx2.AsyncClient, path: str) -> None:
    response = await client.get(f"/runs/nix/{path}")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "run.unknown")


NOT_OF_EVERY_RUN = ("state", "blob", "stacks")


async def test_answers_are_as_the_document_says(client: httpx2.AsyncClient, two: str) -> None:
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


async def runs(client: httpx2.AsyncClient, **query: Any) -> list[str]:
    return [row["run"] for row in (await got(client, "/runs", **query))["runs"]]


async def test_the_list_is_searched(client: httpx2.AsyncClient, two: str) -> None:
    (row,) = (await got(client, "/runs", q="TWO"))["runs"]
    assert (row["status"], row["run"]) == ("completed", two)
    assert row["duration_s"] >= 0
    assert (
        await runs(client, q="TWO", since="3600") == await runs(client, q="two", since="2026-01-01T00:00:00Z") == [two]
    )
    assert await runs(client, since="2999-01-01T00:00:00Z") == []
    assert two in await runs(client, definition=row["definition"], status="completed")
    assert two not in await runs(client, before=two)
    for query in ({"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}):
        assert (await client.get("/runs", params=query)).status_code == 400
    assert (await client.get("/runs", params={"before": "nix"})).status_code == 404


async def test_two_runs_are_compared(client: httpx2.AsyncClient, two: str) -> None:
    other = {**TWO, "run_id": "other", "script": {"turns": {"a": [{"data": {"found": 4}}], "b": [{"text": "y"}]}}}
    assert (await client.post("/runs", json=other)).status_code == 202
    await got(client, "/runs/other/result", wait_s=PATIENCE_S)
    found = await got(client, "/diff", left=two, right="other")
    assert (found["equal"], found["definition"], found["parting"]) == (False, None, None)
    assert [node["path"] for node in found["nodes"]] == ["a", "b"]
    assert (await got(client, "/diff", left=two, right=two))["equal"]
    schema = {"$ref": "#/components/schemas/RunDiff"}
    Draft202012Validator({**schema, "components": document()["components"]}).validate(found)
    assert (await client.get("/diff", params={"left": two})).json()["error"]["code"] == "api.malformed"
    assert (await client.get("/diff", params={"left": two, "right": "nix"})).status_code == 404


async def test_the_workers_say_what_they_do(deployment: Deployment) -> None:
    client, connection = deployment
    found = await got(client, "/workers")
    (worker,) = found["workers"]
    assert worker["load"]["partitions"] == list(range(connection.log.partitions))
    assert worker["load"]["runs_max"] == connection.config.runs_active_max
    assert worker["load"]["effects_max"] == connection.config.effects_active_max
    assert (found["unowned"], found["queue"]["starts"], worker["word"]) == ([], 0, "here")


async def test_a_run_that_was_removed_is_not_told_from_memory(deployment: Deployment) -> None:
    client, connection = deployment
    for number in (1, 2):
        start = {**TWO, "run_id": "gone", "script": {"turns": {"a": [{"text": str(number)}], "b": [{"text": "b"}]}}}
        assert (await client.post("/runs", json=start)).status_code == 202
        await got(client, "/runs/gone/result", wait_s=PATIENCE_S)
        whole = await got(client, "/runs/gone/index")
        assert whole["sequence"][0] == (await events_page(client, "gone"))[0]["sequence"]
        assert (await got(client, "/runs/gone/at/0"))["n"] == whole["count"]
        for family in ("run", "blob", "cmd.*"):
            purge = {"filter": f"cb.{family}.acme.gone.>"}
            await api(connection.log.requests, f"STREAM.PURGE.{connection.log.stream}", purge)
        for path in ("index", "at/0", "replay/0", "export.jsonl"):
            assert (await client.get(f"/runs/gone/{path}")).status_code == 404


async def test_the_first_rows_do_not_wait_for_the_last(
    deployment: Deployment, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "READ_EVENTS", 1)
    _, connection = deployment
    read: list[int] = []

    class Noted:
        def __getattr__(self, name: str) -> Any:
            return getattr(connection.log, name)

        async def read(self, ref: RunRef, after: int, limit: int, bytes_max: int) -> Any:
            found = await connection.log.read(ref, after, limit, bytes_max)
            read.append(len(found))
            begun.set()
            return found

    begun = anyio.Event()
    log: Any = Noted()
    kept = Histories(log, "acme")
    order: list[str] = []

    async def look(until: int | None) -> None:
        await kept.of(two, until)
        order.append("first" if until else "all")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look, None)
        await begun.wait()
        tasks.start_soon(look, 3)
    assert order == ["first", "all"]
    assert sum(read) == len((await kept.of(two)).events)


async def test_a_run_that_is_read_has_others_go_while_it_is(
    deployment: Deployment, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, connection = deployment
    for run in ("third", "fourth"):
        assert (await client.post("/runs", json={**TWO, "run_id": run})).status_code == 202
        await got(client, f"/runs/{run}/result", wait_s=PATIENCE_S)
    sizes: list[int] = []

    class Noted:
        def __getattr__(self, name: str) -> Any:
            return getattr(connection.log, name)

        async def read(self, ref: RunRef, after: int, limit: int, bytes_max: int) -> Any:
            sizes.append(kept.size)
            found = await connection.log.read(ref, after, limit, bytes_max)
            assert len(found) <= 1 or sum(len(item.data) for item in found[:-1]) < 2 * bytes_max
            return found

    log: Any = Noted()
    kept = Histories(log, "acme")
    whole = (await kept.of(two)).size
    read_at_once = len(sizes)
    monkeypatch.setattr(histories, "READ_BYTES", 2_000)
    monkeypatch.setattr(histories, "KEPT_BYTES_MAX", whole)
    for run in ("third", "fourth", two):
        assert (await kept.of(run)).has_ended
    assert len(sizes) > 4 * read_at_once
    assert max(sizes) < 1.2 * whole
    assert kept.size < 1.2 * whole
