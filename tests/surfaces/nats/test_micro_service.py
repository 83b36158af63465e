"""The NATS micro service with a plain NATS client, a real server and a worker."""

import json
import threading
from pathlib import Path
from typing import Any

import anyio
import nats
import pytest
from anyio import to_thread
from nats.errors import NoRespondersError

from callboard.bus.commands import REPLY_HEADER
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.feed import MARK
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations import folding
from callboard.service.operations.operations import EVENTS_MAX, PAGE_BYTES_MAX
from callboard.service.operations.run_lists import Listings
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.nats.micro_service import open_service
from tests.support.flows import flow, returned
from tests.support.patience import until
from tests.support.service_client import PATIENCE_S, SCRIPT, SOURCE, WAITS, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection
from tests.support.service_client import refusing as refusing

OTHERS = (
    "fork",
    "definition",
    "versions",
    "rollback",
    "schedule",
    "schedules",
    "change_schedule",
    "run_values",
    "closed_questions",
    "partial_answer",
)


# -- start, result ----------------------------------------------------------------------------------------------------


async def test_a_run_by_request_and_reply(caller: Caller) -> None:
    message = {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT, "input": {"q": 1}}
    verdict = await caller.ask("start", message)
    assert verdict["status"] == "accepted"
    result = await caller.ask("result", {"run_id": verdict["run_id"], "wait_s": PATIENCE_S})
    assert result["status"] == "completed"
    assert result["output"] == {"sum": 4}
    assert result["results"]["a"]["data"] == {"found": 3}
    assert result["error"] is None
    again = await caller.ask("result", {"run_id": verdict["run_id"]})
    assert again == result


async def test_the_partial_answer_of_a_model_is_read(caller: Caller) -> None:
    turns = {"a": [{"data": {"found": 3}, "progress": ["Let me ", "see."], "delay_ms": 3_600_000}]}
    run = await caller.start(script={"turns": turns})

    async def read_partial_answer() -> Any:
        page = await caller.ask("events", {"run_id": run, "types": ["model.call"]})
        for one in page["events"]:
            answer = await caller.ask("partial_answer", {"run_id": run, "n": one["event"]["n"]})
            if answer is not None and answer["k"]:
                return answer
        return None

    async def is_gone(n: int) -> bool:
        return await caller.ask("partial_answer", {"run_id": run, "n": n}) is None

    await until(read_partial_answer)
    answer = await read_partial_answer()
    assert {**answer, "n": 0} == {"n": 0, "epoch": 1, "k": 1, "path": "a", "text": "Let me "}
    assert await caller.ask("partial_answer", {"run_id": run, "n": 1}) is None
    await caller.ask("tell", {"run_id": run, "verb": "kill", "body": {}})
    await until(lambda: is_gone(answer["n"]))
    unknown = await caller.ask("partial_answer", {"run_id": "nobody", "n": 1})
    assert unknown["error"]["code"] == "run.unknown"


