"""The time at which the server stored a command decides whether it met a deadline, with or without an active worker."""

import datetime as dt
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.subjects import RunRef
from callboard.languages.language import Ask, End, Expired, Stage
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.run.activation import Command, ReceivedCommands
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import VIRTUAL
from tests.support.flow_providers import ours
from tests.support.run_harness import RunHarness, end_of, types
from tests.support.sample_interpreters import after
from tests.support.simulation import harness_for

PATIENCE_S = 30.0
ASK = "a#1.1!ask"
SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"


def payloads(events: list[Event], kind: type[Any]) -> list[Any]:
    return [ev.payload_of(event) for event in events if ev.TYPES[event.type] is kind]


# -- one activation, by virtual time -----------------------------------------------------------------------------------


async def ask_twice(stage: Stage) -> End:
    """Asks two questions, each with a deadline of ten seconds."""
    node = stage.enter("a")
    answers: list[Any] = []
    for slot in ("ask", "next"):
        due = after(stage.now(), 10)
        async with node.question(slot, Ask(f"{slot}?", timeout_at=due)) as question:
            answered = await stage.within(due, question.answer(), node=node, slot=f"{slot}.bound")
            late = isinstance(answered, Expired)
            question.close("timeout" if late else "answered", None if late else 1, None)
        answers.append("late" if isinstance(answered, Expired) else answered.value.user_response)
    node.exit("ok")
    return End("completed", answers)


class LateArrivals:
    """`callboard.runtime.run.activation.Arrivals` with one command that is not delivered while ``stored`` is set."""

    def __init__(self, answer_stored_at: dt.datetime) -> None:
        self.stored: dt.datetime | None = answer_stored_at
        self.looks = 0

    async def earliest(self, ref: RunRef, heard: ReceivedCommands) -> dt.datetime | None:
        self.looks += 1
        return self.stored


def answer_stored_at(harness: RunHarness, at: dt.datetime, **body: Any) -> Command:
    return msgspec.structs.replace(harness.command("answer", **body), stored=at)


async def start_asking_run(harness: RunHarness) -> tuple[RunRef, dt.datetime]:
    """Start a run that asks; return it and the deadline of its question."""
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    [question] = payloads(await harness.events(ref), ev.HumanAsked)
    assert question.timeout_at is not None
    return ref, question.timeout_at


