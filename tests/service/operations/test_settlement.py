"""The verdict of a run about a command, as its caller gets it: from the log, and over real messages."""

import datetime as dt
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Signal, Tell
from callboard.bus.events import Event, encode_event
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.recorded import Recorded, decode_recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.languages.language import Ask, End, Expired, Stage
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection
from callboard.service.operations.settlement import NotTaken, Settling, tell_and_wait
from callboard.testing.virtual_time import VIRTUAL
from tests.support.flow_providers import flow_of, ours
from tests.support.run_harness import RunHarness
from tests.support.sample_interpreters import after, effect
from tests.support.service_client import Caller, standing
from tests.support.simulation import World, finish, harness_for

ASK = "a#1.1!ask"
REF = RunRef("acme", "r1")
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


async def thoughtful(stage: Stage) -> End:
    """Thinks about each answer for a while; takes the first one that is a number."""
    node = stage.enter("a")

    async def answered() -> Any:
        async with node.question("ask", Ask("How many?")) as question:
            while True:
                given = await question.answer()
                await effect(node, f"think.{given.k}", 30)
                if isinstance(given.user_response, int):
                    question.close("answered", given.k, None)
                    return given.user_response
                question.not_understood(f"answer {given.k} is no number")

    bounded = await stage.within(after(stage.now(), 3600), answered(), node=node, slot="bound")
    node.exit("ok")
    return End("completed", None if isinstance(bounded, Expired) else bounded.value)


def fate(events: Sequence[Event], cause: int) -> str:
    """Return the verdict that the caller of the command with that sequence gets from the events."""
    settling = Settling("r1", cause)
    for i, event in enumerate(events):
        try:
            settling.apply(event)
        except NotTaken as error:
            return f"{error.code}: {error.message}"
        if settling.answers_before:
            settling.look_back(list(events[: i + 1]))
        if settling.settled:
            break
    return "accepted" if settling.settled else "pending" if settling.recorded else "not recorded"


async def answers(harness: RunHarness, *responses: Any) -> tuple[RunRef, list[int]]:
    """Answer a run's question, all at once; return the sequences of the commands."""
    ref = await harness.accept("p")
    await harness.perform(ref)
    commands = [harness.command("answer", interaction=ASK, user_response=response) for response in responses]
    await harness.perform(ref, *commands)
    return ref, [command.sequence for command in commands]


async def test_queued_answers_have_separate_verdicts() -> None:
    harness = harness_for(thoughtful)
    ref, (first, second, third, fourth) = await answers(harness, "many", "some", 3, 4)
    events = await finish(harness, ref, World())
    assert fate(events, first) == "answer.not_understood: answer 1 is no number"
    assert fate(events, second) == "answer.not_understood: answer 2 is no number"
    assert fate(events, third) == "accepted"
    assert fate(events, fourth) == f"answer.late: {ASK}: answer 3 was taken before it"
    assert fate(events, 7) == "run.finished: the run has ended; it comes too late"


async def test_an_answer_is_pending_until_the_run_decides() -> None:
    harness = harness_for(thoughtful)
    ref, [only] = await answers(harness, 3)
    events = await harness.events(ref)
    recorded = next(place for place, event in enumerate(events) if event.type == ev.HumanAnswered.type)
    assert fate(events[:recorded], only) == "not recorded"
    assert fate(events[: recorded + 1], only) == "pending"


@pytest.mark.parametrize("verb", ["cancel", "kill"])
async def test_an_answer_to_a_withdrawn_question_is_late(verb: str) -> None:
    harness = harness_for(thoughtful)
    ref = await harness.accept("p")
    await harness.perform(ref)
    answer = harness.command("answer", interaction=ASK, user_response=3)
    await harness.perform(ref, answer, harness.command(verb))
    events = await finish(harness, ref, World())
    assert fate(events, answer.sequence) == f"answer.late: {ASK}: the question was withdrawn before it"