@pytest.mark.parametrize("subject", ["cb.start.acme", "cb.api.acme.start"])
async def test_the_span_of_a_start_is_recorded(caller: Caller, subject: str) -> None:
    message = {"run_id": "traced", "definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT}
    span = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
    verdict = await caller.nc.subscribe(inbox := caller.nc.new_inbox())
    # The stream acknowledges the message; the verdict comes later to the inbox.
    headers = {**span, REPLY_HEADER: inbox} if subject == "cb.start.acme" else span
    await caller.nc.request(subject, json.dumps(message).encode(), timeout=PATIENCE_S, headers=headers)
    if REPLY_HEADER in headers:
        await verdict.next_msg(PATIENCE_S)
    page = await caller.ask("events", {"run_id": "traced", "limit": 1})
    assert page["events"][0]["event"]["payload"]["trace"].items() >= span.items()


async def test_a_run_id_is_used_once(caller: Caller) -> None:
    assert await caller.start(run_id="mine") == "mine"
    verdict = await caller.ask("start", {"definition": {"source": SOURCE}, "model": "scripted", "run_id": "mine"})
    assert verdict == {"status": "accepted", "run_id": "mine", "duplicate": True}


async def test_a_refused_start_names_every_problem(caller: Caller) -> None:
    broken = json.loads(SOURCE)
    broken["entry"] = "nowhere"
    del broken["nodes"]["b"]
    start = {"definition": {"source": json.dumps(broken)}, "model": "no-such-model:x", "run_id": "refused"}
    error = await caller.refused("start", start)
    assert (error["code"], error["run_id"]) == ("start.refused", "refused")
    places = [problem["where"] for problem in error["problems"]]
    assert len(error["problems"]) >= 3
    assert "model" in places
    assert all(problem["code"] and problem["message"] for problem in error["problems"])
    assert (await caller.refused("show", {"run_id": "refused"}))["code"] == "run.unknown"


async def test_a_start_of_the_maximum_message_size_is_admitted(caller: Caller) -> None:
    start = {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT, "input": {"q": ""}}
    room = caller.nc.max_payload - len(json.dumps(start).encode())
    start["input"] = {"q": "x" * room}
    verdict = await caller.ask("start", start)
    assert verdict.get("status") == "accepted", verdict
    assert await caller.finished()


async def test_a_malformed_start_lists_all_problems(refusing: Caller) -> None:
    error = await refusing.refused("start", {"definition": {"source": 7, "language": []}, "inputs": {}, "files": "x"})
    assert error["code"] == "start.refused"
    assert {"inputs", "files", "definition.source", "definition.language"} <= {p["where"] for p in error["problems"]}


@pytest.mark.parametrize("raw", [b"{", b"[]", b"7", b"\xff\xfe", b"null"])
async def test_a_start_that_is_not_an_object_is_malformed(refusing: Caller, raw: bytes) -> None:
    assert (await refusing.refused("start", raw=raw))["code"] == "api.malformed"


async def test_a_start_without_a_known_definition_is_refused(refusing: Caller) -> None:
    error = await refusing.refused("start", raw=b"")
    assert (error["code"], bool(error["problems"])) == ("start.refused", True)
    error = await refusing.refused("start", {"definition": {"name": "nothing"}, "model": "scripted"})
    assert [problem["code"] for problem in error["problems"]] == ["definition.unknown"]


async def test_a_result_before_the_end_is_refused(caller: Caller) -> None:
    run = await caller.start(script=WAITS)
    for body in ({"run_id": run}, {"run_id": run, "wait_s": 0.05}):
        error = await caller.refused("result", body)
        assert (error["code"], error["run_id"]) == ("run.not_ended", run)
    assert (await caller.refused("result", {"run_id": "nobody"}))["code"] == "run.unknown"


async def test_requests_are_answered_while_many_others_wait(caller: Caller) -> None:
    run = await caller.start(script=WAITS)
    results: list[dict[str, Any]] = []

    async def wait() -> None:
        results.append(await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S}))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(wait)
        assert (await caller.ask("show", {"run_id": run}))["status"] in ("accepted", "running")
        await caller.ask("tell", {"run_id": run, "verb": "cancel", "body": {"reason": "enough"}})
    assert [result["status"] for result in results] == ["cancelled"] * 20


# -- commands ---------------------------------------------------------------------------------------------------------


async def test_a_tell_reaches_the_run(caller: Caller) -> None:
    run = await caller.start(script=WAITS)
    verdict = await caller.ask("tell", {"run_id": run, "verb": "cancel", "body": {"reason": "enough", "by": "ada"}})
    cause = verdict.pop("cause")
    recorded = verdict.pop("recorded")
    assert verdict == {"status": "accepted", "run_id": run, "verdict": "accepted"}
    assert (await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S}))["status"] == "cancelled"
    events = await caller.ask("events", {"run_id": run, "types": ["cancel.requested"]})
    [event] = [each["event"] for each in events["events"]]
    assert event["payload"] == {"reason": "enough", "by": "ada"}
    assert (event["n"], event["cause"]) == (recorded, cause)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"run_id": "r", "verb": "sing"}, "tell.verb"),
        ({"run_id": "r", "verb": "cancel", "body": {"resaon": "typo"}}, "tell.malformed"),
        ({"run_id": "r", "verb": "signal"}, "tell.malformed"),
    ],
)
async def test_a_malformed_tell_is_refused(refusing: Caller, body: dict[str, Any], code: str) -> None:
    error = await refusing.refused("tell", body)
    assert error["code"] == "tell.refused"
    assert [problem["code"] for problem in error["problems"]] == [code]