@pytest.mark.parametrize("anyio_backend", [("asyncio", VIRTUAL)])
class TestVirtualTime:
    async def test_an_answer_stored_before_the_deadline_counts_if_it_arrives_later(self) -> None:
        harness = harness_for(ask_twice)
        ref, due = await start_asking_run(harness)
        await anyio.sleep(11)
        in_time = answer_stored_at(harness, due - dt.timedelta(milliseconds=1), interaction=ASK, user_response="yes")
        late = answer_stored_at(harness, due + dt.timedelta(milliseconds=1), interaction=ASK, user_response="no")
        assert await harness.perform(ref, late, in_time) == "parked"
        events = await harness.events(ref)
        assert [one.user_response for one in payloads(events, ev.HumanAnswered)] == ["yes"]
        assert [one.code for one in payloads(events, ev.CommandRefused)] == ["answer.late"]
        await anyio.sleep(11)
        await harness.perform(ref)
        events = await harness.events(ref)
        check_log(events)
        check_replay(harness.language, ref, events)

    async def test_an_answer_stored_after_the_deadline_is_refused_if_no_worker_was_active(self) -> None:
        harness = harness_for(ask_twice)
        ref, due = await start_asking_run(harness)
        await anyio.sleep(11)
        # An answer without an interaction is not for a question that was asked later.
        unnamed = answer_stored_at(harness, due + dt.timedelta(seconds=1), user_response="yes")
        assert await harness.perform(ref, unnamed) == "parked"
        events = await harness.events(ref)
        assert payloads(events, ev.HumanAnswered) == []
        assert [one.code for one in payloads(events, ev.CommandRefused)] == ["answer.late"]
        assert len(payloads(events, ev.HumanAsked)) == 2
        await anyio.sleep(11)
        await harness.perform(ref)
        check_replay(harness.language, ref, await harness.events(ref))

    async def test_an_answer_without_an_interaction_is_for_the_question_open_when_it_was_stored(self) -> None:
        harness = harness_for(ask_twice)
        ref, due = await start_asking_run(harness)
        await anyio.sleep(11)
        assert await harness.perform(ref) == "parked"
        before = answer_stored_at(harness, due - dt.timedelta(seconds=1), user_response="yes")
        assert await harness.perform(ref, before) == "parked"
        [refused] = payloads(await harness.events(ref), ev.CommandRefused)
        assert refused.code == "answer.late"

    async def test_a_deadline_waits_for_an_undelivered_command_stored_before_it(self) -> None:
        harness = harness_for(ask_twice)
        ref, due = await start_asking_run(harness)
        await anyio.sleep(11)
        in_time = due - dt.timedelta(seconds=1)
        arrivals = harness.arrivals = LateArrivals(in_time)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.perform, ref)
            await anyio.sleep(5)
            assert ev.TimerFired.type not in types(await harness.events(ref))
            assert harness.acting is not None
            arrivals.stored = None
            harness.acting.tell(answer_stored_at(harness, in_time, interaction=ASK, user_response="yes"))
        events = await harness.events(ref)
        assert [one.user_response for one in payloads(events, ev.HumanAnswered)] == ["yes"]
        assert ev.TimerFired.type not in types(events)

    async def test_a_deadline_waits_neither_for_later_commands_nor_without_bound(self) -> None:
        harness = harness_for(ask_twice)
        ref, due = await start_asking_run(harness)
        await anyio.sleep(11)
        for at in (due + dt.timedelta(seconds=1), due - dt.timedelta(seconds=1)):
            harness.arrivals = LateArrivals(at)
            assert await harness.perform(ref) in ("parked", "ended")
            await anyio.sleep(11)
        assert end_of(await harness.events(ref)).output == ["late", "late"]

    async def test_a_cancellation_that_was_stored_before_a_deadline_comes_first(self) -> None:
        for seconds, expected in ((-1, ["cancel.requested"]), (1, ["timer.fired", "cancel.requested"])):
            harness = harness_for(ask_twice)
            ref, due = await start_asking_run(harness)
            await anyio.sleep(11)
            at = due + dt.timedelta(seconds=seconds)
            await harness.perform(ref, msgspec.structs.replace(harness.command("cancel"), stored=at))
            found = [one for one in types(await harness.events(ref)) if one in ("timer.fired", "cancel.requested")]
            assert found == expected

    async def test_a_deadline_has_the_time_of_the_server_if_the_clock_of_the_worker_lags(self) -> None:
        harness = harness_for(ask_twice)
        ref, due = await start_asking_run(harness)
        at = due + dt.timedelta(seconds=1)
        await harness.perform(ref, msgspec.structs.replace(harness.command("cancel"), stored=at))
        [fired] = [event for event in await harness.events(ref) if event.type == ev.TimerFired.type]
        assert fired.time == due


# -- a server, and workers that start and stop -------------------------------------------------------------------------


def call(provider: str, **arguments: Any) -> dict[str, Any]:
    return {
        "action": "Call",
        "call": {"provider": ours(provider), "with": arguments},
        "assign": {"a": "{{ step.result.value }}"},
        "catch": [{"match": {"codes": ["*"]}, "assign": {"a": "late"}, "next": "end"}],
        "next": "end",
    }


def flow(provider: str, **arguments: Any) -> str:
    end = {"action": "Return", "value": "{{ vars.a }}"}
    return json.dumps(
        {"$schema": SCHEMA, "entrypoint": "one", "steps": {"one": call(provider, **arguments), "end": end}}
    )


PLAYBOOK = '# Ask\n\n## STEP 1: Ask\n\n@elicit(input, "Well?")\n@output(said)\n'
PAUSED = "# Stop\n\n## STEP 1: Say\n\nSay hello.\n"
GRAPH = json.dumps(
    {
        "metadata": {"id": "g", "name": "g", "created_by": "ada"},
        "nodes": [
            {"id": "go", "name": "go", "type": "TRIGGER", "subtype": "MANUAL"},
            {
                "id": "ask",
                "name": "ask",
                "type": "HUMAN_IN_THE_LOOP",
                "subtype": "IN_APP_APPROVAL",
                "configurations": {"message": "Well?", "response_timeout": 4, "timeout_action": "continue"},
            },
        ],
        "connections": [{"id": "c", "from_node": "go", "to_node": "ask"}],
        "triggers": ["go"],
    }
)
SCRIPT = {"default": {"text": "hello"}}

