"""A repeated command or fork with the same id acts once and gets the first verdict, over every interface."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import REPLY_HEADER
from callboard.bus.events import Event
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.purge import PurgeMark, finish, last_fork, mark_gone
from callboard.bus.subjects import RunRef
from callboard.runtime.admission.command_routing import find_command_of_id
from callboard.runtime.client.connection import Connection
from callboard.service.worker.bootstrap import open_worker
from tests.support.flow_providers import ours
from tests.support.http_application import PATIENCE_S, served

SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"

Deployment = tuple[httpx2.AsyncClient, Connection]


def call(provider: str, next: str, **arguments: Any) -> dict[str, Any]:
    calls = {"provider": ours(provider), "with": arguments}
    assign = {next: "{{ step.result.value }}"}
    return {"action": "Call", "call": calls, "assign": assign, "next": next}


FLOW = json.dumps(
    {
        "$schema": SCHEMA,
        "entrypoint": "a",
        "steps": {
            "a": call("signal", "b", name="paid"),
            "b": call("human", "c", question="Ship?", type="confirm"),
            "c": call("human", "d", question="Delete the account?", type="confirm"),
            "d": call("signal", "e", name="paid"),
            "e": {"action": "Return", "value": "{{ [vars.b, vars.c, vars.d, vars.e] }}"},
        },
    }
)


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async with served(tmp_path_factory.mktemp("again"), park_linger_s=0.0) as opened:
        yield opened


async def start_run(deployment: Deployment, run: str) -> str:
    client, _ = deployment
    started = await client.post("/runs", json={"definition": {"source": FLOW}, "run_id": run})
    assert started.status_code == 202, started.text
    return run


async def wait_for_events(deployment: Deployment, run: str, *types: str) -> list[Event]:
    """Wait until a run has as many events of these types as types are given; return its events."""
    with anyio.fail_after(PATIENCE_S):
        async with deployment[1].client.follow(run) as feed:
            found: list[str] = []
            async for item in feed:
                found += [item.event.type] if item.event.type in types else []
                if len(found) == len(types):
                    break
    return await deployment[1].client.events(run)


def count(events: list[Event], kind: type[ev.Payload]) -> int:
    return sum(1 for event in events if ev.TYPES[event.type] is kind)


async def post(deployment: Deployment, run: str, verb: str, body: Any, key: str = "") -> dict[str, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    answered = await deployment[0].post(f"/runs/{run}/{verb}", json=body, headers=headers)
    return {"http": answered.status_code, **answered.json()}


async def test_a_repeated_tell_acts_once_and_gets_the_first_verdict(deployment: Deployment) -> None:
    run = await start_run(deployment, "once")
    first = await post(deployment, run, "signal", {"name": "paid", "data": 5}, "s-1")
    again = await post(deployment, run, "signal", {"name": "paid", "data": 5}, "s-1")
    assert again == {**first, "duplicate": True}
    await wait_for_events(deployment, run, ev.HumanAsked.type)
    yes = {"user_response": "yes"}
    first = await post(deployment, run, "answer", {**yes, "id": "a-1"})
    await wait_for_events(deployment, run, ev.HumanAsked.type, ev.HumanAsked.type)
    again = await post(deployment, run, "answer", {**yes, "id": "a-1"})
    assert again == {**first, "duplicate": True}
    # The second question is still open.
    events = await deployment[1].client.events(run)
    assert (count(events, ev.HumanAnswered), count(events, ev.SignalReceived)) == (1, 1)
    await post(deployment, run, "answer", {"user_response": "no"}, "a-2")
    await post(deployment, run, "signal", {"name": "paid", "data": 6}, "s-2")
    events = await wait_for_events(deployment, run, ev.RunEnd.type)
    ended = ev.payload_of(events[-1])
    assert isinstance(ended, ev.RunEnd)
    assert ended.output == [5, True, False, 6]
    # The id is recognised after the end of the run too.
    assert await post(deployment, run, "answer", {**yes, "id": "a-1"}) == again
    assert (await post(deployment, run, "answer", {**yes, "id": "a-3"}))["http"] != 202


async def test_a_repeated_tell_that_was_refused_gets_the_same_refusal(deployment: Deployment) -> None:
    run = await start_run(deployment, "refused")
    first = await post(deployment, run, "answer", {"user_response": "yes"}, "early")
    assert first["error"]["code"] == "answer.no_question"
    await post(deployment, run, "signal", {"name": "paid"})
    await wait_for_events(deployment, run, ev.HumanAsked.type)
    assert await post(deployment, run, "answer", {"user_response": "yes"}, "early") == first
    assert count(await deployment[1].client.events(run), ev.HumanAnswered) == 0


async def test_a_different_tell_under_a_used_id_does_nothing_and_gets_a_warning(deployment: Deployment) -> None:
    run = await start_run(deployment, "differs")
    await post(deployment, run, "signal", {"name": "other", "data": 1}, "k")
    other = await post(deployment, run, "signal", {"name": "other", "data": 2}, "k")
    assert [one["code"] for one in other["warnings"]] == ["tell.differs"]
    # An id belongs to one verb of one run.
    assert "duplicate" not in await post(deployment, run, "pause", {}, "k")
    assert "duplicate" not in await post(
        deployment, await start_run(deployment, "differs-2"), "signal", {"name": "other"}, "k"
    )


async def test_a_repeated_resume_does_not_pass_the_next_breakpoint(deployment: Deployment) -> None:
    client, _ = deployment
    source = "# Two\n\n## STEP 1: One\n\nSay one.\n\n## STEP 2: Two\n\nSay two.\n"
    start = {
        "definition": {"source": source, "language": "playbook"},
        "breakpoints": ["1", "2"],
        "model": "scripted",
        "script": {"default": {"text": "x"}},
    }
    assert (await client.post("/runs", json={**start, "run_id": "stops"})).status_code == 202
    await wait_for_events(deployment, "stops", ev.RunPaused.type)
    first = await post(deployment, "stops", "resume", {}, "go")
    await wait_for_events(deployment, "stops", ev.RunPaused.type, ev.RunPaused.type)
    assert await post(deployment, "stops", "resume", {}, "go") == {**first, "duplicate": True}
    assert count(await deployment[1].client.events("stops"), ev.RunResumed) == 1


@pytest.mark.parametrize("place", [{"at": 3}, {"again": True}, {"from": "main/a"}])
async def test_a_repeated_fork_is_the_same_run(deployment: Deployment, place: dict[str, Any]) -> None:
    run = await start_run(deployment, f"origin-{next(iter(place))}")
    await wait_for_events(deployment, run, ev.SignalAwaited.type)
    key = f"fork-{next(iter(place))}"
    first, again = [await post(deployment, run, "fork", place, key) for _ in range(2)]
    assert (first["run_id"], again["run_id"]) == (key, key)
    assert again["duplicate"]


async def test_published_tells_are_deduplicated_without_the_window_of_the_server(deployment: Deployment) -> None:
    """The server recognises an id for two minutes. A stored note recognises it afterwards."""
    _, connection = deployment
    run = await start_run(deployment, "bare")
    log, ref = connection.log, RunRef("acme", run)
    body = json.dumps({"name": "paid", "data": 1, "id": "n-1"}).encode()

    async def say(reply: str) -> None:
        await log.publish(OutgoingMessage(log.subjects.tell(ref, "signal"), body, {REPLY_HEADER: reply}))

    inbox = log.nc.new_inbox()
    subscription = await log.nc.subscribe(inbox)
    async with open_worker(connection, env={}):
        with anyio.fail_after(PATIENCE_S):
            verdicts = []
            for _ in range(6):
                await say(inbox)
                verdicts.append(json.loads((await subscription.next_msg(PATIENCE_S)).data))
    await subscription.unsubscribe()
    assert {verdict["cause"] for verdict in verdicts} == {verdicts[0]["cause"]}
    assert [verdict.get("duplicate", False) for verdict in verdicts] == [False] + [True] * 5
    await wait_for_events(deployment, run, ev.HumanAsked.type)
    assert count(await connection.client.events(run), ev.SignalReceived) == 1
    # The command is found by a stored note, not by the deduplication window of the server.
    found = await find_command_of_id(log, ref, "signal", "n-1")
    assert found is not None
    command = await log.message(found.cause)
    assert command is not None
    assert "Nats-Msg-Id" not in command.headers


async def test_a_forged_note_does_not_suppress_a_tell(deployment: Deployment) -> None:
    _, connection = deployment
    run = await start_run(deployment, "forged")
    log, ref = connection.log, RunRef("acme", run)
    await log.publish(OutgoingMessage(log.subjects.told_subject(ref, "signal", "f-1"), b"{}", {}))
    verdict = await post(deployment, run, "signal", {"name": "paid", "data": 1}, "f-1")
    assert verdict["status"] == "accepted"
    await wait_for_events(deployment, run, ev.HumanAsked.type)


async def test_a_purge_removes_the_notes_of_ids(deployment: Deployment) -> None:
    _, connection = deployment
    log, ref = connection.log, RunRef("acme", "bare")
    await post(deployment, "bare", "kill", {}, "end")
    await wait_for_events(deployment, "bare", ev.RunEnd.type)
    await mark_gone(log, ref, PurgeMark(), await last_fork(log, ref))
    await finish(log, ref)
    assert await log.last_message(f"{log.subjects.tell(ref, 'signal')}.>") is None
    assert await log.last_message(log.subjects.told_subject(ref, "kill", "end")) is None