async def test_a_tell_to_a_run_that_is_over_or_unknown_is_refused(caller: Caller) -> None:
    run = await caller.finished()
    for target, code in ((run, "run.finished"), ("nobody", "run.unknown")):
        error = await caller.refused("tell", {"run_id": target, "verb": "pause"})
        assert [problem["code"] for problem in error["problems"]] == [code]


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_show_returns_the_status_of_a_run(caller: Caller) -> None:
    run = await caller.finished()
    shown = await caller.ask("show", {"run_id": run})
    assert (shown["run"], shown["status"], shown["language"]) == (run, "completed", "workflow")
    assert [node["outcome"] for node in shown["nodes"].values()] == ["ok", "ok"]


async def test_trace_is_a_tree_of_nodes(caller: Caller) -> None:
    run = await caller.finished()
    trace = await caller.ask("trace", {"run_id": run})
    assert [child["path"] for child in trace["root"]["children"]] == ["a", "b"]
    assert [effect["type"] for effect in trace["root"]["children"][0]["effects"]] == ["model.call"]


async def test_a_long_run_is_folded_without_delaying_other_requests(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await caller.finished()
    begun, gone_on = threading.Event(), threading.Event()
    fold = folding.fold

    def slow(*given: Any) -> Any:
        begun.set()
        # On the loop this wait would block the test itself.
        assert gone_on.wait(PATIENCE_S)
        return fold(*given)

    monkeypatch.setattr(folding, "APART_EVENTS", 1)
    monkeypatch.setattr(folding, "fold", slow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.ask, "show", {"run_id": run})
        await to_thread.run_sync(begun.wait)
        assert (await caller.ask("events", {"run_id": run, "limit": 1}))["more"]
        gone_on.set()


async def test_events_are_read_in_pages(caller: Caller) -> None:
    run = await caller.finished()
    whole = await caller.ask("events", {"run_id": run})
    assert not whole["more"]
    assert [each["event"]["n"] for each in whole["events"]] == list(range(1, len(whole["events"]) + 1))
    assert whole["events"][-1]["event"]["type"] == "run.end"
    pages: list[Any] = []
    after, more = 0, True
    while more:
        page = await caller.ask("events", {"run_id": run, "after": after, "limit": 4})
        assert len(page["events"]) <= 4
        pages += page["events"]
        after, more = page["after"], page["more"]
    assert pages == whole["events"]
    nothing = await caller.ask("events", {"run_id": run, "after": after})
    assert (nothing["events"], nothing["after"], nothing["more"]) == ([], after, False)


async def test_events_are_selected_by_type(caller: Caller) -> None:
    run = await caller.finished()
    page = await caller.ask("events", {"run_id": run, "types": ["node.enter", "node.exit"], "limit": 3})
    assert [each["event"]["type"] for each in page["events"]] == ["node.enter", "node.exit", "node.enter"]
    assert page["more"]
    rest = await caller.ask("events", {"run_id": run, "types": ["node.enter", "node.exit"], "after": page["after"]})
    assert [each["event"]["type"] for each in rest["events"]] == ["node.exit"]


async def test_a_page_of_events_fits_into_a_message(caller: Caller) -> None:
    large = {"turns": {"a": [{"data": {"text": "x" * 200_000}}], "b": [{"data": {}}]}}
    run = await caller.finished(script=large)
    after, more, count = 0, True, 0
    while more:
        page = await caller.ask("events", {"run_id": run, "after": after})
        size = sum(len(json.dumps(each["event"])) for each in page["events"])
        assert len(page["events"]) == 1 or size <= 1.1 * PAGE_BYTES_MAX
        after, more, count = page["after"], page["more"], count + 1
    assert count > 1


async def test_an_answer_too_large_for_a_message_is_an_error(caller: Caller) -> None:
    large = {"turns": {"a": [{"data": {"text": "x" * 400_000}}], "b": [{"data": {"text": "y" * 400_000}}]}}
    run = await caller.start(script=large)
    assert (await caller.refused("result", {"run_id": run, "wait_s": PATIENCE_S}))["code"] == "api.too_large"


@pytest.mark.parametrize("verb", ["show", "trace", "events", "result"])
async def test_an_unknown_run_is_not_found(refusing: Caller, verb: str) -> None:
    assert (await refusing.refused(verb, {"run_id": "nobody"}))["code"] == "run.unknown"


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("show", {}),
        ("show", {"run_id": 7}),
        ("trace", {"run_id": "r", "form": "svg"}),
        ("events", {"run_id": "r", "limit": 0}),
        ("events", {"run_id": "r", "limit": EVENTS_MAX + 1}),
        ("runs", {"limit": -1}),
        ("result", {"run_id": "r", "wait_s": "long"}),
        ("tell", {"verb": "cancel"}),
        ("definition", {}),
    ],
)
async def test_a_request_of_the_wrong_shape_is_malformed(refusing: Caller, verb: str, body: Any) -> None:
    error = await refusing.refused(verb, body)
    assert error["code"] == "api.malformed"
    assert error["message"]


