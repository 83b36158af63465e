"""The server's time of a command decides whether it comes before a deadline, with or without a worker then."""

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


async def approves(stage: Stage) -> End:
    """Asks for ten seconds, then asks something else for as long."""
    node = stage.enter("a")
    said: list[Any] = []
    for slot in ("ask", "next"):
        due = after(stage.now(), 10)
        async with node.question(slot, Ask(f"{slot}?", timeout_at=due)) as question:
            answered = await stage.within(due, question.answer(), node=node, slot=f"{slot}.bound")
            late = isinstance(answered, Expired)
            question.close("timeout" if late else "answered", None if late else 1, None)
        said.append("late" if isinstance(answered, Expired) else answered.value.user_response)
    node.exit("ok")
    return End("completed", said)


class Late:
    """`callboard.runtime.run.activation.Arrivals` of a tell that is on its way until it is let through."""

    def __init__(self, stored: dt.datetime) -> None:
        self.stored: dt.datetime | None = stored
        self.looks = 0

    async def earliest(self, ref: RunRef, heard: ReceivedCommands) -> dt.datetime | None:
        self.looks += 1
        return self.stored


def stored(harness: RunHarness, at: dt.datetime, **body: Any) -> Command:
    return msgspec.structs.replace(harness.command("answer", **body), stored=at)


async def asked(harness: RunHarness) -> tuple[RunRef, dt.datetime]:
    """A run that asks, and until when."""
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "parked"
    [question] = payloads(await harness.events(ref), ev.HumanAsked)
    assert question.timeout_at is not None
    return ref, question.timeout_at


@pytest.mark.parametrize("anyio_backend", [("asyncio", VIRTUAL)])
class TestVirtualTime:
    async def test_what_was_stored_in_time_counts_although_it_comes_after_the_deadline(self) -> None:
        harness = harness_for(approves)
        ref, due = await asked(harness)
        await anyio.sleep(11)
        in_time = stored(harness, due - dt.timedelta(milliseconds=1), interaction=ASK, user_response="yes")
        late = stored(harness, due + dt.timedelta(milliseconds=1), interaction=ASK, user_response="no")
        assert await harness.perform(ref, late, in_time) == "parked"
        events = await harness.events(ref)
        assert [one.user_response for one in payloads(events, ev.HumanAnswered)] == ["yes"]
        assert [one.code for one in payloads(events, ev.CommandRefused)] == ["answer.late"]
        await anyio.sleep(11)
        await harness.perform(ref)
        events = await harness.events(ref)
        check_log(events)
        check_replay(harness.language, ref, events)

    async def test_what_was_stored_late_is_refused_although_nobody_was_there_at_the_deadline(self) -> None:
        harness = harness_for(approves)
        ref, due = await asked(harness)
        await anyio.sleep(11)
        # It names no question: it is for none that was asked later.
        nameless = stored(harness, due + dt.timedelta(seconds=1), user_response="yes")
        assert await harness.perform(ref, nameless) == "parked"
        events = await harness.events(ref)
        assert payloads(events, ev.HumanAnswered) == []
        assert [one.code for one in payloads(events, ev.CommandRefused)] == ["answer.late"]
        assert len(payloads(events, ev.HumanAsked)) == 2
        await anyio.sleep(11)
        await harness.perform(ref)
        check_replay(harness.language, ref, await harness.events(ref))

    async def test_an_answer_without_a_name_is_for_what_was_asked_when_it_was_stored(self) -> None:
        harness = harness_for(approves)
        ref, due = await asked(harness)
        await anyio.sleep(11)
        assert await harness.perform(ref) == "parked"
        before = stored(harness, due - dt.timedelta(seconds=1), user_response="yes")
        assert await harness.perform(ref, before) == "parked"
        [refused] = payloads(await harness.events(ref), ev.CommandRefused)
        assert refused.code == "answer.late"

    async def test_a_deadline_waits_for_what_was_stored_before_it_and_is_on_its_way(self) -> None:
        harness = harness_for(approves)
        ref, due = await asked(harness)
        await anyio.sleep(11)
        in_time = due - dt.timedelta(seconds=1)
        arrivals = harness.arrivals = Late(in_time)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.perform, ref)
            await anyio.sleep(5)
            assert ev.TimerFired.type not in types(await harness.events(ref))
            assert harness.acting is not None
            arrivals.stored = None
            harness.acting.tell(stored(harness, in_time, interaction=ASK, user_response="yes"))
        events = await harness.events(ref)
        assert [one.user_response for one in payloads(events, ev.HumanAnswered)] == ["yes"]
        assert ev.TimerFired.type not in types(events)

    async def test_a_deadline_does_not_wait_for_ever_and_not_for_what_was_stored_later(self) -> None:
        harness = harness_for(approves)
        ref, due = await asked(harness)
        await anyio.sleep(11)
        for at in (due + dt.timedelta(seconds=1), due - dt.timedelta(seconds=1)):
            harness.arrivals = Late(at)
            assert await harness.perform(ref) in ("parked", "ended")
            await anyio.sleep(11)
        assert end_of(await harness.events(ref)).output == ["late", "late"]

    async def test_a_cancellation_that_was_stored_before_a_deadline_comes_first(self) -> None:
        for seconds, expected in ((-1, ["cancel.requested"]), (1, ["timer.fired", "cancel.requested"])):
            harness = harness_for(approves)
            ref, due = await asked(harness)
            await anyio.sleep(11)
            at = due + dt.timedelta(seconds=seconds)
            await harness.perform(ref, msgspec.structs.replace(harness.command("cancel"), stored=at))
            found = [one for one in types(await harness.events(ref)) if one in ("timer.fired", "cancel.requested")]
            assert found == expected

    async def test_the_clock_of_a_deadline_is_that_of_the_server_where_the_worker_is_behind(self) -> None:
        harness = harness_for(approves)
        ref, due = await asked(harness)
        at = due + dt.timedelta(seconds=1)
        await harness.perform(ref, msgspec.structs.replace(harness.command("cancel"), stored=at))
        [fired] = [event for event in await harness.events(ref) if event.type == ev.TimerFired.type]
        assert fired.time == due