class KnownEvents(Client):
    """A client of a run whose next events are known."""

    def __init__(self, log: JetStreamLog, heard: list[Recorded]) -> None:
        super().__init__(log, "acme")
        self._heard = heard

    async def tell(self, run_id: str, verb: str, tell: Tell, *, wait_s: float = 0) -> Verdict:
        return Verdict("accepted", run_id, cause=7)

    @asynccontextmanager
    async def follow(self, *_: Any, **__: Any) -> AsyncGenerator[AsyncIterator[Recorded]]:
        async def events() -> AsyncIterator[Recorded]:
            for each in self._heard:
                yield each

        yield events()


async def test_events_of_other_commands_are_not_decoded() -> None:
    """A model's call with large texts, which are stored beside the event, comes before the signal is recorded."""
    call = {"request": {"purpose": "turn", "system": {"blob": "…"}, "messages": []}}
    events = [
        event_of("model.call", 5, call, cause=3, blobs=["d"]),
        event_of("signal.received", 6, {"name": "go", "data": None, "by": None}, cause=7),
    ]
    heard = [decode_recorded(f"cb.run.acme.r1.d.{one.type}", one.n, REF, "", encode_event(one)) for one in events]
    with pytest.raises(msgspec.ValidationError):
        ev.payload_of(heard[0].event)
    found = await tell_and_wait(KnownEvents(cast(JetStreamLog, MemoryLog()), heard), "r1", "signal", Signal(name="go"))
    assert found.settled
    assert found.recorded is not None
    assert found.recorded.n == 6


def event_of(type: str, n: int, payload: Any, cause: int, blobs: Sequence[str] = ()) -> Event:
    raw = msgspec.Raw(msgspec.json.encode(payload))
    return Event(
        type=type, run="r1", n=n, epoch=1, v=1, time=EPOCH, path="", cause=cause, blobs=list(blobs), payload=raw
    )


# -- over real messages -----------------------------------------------------------------------------------------------


class TestOverMessages:
    """With a server and a worker."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def asking(self, connection: Connection) -> tuple[Caller, str]:
        """Start a run and wait until it asks."""
        caller = Caller(connection.nc, connection.config.tenant)
        flow = flow_of(ours("human"), question="Sure?", type="confirm")
        run = await caller.start(definition={"source": json.dumps(flow)}, model=None, script=None)
        async with connection.client.follow(run, event_type=ev.HumanAsked.type) as feed:
            async for _asked in feed:
                break
        return caller, run

    async def test_an_answer_by_request_returns_the_verdict(self, tmp_path: Path) -> None:
        async with standing(tmp_path) as connection:
            caller, run = await self.asking(connection)
            wrong = {"run_id": run, "verb": "answer", "body": {"user_response": "maybe"}}
            error = await caller.refused("tell", wrong)
            assert (error["code"], error["run_id"]) == ("answer.not_understood", run)
            assert "'maybe'" in error["message"]
            assert (await caller.ask("show", {"run_id": run}))["status"] == "waiting:human"
            right = await caller.ask("tell", {**wrong, "body": {"user_response": "yes"}})
            assert (right["status"], right["verdict"]) == ("accepted", "accepted")
            page = await caller.ask("events", {"run_id": run, "types": ["human.answered"]})
            recorded = [(each["event"]["n"], each["event"]["cause"]) for each in page["events"]]
            assert (right["recorded"], right["cause"]) == recorded[1]
            assert len(recorded) == 2

    async def test_an_answer_without_waiting_is_pending(self, tmp_path: Path) -> None:
        async with standing(tmp_path) as connection:
            caller, run = await self.asking(connection)
            body = {"run_id": run, "verb": "answer", "body": {"user_response": "yes"}, "wait_s": 0}
            answered = await caller.ask("tell", body)
            assert (answered["verdict"], "recorded" in answered) == ("pending", False)
            assert (await caller.ask("result", {"run_id": run, "wait_s": 30}))["status"] == "completed"

    async def test_each_caller_gets_the_verdict_of_its_own_command(self, tmp_path: Path) -> None:
        async with standing(tmp_path) as connection:
            client = connection.client
            _, run = await self.asking(connection)
            other = await tell_and_wait(client, run, "signal", Signal(name="later"))
            assert other.settled
            assert other.recorded is not None
            assert other.recorded.type == "signal.received"
            with pytest.raises(NotTaken, match=r"answer\.no_question"):
                await tell_and_wait(client, run, "answer", Answer(interaction="nowhere#1.1!ask", user_response=1))
