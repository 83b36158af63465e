"""Mixed versions: a run of a newer version waits for a worker of that version."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio
import anyio.lowlevel
import msgspec
import pytest

from callboard.actors.carrier import Job
from callboard.bus import events as ev
from callboard.bus.errors import LogNewer
from callboard.bus.events import Event
from callboard.bus.log.damage import MissingEvents
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.recorded import decode_recorded, readable
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef
from callboard.languages.language import Ask, End, Ok, Stage
from callboard.lib.json_types import JSON
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.runtime.interpreter.stage import RunStage as PerformedStage
from callboard.runtime.run.log import read_run
from callboard.runtime.worker.active_runs import ActiveRuns
from tests.support.run_harness import PlayLanguage, RunHarness, types

Difference = Literal["kind", "type", "rules", "member"]


class NewNodeEvent(ev.Fact, frozen=True):
    """An event that only the newer version has."""

    type = "node.new"


class NewerEffectCall(ev.EffectCall, frozen=True):
    """An effect of a kind that only the newer version has."""

    kind_: str = msgspec.field(name="kind")  # type: ignore[assignment] # pyright: ignore


class NewerNodeExit(ev.NodeExit, frozen=True):
    mood: str = ""


NEWER: dict[Difference, type[ev.Payload]] = {"kind": NewerEffectCall, "type": NewNodeEvent, "member": NewerNodeExit}  # pyright: ignore


@contextmanager
def newer_version(harness: RunHarness, difference: Difference) -> Generator[None]:
    """Add the difference of the newer version to this process."""
    with pytest.MonkeyPatch.context() as patch:
        if difference == "rules":
            patch.setattr(PlayLanguage, "rules", 1)
        else:
            payload, decoders = NEWER[difference], ev._payload_decoders  # pyright: ignore[reportPrivateUsage]
            patch.setitem(ev.TYPES, payload.type, payload)
            patch.setitem(decoders, payload.type, msgspec.json.Decoder(payload))
        decode_again(harness)
        yield
    decode_again(harness)


def decode_again(harness: RunHarness) -> None:
    """Read the log as a process of this version does; the log in memory decodes an event when it is stored."""
    assert isinstance(harness.log, MemoryLog)
    for ref, items in harness.log._runs.items():  # pyright: ignore[reportPrivateUsage]
        items[:] = [decode_recorded(one.event.type, one.sequence, ref, one.id, one.data) for one in items]


def make_play(difference: Difference) -> Callable[[Stage], object]:
    """A definition that needs the difference of the newer version, and then asks a person."""

    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        if difference == "kind":
            await node.call("x", "future", {"q": 1})  # pyright: ignore[reportArgumentType]
        if difference == "type":
            assert isinstance(stage, PerformedStage)
            stage.state_of_run(NewNodeEvent())  # pyright: ignore[reportArgumentType]
        if difference == "member":
            inner = stage.enter("b")
            inner.exit("ok")
        async with node.question("ask", Ask("Go on?")) as question:
            answered = await question.answer()
            question.close("answered", answered.k, None)
        again = await node.call("y", "http", {"q": 2})
        node.exit("ok")
        return End("completed", again.value if isinstance(again, Ok) else None)

    return play


async def carry_future(job: Job, request: JSON) -> tuple[JSON, JSON]:
    return {"future": request}, None


@dataclass
class OtherWorkers:
    """`callboard.runtime.worker.active_runs.CommandRouter` of a worker; ``newer`` says whether there is a newer one."""

    newer: bool = False
    passed: list[int] = field(default_factory=list[int])
    answered: list[bytes] = field(default_factory=list[bytes])

    def take(self, delivery: Delivery) -> None:
        raise AssertionError(delivery)

    def seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        raise AssertionError(delivery)

    def refuse(self, ref: RunRef, verb: str, code: str, message: str) -> None:
        raise AssertionError(code)

    def pass_to_newer(self, deliveries: Sequence[Delivery]) -> bool:
        self.passed += [one.sequence for one in deliveries if self.newer]
        return self.newer

    def delivery(self, sequence: int, body: bytes) -> Delivery:
        return Delivery("cb.cmd", body, {}, sequence, 1, 0, "", lambda _reply, said: self.answered.append(said))


async def perform(harness: RunHarness, others: OtherWorkers, ref: RunRef, delivery: Delivery, verb: str) -> list[Event]:
    """Deliver a command to a worker; return the events of the run after its activation."""
    runs = ActiveRuns(harness.log, harness, others, ack_wait_s=60, runs_active_max=1)
    async with anyio.create_task_group() as tasks:
        await tasks.start(runs.run)
        runs.activate(ref, delivery, verb)
        while ref in runs:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    return await harness.events(ref)


async def record_open_run(difference: Difference) -> tuple[RunHarness, RunRef]:
    """Record a run of the newer version up to its question."""
    harness = RunHarness({"p": make_play(difference)}, kinds={"future": carry_future})  # pyright: ignore
    ref = await harness.accept("p")
    with newer_version(harness, difference):
        assert await harness.perform(ref) == "parked"
        if difference == "member":
            exits = [event for event in await harness.events(ref) if event.type == "node.exit"]
            assert exits
    return harness, ref


ANSWER = msgspec.json.encode({"interaction": "a#1.1!ask", "user_response": "yes"})


@pytest.mark.parametrize("difference", ["kind", "type", "rules"])
async def test_a_run_that_only_a_newer_version_can_read_waits_for_its_worker(difference: Difference) -> None:
    harness, ref = await record_open_run(difference)
    others = OtherWorkers()
    events = await perform(harness, others, ref, others.delivery(5000, ANSWER), "answer")
    assert types(events)[-1] == "run.diverged"
    assert types(events).count("run.claimed") == 1, "this worker has not claimed it"
    diverged = ev.payload_of(events[-1])
    assert isinstance(diverged, ev.RunDiverged)
    assert diverged.code == LogNewer.CODE
    assert "Run a worker of" not in diverged.message
    assert len(others.answered) == 1
    assert others.answered[0].startswith(b"-NAK"), "the command is delivered again later"
    missing = MissingEvents()
    for event in events:
        missing.apply(event)
    assert missing.warnings() == [], "an unknown event is not damage"
    assert fold(Results(), events).status == "diverged"
    # Another try adds nothing to the log.
    assert await perform(harness, others, ref, others.delivery(5000, ANSWER), "answer") == events
    with newer_version(harness, difference):
        events = await perform(harness, others, ref, others.delivery(5000, ANSWER), "answer")
        end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert (end.status, end.output) == ("completed", {"echo": {"q": 2}})
    assert sum(event.cause == 5000 for event in events) == 1


@pytest.mark.parametrize("difference", ["kind", "type", "rules"])
async def test_a_newer_worker_gets_the_command_at_once(difference: Difference) -> None:
    harness, ref = await record_open_run(difference)
    others = OtherWorkers(newer=True)
    await perform(harness, others, ref, others.delivery(5000, ANSWER), "answer")
    assert others.passed == [5000]
    assert others.answered == []


async def test_an_unknown_member_is_ignored() -> None:
    harness, ref = await record_open_run("member")
    others = OtherWorkers()
    events = await perform(harness, others, ref, others.delivery(5000, ANSWER), "answer")
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert end.status == "completed"


async def test_a_run_with_an_unknown_event_can_be_killed() -> None:
    harness, ref = await record_open_run("kind")
    others = OtherWorkers()
    events = await perform(harness, others, ref, others.delivery(5000, b"{}"), "kill")
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert end.status == "cancelled"


async def test_the_error_names_the_version_that_is_needed() -> None:
    harness, ref = await record_open_run("kind")
    recorded = await read_run(harness.log, ref)
    claims = [place for place, item in enumerate(recorded) if item.event.type == "run.claimed"]
    for place in claims:
        claim = ev.payload_of(recorded[place].event)
        assert isinstance(claim, ev.RunClaimed)
        newer = msgspec.Raw(ev.encode_payload(msgspec.structs.replace(claim, version="9.1.0")))
        event = msgspec.structs.replace(recorded[place].event, payload=newer)
        recorded[place] = msgspec.structs.replace(recorded[place], event=event)
    with pytest.raises(LogNewer, match=r"effect\.call.* was recorded by Callboard 9\.1\.0") as found:
        readable(recorded)
    assert found.value.remedy == "Run a worker of Callboard 9.1.0. The run then continues automatically."


@pytest.mark.parametrize("verb", ["start", "signal", "kill", "cancel"])
async def test_no_event_follows_an_end_that_only_a_newer_version_can_read(verb: str) -> None:
    async def ends(stage: Stage) -> End:
        return End("completed", 1)

    harness = RunHarness({"p": ends})
    ref = await harness.accept("p")
    assert await harness.perform(ref) == "ended"
    assert isinstance(harness.log, MemoryLog)
    items = harness.log._runs[ref]  # pyright: ignore[reportPrivateUsage]
    last = items[-1]
    data = last.data.replace(b'"status":"completed"', b'"status":"suspended"')
    items[-1] = decode_recorded(last.event.type, last.sequence, ref, last.id, data)
    before = await harness.events(ref)
    assert before[-1].type == ev.NEWER
    others = OtherWorkers()
    body = b'{"name": "x"}' if verb == "signal" else b"{}"
    assert await perform(harness, others, ref, others.delivery(5000, body), verb) == before
    assert others.answered[0].startswith(b"-NAK"), "the command waits for a newer worker"


@pytest.mark.parametrize("newer", ["run.accepted", "run.claimed", "run.diverged", "run.end"])
async def test_an_unknown_event_keeps_its_type_and_decodes_without_an_error(newer: str) -> None:
    harness, ref = await record_open_run("kind")
    event = (await harness.events(ref))[0]
    data = msgspec.json.encode(msgspec.structs.replace(event, type=newer, payload=msgspec.Raw(b'{"status": 1}')))
    read = decode_recorded(newer, 1, ref, "id", data).event
    assert isinstance(ev.payload_of(read), ev.Newer)
    assert ev.recorded_type(read) == newer