# -- a server, and workers that come and go ----------------------------------------------------------------------------


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

LATE = {
    "human": "answer.late",
    "signal": None,
    "playbook": "answer.late",
    "breakpoint": "resume.not_paused",
    "graph": "answer.late",
}
"""The codes that refuse late tells; a signal without a waiting node is recorded if the run continues."""


@pytest.fixture(scope="module")
async def connection(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    home: Path = tmp_path_factory.mktemp("deadlines")
    flags: dict[str, Any] = {"data_dir": home, "sync": "1s", "tenant": "acme", "partitions": 2, "allow_scripts": True}
    flags["park_linger_s"] = 0.0
    async with open_connection(load(flags, env={}, cwd=home), "test") as opened:
        yield opened


async def waiting(connection: Connection, run: str) -> dt.datetime:
    """Wait until a run is parked; return its deadline."""
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run) as feed:
            async for item in feed:
                parked = ev.payload_of(item.event)
                if isinstance(parked, ev.RunParked):
                    assert parked.deadline is not None
                    return parked.deadline
    raise AssertionError(f"{run} does not wait")


async def say(connection: Connection, run: str, verb: str, body: dict[str, Any]) -> None:
    """Publish a tell without waiting for its verdict."""
    subject = connection.log.subjects.tell(RunRef("acme", run), verb)
    await connection.log.publish(OutgoingMessage(subject, msgspec.json.encode(body), {}))


async def begun(connection: Connection, kinds: list[str], suffix: str) -> dict[str, dt.datetime]:
    """Start a run of each kind and leave it without a worker; return the deadlines."""
    async with open_worker(connection, env={}):
        for kind in kinds:
            start = {**STARTS[kind], "run_id": f"{kind}-{suffix}", "model": "scripted", "script": SCRIPT}
            assert (await connection.client.start(start)).status == "accepted"
        return {kind: await waiting(connection, f"{kind}-{suffix}") for kind in kinds}


async def ends(connection: Connection, run: str) -> tuple[ev.RunEnd, list[Event]]:
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run) as feed:
            async for item in feed:
                if item.event.type == ev.RunEnd.type:
                    break
    events = await connection.client.events(run)
    return end_of(events), events


@pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="module")
class TestWorkersComeAndGo:
    async def test_the_outcome_is_the_same_whether_a_worker_was_there_at_the_deadline(
        self, connection: Connection
    ) -> None:
        kinds = list(STARTS)
        in_time = await begun(connection, kinds, "early")
        for kind in kinds:
            await say(connection, f"{kind}-early", *TELLS[kind])
        late = await begun(connection, kinds, "late")
        last = max([*in_time.values(), *late.values()])
        await anyio.sleep((last - dt.datetime.now(dt.UTC)).total_seconds() + 0.1)
        for kind in kinds:
            await say(connection, f"{kind}-late", *TELLS[kind])
        async with open_worker(connection, env={}):
            for kind in kinds:
                _, events = await ends(connection, f"{kind}-early")
                assert ev.TimerFired.type not in types(events), kind
                assert payloads(events, ev.CommandRefused) == [], kind
                ending, events = await ends(connection, f"{kind}-late")
                assert ev.TimerFired.type in types(events), kind
                assert [one.code for one in payloads(events, ev.CommandRefused)] == [LATE[kind]] * bool(LATE[kind])
                expected = "expired" if kind in ("playbook", "breakpoint") else "completed"
                assert ending.status == expected, kind
            assert (await ends(connection, "human-early"))[0].output == "yes"
            assert (await ends(connection, "human-late"))[0].output == "late"