STARTS: dict[str, dict[str, Any]] = {
    "human": {"definition": {"source": flow("human", question="Well?", timeout="PT4S")}},
    "signal": {"definition": {"source": flow("signal", name="paid", timeout="PT4S")}},
    "playbook": {"definition": {"source": PLAYBOOK, "language": "playbook"}, "options": {"expires_after": 4}},
    "breakpoint": {
        "definition": {"source": PAUSED, "language": "playbook"},
        "options": {"expires_after": 4},
        "breakpoints": ["1"],
    },
    "graph": {"definition": {"source": GRAPH}},
}

TELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "human": ("answer", {"user_response": "yes"}),
    "signal": ("signal", {"name": "paid", "data": "yes"}),
    "playbook": ("answer", {"user_response": "yes"}),
    "breakpoint": ("resume", {}),
    "graph": ("answer", {"user_response": "approve"}),
}

LATE_CODES = {
    "human": "answer.late",
    "signal": None,
    "playbook": "answer.late",
    "breakpoint": "resume.not_paused",
    "graph": "answer.late",
}
"""The codes that refuse late commands; a late signal is recorded."""


@pytest.fixture(scope="module")
async def connection(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    home: Path = tmp_path_factory.mktemp("deadlines")
    flags: dict[str, Any] = {"data_dir": home, "sync": "1s", "tenant": "acme", "partitions": 2, "allow_scripts": True}
    flags["park_linger_s"] = 0.0
    async with open_connection(load(flags, env={}, cwd=home), "test") as opened:
        yield opened


async def wait_for_deadline(connection: Connection, run: str) -> dt.datetime:
    """Wait until a run is parked; return its deadline."""
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run) as feed:
            async for item in feed:
                parked = ev.payload_of(item.event)
                if isinstance(parked, ev.RunParked):
                    assert parked.deadline is not None
                    return parked.deadline
    raise AssertionError(f"{run} does not wait")


async def publish_tell(connection: Connection, run: str, verb: str, body: dict[str, Any]) -> None:
    """Publish a command without waiting for its verdict."""
    subject = connection.log.subjects.tell(RunRef("acme", run), verb)
    await connection.log.publish(OutgoingMessage(subject, msgspec.json.encode(body), {}))


async def start_runs(connection: Connection, kinds: list[str], suffix: str) -> dict[str, dt.datetime]:
    """Start a run of each kind, stop the worker, and return the deadlines."""
    async with open_worker(connection, env={}):
        for kind in kinds:
            start = {**STARTS[kind], "run_id": f"{kind}-{suffix}", "model": "scripted", "script": SCRIPT}
            assert (await connection.client.start(start)).status == "accepted"
        return {kind: await wait_for_deadline(connection, f"{kind}-{suffix}") for kind in kinds}


async def wait_for_end(connection: Connection, run: str) -> tuple[ev.RunEnd, list[Event]]:
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run) as feed:
            async for item in feed:
                if item.event.type == ev.RunEnd.type:
                    break
    events = await connection.client.events(run)
    return end_of(events), events


@pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="module")
class TestWorkersStartAndStop:
    async def test_the_outcome_is_the_same_with_and_without_a_worker_at_the_deadline(
        self, connection: Connection
    ) -> None:
        kinds = list(STARTS)
        in_time = await start_runs(connection, kinds, "early")
        for kind in kinds:
            await publish_tell(connection, f"{kind}-early", *TELLS[kind])
        late = await start_runs(connection, kinds, "late")
        last = max([*in_time.values(), *late.values()])
        await anyio.sleep((last - dt.datetime.now(dt.UTC)).total_seconds() + 0.1)
        for kind in kinds:
            await publish_tell(connection, f"{kind}-late", *TELLS[kind])
        async with open_worker(connection, env={}):
            for kind in kinds:
                _, events = await wait_for_end(connection, f"{kind}-early")
                assert ev.TimerFired.type not in types(events), kind
                assert payloads(events, ev.CommandRefused) == [], kind
                ending, events = await wait_for_end(connection, f"{kind}-late")
                assert ev.TimerFired.type in types(events), kind
                assert [one.code for one in payloads(events, ev.CommandRefused)] == [LATE_CODES[kind]] * bool(
                    LATE_CODES[kind]
                )
                expected = "expired" if kind in ("playbook", "breakpoint") else "completed"
                assert ending.status == expected, kind
            assert (await wait_for_end(connection, "human-early"))[0].output == "yes"
            assert (await wait_for_end(connection, "human-late"))[0].output == "late"
