"""Foreign messages among the events of a run affect this run only, and a kill still ends it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Kill, Pause
from callboard.bus.errors import LogUnreadable
from callboard.bus.events import Event, encode_event
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Entry, append
from callboard.bus.log.recorded import Recorded, readable
from callboard.bus.nats.commit import OutgoingMessage, publish
from callboard.bus.subjects import RunRef, partition_of
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.runtime.client.client import Client
from callboard.runtime.run.log import read_run
from tests.support.worker_interpreters import play
from tests.support.worker_processes import (
    Fleet,
    end_payload,
    open_fleet,
    say,
    say_start,
    until,
    until_end,
    until_type,
)

DIGEST = "0" * 64


def forge_event(last: Event, **members: object) -> bytes:
    """The next event of a run, with some other members."""
    payload = msgspec.Raw(b'{"node":"x","message":"hm"}')
    progress = msgspec.structs.replace(last, type="node.progress", n=last.n + 1, payload=payload)
    return encode_event(msgspec.structs.replace(progress, **members))


BAD_EVENTS: dict[str, tuple[str, Callable[[Event], bytes], str]] = {
    "no-json": ("node.enter", lambda _: b"\xff\xfe no JSON", "JSON"),
    "junk": ("node.enter", lambda _: b"x" * 900_000, "JSON"),
    "nested": ("node.enter", lambda _: b"[" * 100_000, ""),
    "no-worker": (
        "run.claimed",
        lambda last: forge_event(last, type="run.claimed", payload=msgspec.Raw(b'{"epoch":9}')),
        "missing required field `worker`",
    ),
    "gap": ("node.progress", lambda last: forge_event(last, n=last.n + 7), "it is number"),
    "no-blob": (
        "node.progress",
        lambda last: forge_event(last, blobs=[DIGEST]),
        f"its large value {DIGEST} is missing",
    ),
}
"""The type in the subject of each bad event, its bytes, and a part of the reported reason."""


async def publish_event(client: Client, run_id: str, event_type: str, data: bytes) -> None:
    subject = client.log.subjects.event(client.ref(run_id), "stranger", event_type)
    await publish(client.log.requests, OutgoingMessage(subject, data, {}))


async def wait_for_quarantine(client: Client, run_id: str) -> ev.RunQuarantined:
    seen = await until_type(client, run_id, ev.RunQuarantined.type)
    payload = ev.payload_of(seen[-1].event)
    assert isinstance(payload, ev.RunQuarantined)
    return payload


async def kill_run(client: Client, run_id: str) -> list[Recorded]:
    await say(client, run_id, "kill", Kill())
    recorded = [item for item in await until_end(client, run_id) if item.readable]
    assert end_payload(recorded).status == "cancelled"
    return recorded


async def check_other_run(fleet: Fleet, client: Client, run_id: str) -> None:
    """Check that another run completes and that no worker has ended."""
    await say_start(client, play("steps", run_id, {"count": 2}))
    assert end_payload(await until_end(client, run_id)).status == "completed"
    assert all(worker.status is None for worker in fleet.workers.values()), fleet.log()


async def test_an_unreadable_log_quarantines_its_run_only(tmp_path: Path) -> None:
    async with open_fleet(tmp_path) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("a")
        for run_id, (event_type, bytes_of, _) in BAD_EVENTS.items():
            await say_start(client, play("waits", run_id, {"sleep_s": 0}))
            asked = await until_type(client, run_id, ev.HumanAsked.type)
            last = (await until(client, run_id, is_parked_after(asked[-1].event.n), "parked"))[-1].event
            await publish_event(client, run_id, event_type, bytes_of(last))
            await say(client, run_id, "answer", Answer(interaction=asked[-1].event.key, user_response="Ada"))
        for run_id, (event_type, _, reason) in BAD_EVENTS.items():
            found = await wait_for_quarantine(client, run_id)
            assert found.code == LogUnreadable.CODE
            assert reason in found.message, run_id
            assert event_type in found.subject, run_id
            standing = fold(Results(), await client.events(run_id))
            assert standing.status == "quarantined"
            assert standing.error is not None
            assert standing.error.details == {"sequence": found.sequence, "subject": found.subject}
        await check_other_run(fleet, client, "other")
        for run_id in BAD_EVENTS:
            recorded = await kill_run(client, run_id)
            numbers = [item.event.n for item in recorded if item.event.definition == recorded[0].event.definition]
            assert numbers[-1] > numbers[-2], run_id
        await check_other_run(fleet, client, "later")


def is_parked_after(n: int) -> Callable[[Event], bool]:
    return lambda event: event.type == ev.RunParked.type and event.n > n


async def test_an_active_run_is_quarantined_at_its_next_append(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with open_fleet(tmp_path) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("a")
        await say_start(client, play("steps", "under-way", {"count": 3, "each": {"until": str(gate)}}))
        await until_type(client, "under-way", ev.EffectCall.type)
        await publish_event(client, "under-way", "node.enter", b"junk")
        gate.touch()
        await wait_for_quarantine(client, "under-way")
        await check_other_run(fleet, client, "other")
        # Admission refuses other commands to this run.
        verdict = await client.tell("under-way", "pause", Pause())
        assert [problem.code for problem in verdict.problems] == [LogUnreadable.CODE]
        await kill_run(client, "under-way")


async def test_malformed_commands_without_admission_do_not_stop_the_worker(tmp_path: Path) -> None:
    async with open_fleet(tmp_path) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("a")
        ref = client.ref("there")
        await say_start(client, play("waits", "there", {"sleep_s": 0}))
        asked = await until_type(client, "there", ev.HumanAsked.type)
        mine = client.log.subjects.command(partition_of(ref, client.log.partitions), ref, "")
        for subject, data in (
            (mine + "frobnicate", b"{}"),
            (mine + "answer", b"no JSON"),
            (mine + "wake", b"no JSON"),
            (mine + "answer.more", b"{}"),
            ("cb.cmd.0.nothing", b"{}"),
            ("cb.cmd.none.a.b.cancel", b"{}"),
            ("cb.due.0.a", b"{}"),
        ):
            await publish(client.log.requests, OutgoingMessage(subject, data, {}))
        await connection.nc.publish("cb.worker.a.tell", b"{}")
        await until(client, "there", is_refusal_with("tell.verb"), "refused")
        await until(client, "there", is_refusal_with("tell.malformed"), "refused")
        await check_other_run(fleet, client, "other")
        await say(client, "there", "answer", Answer(interaction=asked[-1].event.key, user_response="Ada"))
        await until_type(client, "there", ev.SignalAwaited.type)
        await kill_run(client, "there")


def is_refusal_with(code: str) -> Callable[[Event], bool]:
    def holds(event: Event) -> bool:
        payload = ev.payload_of(event)
        return isinstance(payload, ev.CommandRefused) and payload.code == code

    return holds


async def test_a_start_under_an_id_with_unreadable_events_is_refused(tmp_path: Path) -> None:
    async with open_fleet(tmp_path) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("a")
        await publish_event(client, "taken", "node.enter", b"junk")
        verdict = await client.start(play("steps", "taken", {"count": 1}))
        assert (verdict.status, [problem.code for problem in verdict.problems]) == ("rejected", [LogUnreadable.CODE])
        await check_other_run(fleet, client, "other")


async def test_unreadable_events_after_the_end_of_a_run_are_ignored(tmp_path: Path) -> None:
    async with open_fleet(tmp_path) as fleet, fleet.connection() as connection:
        client = connection.client
        await fleet.hire("a")
        await check_other_run(fleet, client, "over")
        await publish_event(client, "over", "run.end", b"junk")
        await say(client, "over", "pause", Pause())
        await check_other_run(fleet, client, "other")
        assert fold(Results(), await client.events("over")).status == "completed"


REF = RunRef("acme", "r1")


def entry(n: int, data: bytes) -> Entry:
    return Entry(n, 1, "node.enter", "d", f"w.1.{n}", data)


async def test_readers_skip_unreadable_events_and_actors_refuse_them() -> None:
    log = MemoryLog()
    await append(log, REF, [entry(1, b"junk")], 0)
    read = await read_run(log, REF)
    assert [item.readable for item in read] == [False]
    with pytest.raises(LogUnreadable, match="message 1 of the log cannot be read") as caught:
        readable(read)
    assert (caught.value.sequence, caught.value.subject) == (1, "cb.run.acme.r1.d.node.enter")
    with pytest.raises(LogUnreadable):
        await append(log, REF, [entry(2, b"mine")], 0)