async def test_the_tenant_is_in_the_subject(caller: Caller) -> None:
    run = await caller.finished()
    other = Caller(caller.nc, "other")
    assert (await other.refused("show", {"run_id": run}))["code"] == "run.unknown"
    assert (await other.ask("runs"))["runs"] == []
    spaced = Caller(caller.nc, "Acme=20=26=20Sons")
    assert await spaced.finished(run_id="first") == "first"
    assert [row["run"] for row in (await spaced.ask("runs"))["runs"]] == ["first"]


# -- runs -------------------------------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_and_as_of_now(caller: Caller) -> None:
    assert await caller.ask("runs") == {"runs": [], "more": False, "sequence": 0}
    finished = [await caller.finished() for _ in range(3)]
    waiting = await caller.start(script=WAITS)
    whole = await caller.ask("runs")
    listed = whole["runs"]
    assert [row["run"] for row in listed] == [waiting, *reversed(finished)]
    *_, last = (await caller.ask("events", {"run_id": finished[-1]}))["events"]
    assert whole["sequence"] > last["sequence"]
    assert {row["status"] for row in listed[1:]} == {"completed"}
    page = await caller.ask("runs", {"limit": 2})
    assert ([row["run"] for row in page["runs"]], page["more"]) == ([waiting, finished[2]], True)
    page = await caller.ask("runs", {"limit": 2, "before": finished[2]})
    assert ([row["run"] for row in page["runs"]], page["more"]) == ([finished[1], finished[0]], False)
    completed = await caller.ask("runs", {"status": "completed", "definition": "count"})
    assert [row["run"] for row in completed["runs"]] == finished[::-1]
    assert (await caller.ask("runs", {"definition": "other"}))["runs"] == []
    assert (await caller.refused("runs", {"before": "nobody"}))["code"] == "run.unknown"
    tagged = await caller.finished(tags={"customer": "acme"}, input={"case": "lost parcel"})
    for question in (
        "tag.customer=acme",
        "text~'parcel lost' and status=completed",
        f"run={tagged} and not status=running",
    ):
        found = (await caller.ask("runs", {"where": question, "definition": "count"}))["runs"]
        assert [(row["run"], row["tags"]) for row in found] == [(tagged, {"customer": "acme"})]
    assert [row["run"] for row in (await caller.ask("runs", {"q": "parcel"}))["runs"]] == [tagged]
    refused = await caller.refused("runs", {"where": "status=failed and"})
    assert (refused["code"], refused["column"]) == ("find.where", 18)


async def test_a_listing_reads_definitions_that_are_stored_separately(connection: Connection, caller: Caller) -> None:
    large = json.loads(SOURCE)
    large["nodes"]["a"]["instruction"] = "Count. " * 60_000
    run = await caller.finished(definition={"source": json.dumps(large)})
    accepted, *_ = await connection.log.read(RunRef("acme", run))
    assert accepted.event.blobs
    assert [row["run"] for row in (await caller.ask("runs"))["runs"]] == [run]


async def test_an_evicted_listing_is_read_again(connection: Connection, caller: Caller) -> None:
    run = await caller.finished()
    async with anyio.create_task_group() as tasks:
        listings = Listings(connection.log, tasks, tenants_max=1)
        for tenant in ("acme", "other", "acme", "third", "acme"):
            expected = [run] if tenant == "acme" else []
            assert [row.run for row in await listings.rows(tenant)] == expected
        tasks.cancel_scope.cancel()


