"""Forks on a real server: a run continues from an event of another run, which does not change."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.events import decode_event, encode_event
from callboard.bus.log.port import LogReader
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.archive import Archive, ArchivedLog
from callboard.bus.subjects import RunRef
from callboard.languages.graph.language import LANGUAGE as GRAPHS
from callboard.languages.registry import language
from callboard.projections.comparison.diff import Pair, compare_logs
from callboard.projections.comparison.json_differences import Difference
from callboard.runtime.client.connection import Connection
from callboard.runtime.run.log import read_run
from callboard.service.operations.archives import archive_runs, import_as, import_runs
from callboard.testing.checks import check_replay
from tests.support.graphs import flow, graph, step, webhook
from tests.support.service_client import PATIENCE_S, Caller
from tests.support.service_client import caller as caller  # fixtures
from tests.support.service_client import connection as connection

DEFINITION = {
    "id": "steps",
    "name": "Steps",
    "entry": "a",
    "nodes": {name: {"name": name.upper(), "instruction": f"Do {name}."} for name in "abc"},
    "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}],
}
SCRIPT = {"turns": {name: [{"data": {"found": name}}] for name in "abc"}}
FAILS = {"turns": {**SCRIPT["turns"], "b": [{"error": {"code": "refused", "message": "no"}}]}}
WAITS = {"turns": {**SCRIPT["turns"], "b": [{"data": {}, "delay_ms": 60_000}]}}
SORTING = graph([webhook(), step("a"), flow("s", "SORT", sort_field="k")], "t -> a", "a -> s")
TENANT = "acme"


def start(script: Any = SCRIPT, **fields: Any) -> dict[str, Any]:
    return {"definition": {"source": json.dumps(DEFINITION)}, "script": script, "model": "scripted", **fields}


async def events_of(connection: Connection, run: str) -> list[Any]:
    return [item.event for item in await read_run(connection.log, RunRef(TENANT, run))]


async def read_in_pages(log: LogReader, run: str, *, bytes_max: int) -> list[Recorded]:
    """Read a run in pages."""
    found, after = list[Recorded](), 0
    while page := await log.read(RunRef(TENANT, run), after, bytes_max=bytes_max):
        # A page has the first event of the fork, at least one more, and about `bytes_max` bytes.
        assert len(page) <= 2 or sum(len(item.data) for item in page[1:-1]) < 2 * bytes_max
        found += page
        after = page[-1].sequence
    return found


async def fork_run(caller: Caller, run: str, **asked: Any) -> tuple[str, dict[str, Any]]:
    """Fork a run, and wait for the end of the fork; return its id and its result."""
    verdict = await caller.ask("fork", {"run_id": run, **asked})
    assert verdict.get("status") == "accepted", verdict
    return verdict["run_id"], await caller.ask("result", {"run_id": verdict["run_id"], "wait_s": PATIENCE_S})


async def test_a_fork_reads_shared_events_from_its_origin_and_records_the_rest(
    connection: Connection, caller: Caller
) -> None:
    origin = await caller.finished(**start())
    before = await events_of(connection, origin)
    fork, result = await fork_run(caller, origin, **{"from": "b"})
    assert (result["status"], result["output"]) == ("completed", {"found": "c"})
    events = await events_of(connection, fork)
    assert [event.n for event in events] == list(range(1, len(events) + 1))
    numbers = [event.n for event in events]
    for bytes_max in (1, 1_000, 4_000):
        found = await read_in_pages(connection.log, fork, bytes_max=bytes_max)
        assert [item.event.n for item in found] == numbers
    entered = next(event.n for event in before if event.type == "node.enter" and event.path == "b")
    assert [event.payload for event in events[1 : entered - 1]] == [event.payload for event in before[1 : entered - 1]]
    stored = await connection.log.next_sequence(connection.log.subjects.run(RunRef(TENANT, fork)), 1)
    own = [item for item in await connection.log.read(RunRef(TENANT, fork)) if item.sequence >= (stored or 0)]
    assert len(own) == len(events) - (entered - 2)
    assert await events_of(connection, origin) == before
    shown = await caller.ask("show", {"run_id": fork})
    assert (shown["status"], set(shown["nodes"])) == ("completed", {"a", "b", "c"})


async def test_a_replaced_outcome_is_in_the_fork_and_in_its_forks(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start())
    model_result = next(event for event in await events_of(connection, origin) if event.type == "model.result")
    outcome = {"data": {"found": "something else"}}
    fork, result = await fork_run(caller, origin, at=model_result.n, outcome=outcome)
    assert result["results"]["a"]["data"] == {"found": "something else"}
    events = await events_of(connection, fork)
    check_replay(language, RunRef(TENANT, fork), events)
    page = (await caller.ask("events", {"run_id": fork, "limit": 1_000}))["events"]
    assert {one["event"]["run"] for one in page} == {fork}
    assert page[model_result.n - 1]["event"]["payload"]["data"] == {"found": "something else"}
    # A fork of the fork has the replaced outcome too.
    again, result = await fork_run(caller, fork, **{"from": "c"})
    assert result["results"]["a"]["data"] == {"found": "something else"}
    events = await events_of(connection, again)
    assert [event.n for event in events] == list(range(1, len(events) + 1))
    check_replay(language, RunRef(TENANT, again), events)


async def test_a_fork_at_the_failure_repeats_only_what_failed(connection: Connection, caller: Caller) -> None:
    origin = await caller.start(**start(FAILS))
    assert (await caller.ask("result", {"run_id": origin, "wait_s": PATIENCE_S}))["status"] == "failed"
    fork, result = await fork_run(caller, origin, failure=True, start={"script": SCRIPT})
    assert result["status"] == "completed"
    # Node `a` has its recorded answer; only the models of `b` and `c` are called.
    own = [event for event in await events_of(connection, fork) if event.epoch > 1]
    assert [event.path for event in own if event.type == "model.result"] == ["b", "c"]
    assert (await caller.refused("fork", {"run_id": fork, "failure": True}))["code"] == "fork.nowhere"


async def test_the_same_start_can_be_repeated_under_another_id(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start(input={"x": 1}))
    fork, result = await fork_run(caller, origin, again=True, start={"run_id": "again"})
    assert (fork, result["status"]) == ("again", "completed")
    first, again = [(await events_of(connection, run))[0] for run in (origin, "again")]
    starts = [json.loads(bytes(event.payload)) for event in (first, again)]
    assert starts[1]["start"]["input"] == {"x": 1}
    assert starts[1]["definition"] == starts[0]["definition"]
    assert "forked_from" not in starts[1]


async def test_a_fork_has_the_rules_of_its_origin(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"definition": {"source": json.dumps(SORTING)}, "script": None, "model": None}
    with monkeypatch.context() as earlier:
        earlier.setattr(GRAPHS, "rules", 0)
        origin = await caller.finished(input={"body": [{"k": 2}, {"k": 1}]}, **fields)
    fork, result = await fork_run(caller, origin, **{"from": "s"}, start={"options": {"user_id": "ada"}})
    assert result["status"] == "completed"
    accepted = json.loads(bytes((await events_of(connection, fork))[0].payload))
    [replaced] = accepted["forked_from"]["replaced"].values()
    assert (replaced["options"]["trigger"]["user_id"], replaced["options"]["rules"]) == ("ada", 0)
    check_replay(language, RunRef(TENANT, fork), await events_of(connection, fork))


async def _events_to_model_call(feed: AsyncIterator[Recorded], path: str) -> AsyncIterator[Recorded]:
    """Events up to the first model call of a node."""
    async for recorded in feed:
        yield recorded
        if recorded.event.path == path and recorded.event.type == "model.call":
            return


async def test_an_archive_of_a_fork_includes_its_origins(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    origin = await caller.finished(**start())
    fork, _ = await fork_run(caller, origin, **{"from": "b"})
    second, _ = await fork_run(caller, fork, **{"from": "c"})
    before = {run: [event.payload for event in await events_of(connection, run)] for run in (origin, fork, second)}
    file = tmp_path / "forks.callboard"
    await archive_runs(connection.log, TENANT, [second], file, children=False, progress=lambda _more: None)
    archive = Archive(file)
    assert archive.run(None).run == second
    from_file = await read_run(ArchivedLog(archive), RunRef(TENANT, second))
    assert [item.event.payload for item in from_file] == before[second]
    for log in (ArchivedLog(archive), connection.log):
        assert [item.event.payload for item in await read_in_pages(log, second, bytes_max=1)] == before[second]
    found = await import_runs(connection.log, "other", archive, [archive.run(second)], lambda _more: None)
    assert [one.run for one in found] == [origin, fork, second]
    await import_as(connection.log, "third", archive, archive.run(second), "another")
    for ref in (RunRef("other", second), RunRef("third", "another")):
        items = await read_run(connection.log, ref)
        assert [item.event.payload for item in items] == before[second]
        assert sorted(item.sequence for item in items[1:]) == [item.sequence for item in items[1:]]
        check_replay(language, ref, [item.event for item in items])
    again = await import_runs(connection.log, "other", archive, archive.runs, lambda _more: None)
    assert {one.verdict for one in again} == {"there already"}


async def test_an_active_run_can_be_forked(connection: Connection, caller: Caller) -> None:
    origin = await caller.start(**start(WAITS))
    async with connection.log.follow(connection.log.subjects.events(TENANT, origin), 0) as feed:
        asked = [one.event.n async for one in _events_to_model_call(feed, "b")]
    at = asked[-1] - 1
    with anyio.fail_after(PATIENCE_S):
        _, result = await fork_run(caller, origin, at=at, start={"script": SCRIPT})
    assert result["status"] == "completed"
    assert (await caller.ask("show", {"run_id": origin}))["status"] == "running"


async def test_a_fork_with_another_model_asks_it_from_its_first_node(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start())
    fork, result = await fork_run(caller, origin, **{"from": "b"}, start={"model": f"recorded:{origin}"})
    assert result["status"] == "completed"
    calls = [json.loads(bytes(e.payload)) for e in await events_of(connection, fork) if e.type == "model.call"]
    assert [call["model"] for call in calls] == ["scripted", f"recorded:{origin}", f"recorded:{origin}"]
    check_replay(language, RunRef(TENANT, fork), await events_of(connection, fork))


async def test_a_fork_that_contradicts_shared_events_is_refused(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start())
    end = (await events_of(connection, origin))[-1].n
    other: dict[str, Any] = json.loads(json.dumps(DEFINITION))
    other["nodes"]["a"]["instruction"] = "Do something else."
    changed = {"definition": {"source": json.dumps(other)}}
    error = await caller.refused("fork", {"run_id": origin, "from": "b", "start": changed})
    assert [(problem["code"], problem["where"]) for problem in error["problems"]] == [("fork.diverges", "fork")]
    assert "Do something else." in error["problems"][0]["message"]
    # A node after the shared events may differ.
    other["nodes"]["a"]["instruction"], other["nodes"]["c"]["instruction"] = "Do a.", "Do c otherwise."
    changed = {"definition": {"source": json.dumps(other)}}
    fork, result = await fork_run(caller, origin, **{"from": "b"}, start=changed)
    assert result["status"] == "completed"
    events = await events_of(connection, fork)
    asked = [bytes(event.payload) for event in events if event.type == "model.call"]
    assert b"Do c otherwise." in asked[-1]
    check_replay(language, RunRef(TENANT, fork), events)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"at": end}, "fork.no_event"),
        ({"at": 10_000}, "fork.no_event"),
        ({"at": 2, "outcome": {"output": 1}}, "fork.no_outcome"),
    ]
    for asked, code in refusals:
        error = await caller.refused("fork", {"run_id": origin, **asked})
        assert [problem["code"] for problem in error["problems"]] == [code]
    model_result = next(e for e in await events_of(connection, origin) if e.type == "model.result")
    for outcome in ({"tool_calls": 7}, {"nothing": 1}):
        error = await caller.refused("fork", {"run_id": origin, "at": model_result.n, "outcome": outcome})
        assert [problem["code"] for problem in error["problems"]] == ["fork.outcome"]
    # Malformed forks are refused.
    for odd in ({"options": "x"}, {"options": [1]}, {"run_id": 7}, {"input": {}, "breakpoints": 3}):
        message = {"fork": {"run": origin, "at": 3}, **odd}
        assert (await caller.refused("start", message))["problems"]
    for fork in ("x", {"run": origin}, {"run": origin, "at": "3"}, {"run": 7, "at": 3}):
        assert [one["code"] for one in (await caller.refused("start", {"fork": fork}))["problems"]] == ["start.fork"]
    for asked in ({"from": "z"}, {}, {"at": 3, "again": True}):
        assert (await caller.refused("fork", {"run_id": origin, **asked}))["code"] == "fork.nowhere"
    for asked in ({"at": 3}, {"failure": True}):
        assert "unknown" in str(await caller.refused("fork", {"run_id": "nobody", **asked}))


async def test_an_open_question_is_open_in_the_fork_too(connection: Connection, caller: Caller) -> None:
    source = '# Ask\n\n## STEP 1: Who\n\n@elicit(input, "Who?")\n'
    origin = await caller.start(definition={"language": "playbook", "source": source}, script=None, model=None)
    [asked] = await _wait_for_questions(caller, origin)
    fork = (await caller.ask("fork", {"run_id": origin, "at": asked["n"]}))["run_id"]
    [asked] = await _wait_for_questions(caller, fork)
    assert asked["run"] == fork
    for run in (fork, origin):
        body = {"interaction": asked["key"], "user_response": run}
        assert (await caller.ask("tell", {"run_id": run, "verb": "answer", "body": body}))["status"] == "accepted"
        assert (await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S}))["status"] == "completed"
    assert (await caller.ask("questions", {}))["questions"] == []
    rows = {row["run"]: row for row in (await caller.ask("runs", {}))["runs"]}
    assert rows[fork]["origin"] == origin
    assert rows[fork]["duration_s"] >= 0


async def _wait_for_questions(caller: Caller, run: str) -> list[dict[str, Any]]:
    """Wait until a run has open questions; return them."""
    deadline = anyio.current_time() + PATIENCE_S
    while not (found := (await caller.ask("questions", {"run_id": run}))["questions"]):
        assert anyio.current_time() < deadline, "nothing is asked"
    return found


async def test_a_comparison_of_a_fork_begins_after_the_shared_events(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start())
    before = await events_of(connection, origin)
    model_result = next(event for event in before if event.type == "model.result" and event.path == "b")
    fork, _ = await fork_run(
        caller, origin, at=model_result.n, outcome={"data": {"found": "else"}, "usage": {"input_tokens": 7}}
    )
    after = await events_of(connection, fork)
    found = compare_logs(before, after)
    assert found.shared is not None
    assert found.shared.n == model_result.n
    (replaced,) = found.shared.replaced
    assert (replaced.n, replaced.path) == (model_result.n, "b")
    assert Difference("/data/found", "b", "else") in replaced.payload
    # The shared events have all of `a`, and `b` except its end.
    assert found.path == Pair(["b", "c"], ["b", "c"])
    assert found.models == {}
    assert [(node.path, node.result) for node in found.nodes] == [("b", [Difference("/data/found", "b", "else")])]
    assert found.measures.run.right.input_tokens == 0
    behind = [(log[-1].time - log[model_result.n].time).total_seconds() for log in (before, after)]
    assert [found.measures.run.left.duration_s, found.measures.run.right.duration_s] == behind
    assert found.sight is not None
    assert found.sight.path == "c"
    (seen,) = found.sight.request
    assert seen.pointer.startswith("/messages/")
    assert '"b"' in str(seen.left)
    assert '"else"' in str(seen.right)
    # Two forks of one run, and a fork of a fork, share events too.
    second, _ = await fork_run(caller, fork, **{"from": "c"})
    third, _ = await fork_run(caller, origin, **{"from": "b"})
    sides = [await events_of(connection, run) for run in (second, third)]
    entered = next(event.n for event in before if event.type == "node.enter" and event.path == "b")
    for left, right, n in ((before, sides[0], model_result.n), (sides[1], sides[0], entered - 1)):
        common = compare_logs(left, right).shared
        assert common is not None
        assert common.n == n
    same = compare_logs(before, sides[1])
    assert same.equal
    assert same.sight is None
    assert compare_logs(before, before).shared is None


async def test_a_fork_can_be_read_in_pages_of_any_length(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start())
    fork, _ = await fork_run(caller, origin, **{"from": "b"})
    again, _ = await fork_run(caller, fork, **{"from": "c"})
    for run in (fork, again):
        numbers = [event.n for event in await events_of(connection, run)]
        for limit in range(2, len(numbers) + 2):
            found, after, more = list[int](), 0, True
            while more:
                page = await caller.ask("events", {"run_id": run, "limit": limit, "after": after})
                found += [one["event"]["n"] for one in page["events"]]
                after, more = page["after"], page.get("more", False)
            assert found == numbers, limit


async def test_the_first_event_of_a_fork_has_the_earliest_time(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start())
    fork, _ = await fork_run(caller, origin, **{"from": "b"})
    ref = RunRef(TENANT, fork)
    whole = await connection.log.read(ref)
    times = [item.event.time for item in whole]
    assert times == sorted(times)
    assert [decode_event(item.public_form) for item in whole] == [item.event for item in whole]
    [alone] = await connection.log.read(ref, limit=1)
    assert alone.event == whole[0].event
    model_result = (await caller.ask("events", {"run_id": fork}))["events"]
    assert [event["time"] for event in (one["event"] for one in model_result)] == sorted(
        one["event"]["time"] for one in model_result
    )


async def test_runs_with_forged_origins_do_not_break_lists(connection: Connection, caller: Caller) -> None:
    source = '# Ask\n\n## STEP 1: Who\n\n@elicit(input, "Who?")\n'
    asking = await caller.start(definition={"language": "playbook", "source": source}, script=None, model=None)
    await _wait_for_questions(caller, asking)
    (first, *_) = await events_of(connection, asking)
    born = json.loads(bytes(first.payload))
    # A client that may publish can store invalid origins, such as a name with a wildcard or a run with fewer events.
    for number, origin in enumerate(
        ["*", ">", "a b", "", "x.y", "é" * 300, "nobody", asking, "hostile-8", "hostile-10", "hostile-9"]
    ):
        run = f"hostile-{number}"
        payload = {**born, "forked_from": {"run": origin, "n": 1_000}}
        for n, event_type, model_result in (
            (1, "run.accepted", payload),
            (1_001, "run.claimed", {"worker": "w", "epoch": 1}),
        ):
            event = {**json.loads(encode_event(first)), "run": run, "n": n, "type": event_type, "payload": model_result}
            subject = connection.log.subjects.event(RunRef(TENANT, run), "ask", event_type)
            await connection.nc.jetstream().publish(subject, json.dumps(event).encode())
    rows = {row["run"]: row for row in (await caller.ask("runs", {}))["runs"]}
    assert len(rows) == 12
    assert [one["run"] for one in (await caller.ask("questions", {}))["questions"]] == [asking]
    for status in ("running", "waiting:human"):
        found = (await caller.ask("runs", {"where": f"status={status}"}))["runs"]
        assert (asking in [row["run"] for row in found]) == (status == "waiting:human")