# -- definitions ------------------------------------------------------------------------------------------------------


async def test_a_definition_is_registered_by_name_and_hash(caller: Caller) -> None:
    registered = await caller.ask("definition", {"source": SOURCE, "name": "counting"})
    assert registered["language"] == "workflow"
    assert registered["name"] == "counting"
    assert len(registered["hash"]) == 64
    for key in ({"name": "counting"}, {"hash": registered["hash"]}):
        found = await caller.ask("definition", key)
        assert (found["source"], found["hash"]) == (SOURCE, registered["hash"])
        run = await caller.finished(definition=key)
        assert (await caller.ask("show", {"run_id": run}))["definition_hash"] == registered["hash"]
    again = await caller.ask("definition", {"source": SOURCE, "name": "counting"})
    assert again == {**registered, "unchanged": True}


async def test_a_name_refers_to_the_last_registration(caller: Caller) -> None:
    changed = SOURCE.replace("Count.", "Count twice.")
    first = await caller.ask("definition", {"source": SOURCE})
    second = await caller.ask("definition", {"source": changed})
    assert first["name"] == second["name"] == "count"  # its own name by default
    assert first["hash"] != second["hash"]
    assert (await caller.ask("definition", {"name": "count"}))["source"] == changed
    assert (await caller.ask("definition", {"hash": first["hash"]}))["source"] == SOURCE


async def test_a_flow_is_named_by_its_start_its_registration_or_its_comment(caller: Caller) -> None:
    source = json.dumps(flow({"done": returned(1)}, comment="Waits for parcels. Then some."))
    plain = json.dumps(flow({"done": returned(1)}))
    registered = await caller.ask("definition", {"source": source, "name": "parcels"})
    starts: list[dict[str, Any]] = [
        {"definition": {"name": "parcels"}, "name": "mine"},
        {"definition": {"name": "parcels"}},
        {"definition": {"hash": registered["hash"]}},
        {"definition": {"source": source}, "name": "Grüße"},
        {"definition": {"source": source}},
        {"definition": {"source": plain}},
    ]
    called: list[str] = []
    for start in starts:
        run = await caller.finished(**start)
        called.append((await caller.ask("show", {"run_id": run}))["definition"])
    assert called[:-1] == ["mine", "parcels", "parcels", "Grüße", "Waits for parcels"]
    assert len(called[-1]) == 12
    assert (await caller.ask("runs", {"definition": "parcels"}))["runs"][0]["definition"] == "parcels"


async def test_an_unused_name_is_warned_of_and_a_long_name_refused(caller: Caller) -> None:
    start = {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT}
    [warning] = (await caller.ask("start", {**start, "name": "other"}))["warnings"]
    assert (warning["code"], warning["where"]) == ("start.name", "name")
    refused = await caller.refused("start", {**start, "name": "x" * 200})
    assert [problem["code"] for problem in refused["problems"]] == ["start.name"]


async def test_an_invalid_definition_is_refused_with_every_problem(caller: Caller) -> None:
    broken = json.loads(SOURCE)
    broken["entry"] = "nowhere"
    broken["edges"] = [{"from": "a", "to": "gone"}]
    error = await caller.refused("definition", {"source": json.dumps(broken), "name": "broken"})
    assert error["code"] == "definition.refused"
    assert len(error["problems"]) >= 2
    assert (await caller.refused("definition", {"name": "broken"}))["code"] == "definition.unknown"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"source": SOURCE, "name": "ab" * 32}, "definition.name"),
        ({"source": SOURCE, "name": ""}, "definition.name"),
        ({"source": SOURCE, "name": "x" * 200}, "definition.name"),
        ({"source": SOURCE, "language": "klingon"}, "definition.language"),
        ({"source": "x" * 900_000}, "definition.too_large"),
        ({"source": "not any language"}, "UNKNOWN_LANGUAGE"),
    ],
)
async def test_an_unusable_definition_is_refused(refusing: Caller, body: dict[str, str], code: str) -> None:
    error = await refusing.refused("definition", body)
    assert error["code"] == "definition.refused"
    assert [problem["code"] for problem in error["problems"]] == [code]


# -- the micro service itself -----------------------------------------------------------------------------------------


RUNS = ("start", "tell", "runs", "count", "costs", "questions", "show", "result", "trace", "state", "events", "value")


async def test_the_service_is_discoverable(connection: Connection, caller: Caller) -> None:
    info = json.loads((await caller.nc.request("$SRV.INFO.callboard", timeout=PATIENCE_S)).data)
    assert info["name"] == "callboard"
    assert info["metadata"] == {"prefix": "cb", "stream": connection.log.stream}
    assert {endpoint["name"]: endpoint["subject"] for endpoint in info["endpoints"]} == {
        verb: f"cb.api.*.{verb}" for verb in (*RUNS, *OTHERS)
    }
    assert all(endpoint["metadata"]["description"] for endpoint in info["endpoints"])
    shapes = {endpoint["name"]: endpoint["metadata"] for endpoint in info["endpoints"]}
    asked = json.loads(shapes["runs"]["request_schema"])
    assert "status" in asked["$defs"]["ListRuns"]["properties"]
    assert "runs" in json.loads(shapes["runs"]["response_schema"])["$defs"]["RunList"]["properties"]
    ping = json.loads((await caller.nc.request("$SRV.PING", timeout=PATIENCE_S)).data)
    assert ping["name"] == "callboard"


async def test_the_statistics_count_errors_and_processing_time(caller: Caller) -> None:
    assert (await caller.refused("rollback", {"name": "nobody"}))["code"].startswith("definition.")
    stats = json.loads((await caller.nc.request("$SRV.STATS.callboard", timeout=PATIENCE_S)).data)
    found = {endpoint["name"]: endpoint for endpoint in stats["endpoints"]}
    rollback = found["rollback"]
    assert rollback["num_errors"] >= 1
    assert ": definition." in rollback["last_error"]
    assert rollback["average_processing_time"] == rollback["processing_time"] // rollback["data"]["answered"] > 0
    assert found["state"]["num_errors"] == 0


async def test_a_closed_service_has_no_responders(tmp_path: Path) -> None:
    flags = {"data_dir": tmp_path, "sync": "100ms"}
    async with open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection:
        assert connection.server is not None
        nc = await nats.connect(connection.server.url)
        async with open_service(connection):
            assert await Caller(nc).ask("runs") == {"runs": [], "more": False, "sequence": 0}
        with pytest.raises(NoRespondersError):
            await nc.request("cb.api.acme.runs", b"{}", timeout=PATIENCE_S)
        await nc.close()


async def test_an_error_in_the_block_is_raised_unchanged(tmp_path: Path) -> None:
    flags = {"data_dir": tmp_path, "sync": "100ms"}
    async with open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection:
        with pytest.raises(LookupError, match="mine"):
            async with open_service(connection):
                raise LookupError("mine")


async def test_a_start_without_a_worker_has_no_verdict_and_waits(tmp_path: Path) -> None:
    flags = {"data_dir": tmp_path, "sync": "100ms"}
    async with (
        open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection,
        open_service(connection, verdict_wait_s=0.2),
    ):
        assert connection.server is not None
        nc = await nats.connect(connection.server.url)
        start = {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT, "run_id": "later"}
        assert (await Caller(nc).refused("start", start))["code"] == "client.no_verdict"
        async with open_worker(connection, env={}):
            result: dict[str, Any] = {}
            while "status" not in result:  # the run is unknown until the worker has admitted it
                result = await Caller(nc).ask("result", {"run_id": "later", "wait_s": PATIENCE_S})
        assert result["status"] == "completed"
        await nc.close()


async def test_the_result_of_a_run_of_a_newer_version_is_refused(connection: Connection, caller: Caller) -> None:
    run, log = await caller.finished(), connection.log
    for item in await log.read(RunRef("acme", run)):
        data = item.data.replace(run.encode(), b"newer").replace(b'"status":"completed"', b'"status":"suspended"')
        subject = log.subjects.event(RunRef("acme", "newer"), item.event.definition, item.event.type)
        await log.publish(OutgoingMessage(subject, data, {MARK: f"newer.{item.event.n}"}))
    error = await caller.refused("result", {"run_id": "newer"})
    assert error["code"] == "log.newer"
    assert "suspended" in error["message"]
