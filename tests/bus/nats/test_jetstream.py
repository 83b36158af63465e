"""One conformance suite for every implementation of the log: in memory, and JetStream with and without group commit.

JetStream runs on a real embedded server. Tests of its alarms and of a killed server follow at the end.
"""

import datetime as dt
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import pytest
from msgspec import Raw

from callboard.bus.errors import LogUnavailable, RunLost
from callboard.bus.events import Event, encode_event
from callboard.bus.log.encryption import KeyRing, NoKeys
from callboard.bus.log.memory import Fault, MemoryLog
from callboard.bus.log.port import (
    Alarm,
    AppendRefused,
    Beside,
    Entry,
    EventLog,
    LogReader,
    NoAnswer,
    Recorded,
    RunMessage,
    append,
)
from callboard.bus.nats import blobs as blobs_module
from callboard.bus.nats import feed as feed_module
from callboard.bus.nats import jetstream as jetstream_module
from callboard.bus.nats import jetstream_api
from callboard.bus.nats import requests as requests_module
from callboard.bus.nats.blobs import CHUNK_BYTES, CHUNKS_AT_ONCE
from callboard.bus.nats.commit import BATCH_MESSAGES_MAX, MESSAGE_ID, OutgoingMessage, publish
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.feed import Feed
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.queue import Delivery, Outbox, Puller, ensure_consumer
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.subjects import RunRef, Subjects, partition_of
from callboard.features.telemetry.event_consumer import consumption
from tests.support.patience import until

RUN = RunRef("acme", "r1")
OTHER = RunRef("acme", "r2")
T0 = dt.datetime(2026, 11, 20, 11, 0, 0, tzinfo=dt.UTC)
TYPES = ("node.enter", "node.exit", "model.call", "run.claimed")
WRITERS = len(TYPES)
ROUNDS = 20
PATIENCE_S = 60.0


PAYLOAD = {
    "node": "a",
    "awaits": [],
    "worker": "w",
    "epoch": 1,
    "outcome": "ok",
    "purpose": "turn",
    "model": "m",
    "digest": "",
    "definition": {"language": "x", "hash": "0", "source": ""},
    "start": {},
    "error": {"code": "x", "message": "x"},
    "status": "completed",
}
"""The members that the event types of these tests need."""


def entry(n: int, writer: str = "w", *, type: str = "node.progress", definition: str = "d") -> Entry:
    """An event as a writer would make it; its mark is unlike any other's."""
    payload = Raw(msgspec.json.encode({**PAYLOAD, "message": writer}))
    time = T0 + dt.timedelta(microseconds=n)
    event = Event(type=type, run="r", n=n, epoch=1, v=1, time=time, path="", definition=definition, payload=payload)
    return Entry(n, 1, type, definition, f"{writer}.1.{n}", encode_event(event))


# -- the implementations ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def jetstream(
    url: str, *, group_commit: bool, batches: bool = False, writers: int = 1
) -> AsyncGenerator[list[JetStreamLog]]:
    """Open logs on one stream, each with a separate connection."""
    async with AsyncExitStack() as stack:
        logs: list[JetStreamLog] = []
        for i in range(writers):
            nc = await stack.enter_async_context(open_nats_connection(url, name=f"writer-{i}"))
            logs.append(await open_log(nc, Subjects(), partitions=4, group_commit=group_commit))
            if batches:
                await logs[-1].choose_commit(group_commit=group_commit, batches=True)
        yield logs


@asynccontextmanager
async def implementation(
    kind: str, url: str, monkeypatch: pytest.MonkeyPatch, writers: int = 1
) -> AsyncGenerator[Sequence[EventLog]]:
    """A log as each of several writers sees it.

    A put is not repeated, and one that is not answered in time is neither refused nor stored: the server of a machine
    with much to do is waited for.
    """
    monkeypatch.setattr(requests_module, "REQUEST_TIMEOUT_S", PATIENCE_S)
    if kind == "memory":
        yield [MemoryLog()] * writers
    else:
        grouped, batches = kind.startswith("group"), kind.endswith("batches")
        async with jetstream(url, group_commit=grouped, batches=batches, writers=writers) as logs:
            yield logs


READING = ("memory", "jetstream")
COMMITTING = (*READING, "group-commit", "batches", "group-batches")


@pytest.fixture(params=READING)
async def log(
    request: pytest.FixtureRequest, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventLog]:
    """For tests in which it does not matter how events are committed."""
    async with implementation(request.param, nats_url, monkeypatch) as (log,):
        yield log


@pytest.fixture(params=COMMITTING)
async def committing(
    request: pytest.FixtureRequest, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventLog]:
    async with implementation(request.param, nats_url, monkeypatch) as (log,):
        yield log


@pytest.fixture(params=COMMITTING)
async def writers(
    request: pytest.FixtureRequest, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Sequence[EventLog]]:
    async with implementation(request.param, nats_url, monkeypatch, WRITERS) as logs:
        yield logs


Faulted = Fault | Literal["half_stored"]


class Faulty:
    """A log that misbehaves on order: each put takes the next of ``faults``, and none when they are used up."""

    def __init__(self, log: EventLog, *faults: "Faulted") -> None:
        self._log = log
        self.faults = list(faults)

    @property
    def keys(self) -> KeyRing:
        return self._log.keys

    def now(self) -> dt.datetime:
        return self._log.now()

    def without_keys(self) -> LogReader:
        return self._log.without_keys()

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "lost":
            raise NoAnswer
        if fault == "refused":
            raise AppendRefused
        if fault == "half_stored":
            await self._log.put(ref, entries[: len(entries) // 2], after)
            raise NoAnswer
        sequence = await self._log.put(ref, entries, after, beside)
        if fault == "stored_but_unknown":
            raise NoAnswer
        return sequence

    async def last(self, ref: RunRef) -> Recorded | None:
        return await self._log.last(ref)

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        return await self._log.read(ref, after, limit, bytes_max)

    def follow(
        self, filter: str | Sequence[str], after: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Recorded]]:
        return self._log.follow(filter, after)

    async def put_blob(self, ref: RunRef, digest: str, data: bytes) -> None:
        await self._log.put_blob(ref, digest, data)

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        return await self._log.get_blob(ref, digest)


# -- writing and reading ----------------------------------------------------------------------------------------------


async def test_an_entry_is_appended_after_the_one_it_names(committing: EventLog) -> None:
    first = await committing.put(RUN, [entry(1)], 0)
    between = await committing.put(OTHER, [entry(1)], 0)
    second = await committing.put(RUN, [entry(2)], first)
    assert first < between < second
    assert [(each.sequence, each.event.n) for each in await committing.read(RUN)] == [(first, 1), (second, 2)]
    assert [each.sequence for each in await committing.read(OTHER)] == [between]


async def test_several_entries_are_appended_at_once_in_order(committing: EventLog) -> None:
    first = await committing.put(RUN, [entry(1)], 0)
    other = await committing.put(OTHER, [entry(1), entry(2)], 0)
    last = await committing.put(RUN, [entry(n, type=TYPES[n % WRITERS]) for n in range(2, 7)], first)
    found = await committing.read(RUN)
    assert [each.event.n for each in found] == list(range(1, 7))
    assert found[-1].sequence == last
    assert [each.event.n for each in await committing.read(OTHER, other - 1)] == [2]
    with pytest.raises(AppendRefused):
        await committing.put(RUN, [entry(7), entry(8)], first)
    assert len(await committing.read(RUN)) == 6


async def test_an_entry_that_does_not_follow_the_last_one_is_refused(committing: EventLog) -> None:
    first = await committing.put(RUN, [entry(1)], 0)
    last = await committing.put(RUN, [entry(2)], first)
    for wrong in (0, first, last + 1, 1 << 40):
        with pytest.raises(AppendRefused):
            await committing.put(RUN, [entry(3, "late", type="run.end")], wrong)
    with pytest.raises(AppendRefused):
        await committing.put(OTHER, [entry(2)], last)
    assert [each.event.n for each in await committing.read(RUN)] == [1, 2]
    assert await committing.read(OTHER) == []
    assert await committing.put(RUN, [entry(3)], last) > last


async def test_the_guard_holds_across_event_types_and_definitions(committing: EventLog) -> None:
    first = await committing.put(RUN, [entry(1, type="run.accepted", definition="one")], 0)
    with pytest.raises(AppendRefused):
        await committing.put(RUN, [entry(1, type="run.accepted", definition="two")], 0)
    with pytest.raises(AppendRefused):
        await committing.put(RUN, [entry(1, type="node.enter", definition="one")], 0)
    assert await committing.put(RUN, [entry(2, type="run.claimed", definition="one")], first) > first


async def test_the_last_entry_is_the_one_acknowledged_last(log: EventLog) -> None:
    assert await log.last(RUN) is None
    after = 0
    for n in range(1, 6):
        after = await log.put(RUN, [entry(n, type=TYPES[n % WRITERS])], after)
        last = await log.last(RUN)
        assert last is not None
        assert (last.sequence, last.ref, last.id, last.event.n) == (after, RUN, f"w.1.{n}", n)
        assert last.data == entry(n, type=TYPES[n % WRITERS]).data


async def test_a_read_returns_the_appended_bytes(log: EventLog) -> None:
    sent = entry(1, "Zoë", type="node.exit", definition="ein Name / mit [allem].*>")
    await log.put(RUN, [sent], 0)
    (found,) = await log.read(RUN)
    assert (found.data, found.id, found.event.definition) == (sent.data, sent.id, sent.definition)
    async with log.follow(Subjects().events("acme", definition=sent.definition), 0) as feed:
        async for recorded in feed:
            assert (recorded.data, recorded.ref) == (sent.data, RUN)
            break


async def test_a_run_is_read_in_order_and_from_anywhere(log: EventLog) -> None:
    assert await log.read(RUN) == []
    sequences = await grow(log, RUN, 5)
    await grow(log, OTHER, 2)
    assert [each.event.n for each in await log.read(RUN)] == [1, 2, 3, 4, 5]
    assert [each.event.n for each in await log.read(RUN, after=sequences[2])] == [4, 5]
    assert await log.read(RUN, after=sequences[-1]) == []


async def test_a_read_returns_at_most_the_requested_number(log: EventLog) -> None:
    ref = RunRef("acme", "limited")
    after = 0
    for n in range(1, 6):
        after = await log.put(ref, [entry(n)], after)
    assert [item.event.n for item in await log.read(ref, limit=2)] == [1, 2]
    first = (await log.read(ref))[0].sequence
    assert [item.event.n for item in await log.read(ref, first, 3)] == [2, 3, 4]
    assert [item.event.n for item in await log.read(ref, limit=50)] == [1, 2, 3, 4, 5]


async def test_a_run_longer_than_one_page_is_read_whole(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_module, "READ_BATCH", 5)
    sequences = await grow(log, RUN, 12)
    found = await log.read(RUN)
    assert [each.sequence for each in found] == sequences
    assert [each.event.n for each in found] == list(range(1, 13))


async def grow(log: EventLog, ref: RunRef, count: int, after: int = 0, first: int = 1) -> list[int]:
    """Append a number of events of several types to a run; return their sequences."""
    sequences: list[int] = []
    for n in range(first, first + count):
        after = await log.put(ref, [entry(n, type=("node.progress", "node.unheard_of")[n % 2])], after)
        sequences.append(after)
    return sequences


# -- following --------------------------------------------------------------------------------------------------------


async def take(feed: AsyncIterator[Recorded], count: int) -> list[Recorded]:
    found: list[Recorded] = []
    with anyio.fail_after(PATIENCE_S):
        while len(found) < count:
            found.append(await anext(feed))
    return found


async def test_a_follower_from_the_beginning_gets_past_and_new_events(log: EventLog) -> None:
    sequences = await grow(log, RUN, 3)
    async with log.follow(Subjects().run(RUN), 0) as feed:
        past = await take(feed, 3)
        live = await grow(log, RUN, 2, sequences[-1], 4)
        present = await take(feed, 2)
    assert [each.sequence for each in past + present] == sequences + live
    assert all(each.ref == RUN for each in past)


async def test_a_follower_from_a_sequence_begins_after_it(log: EventLog) -> None:
    sequences = await grow(log, RUN, 4)
    async with log.follow(Subjects().run(RUN), sequences[1]) as feed:
        assert [each.sequence for each in await take(feed, 2)] == sequences[2:]


async def test_a_follower_from_now_gets_no_past_events(log: EventLog) -> None:
    past = await grow(log, RUN, 3)
    async with log.follow(Subjects().run(RUN)) as feed:
        live = await grow(log, RUN, 2, past[-1], 4)
        assert [each.sequence for each in await take(feed, 2)] == live


FILTERS: list[tuple[str | None, str | None, str | None, str, list[str]]] = [
    (None, None, None, ">", ["a1", "a2", "a3", "b1", "c1"]),
    ("acme", None, None, ">", ["a1", "a2", "a3", "b1"]),
    ("acme", "r1", None, ">", ["a1", "a2", "a3"]),
    (None, None, "triage", ">", ["b1", "c1"]),
    ("acme", None, "triage", ">", ["b1"]),
    (None, None, None, "run.failed", ["a2", "c1"]),
    (None, None, None, "run.>", ["a1", "a2", "a3", "c1"]),
    (None, None, None, "*.enter", ["b1"]),
]


async def test_filters_choose_by_tenant_run_definition_and_type(log: EventLog) -> None:
    first = await log.put(RUN, [entry(1, "a", type="run.accepted")], 0)
    second = await log.put(RUN, [entry(2, "a", type="run.failed")], first)
    await log.put(RUN, [entry(3, "a", type="run.end")], second)
    await log.put(RunRef("acme", "r1x"), [entry(1, "b", type="node.enter", definition="triage")], 0)
    await log.put(RunRef("other", "r1"), [entry(1, "c", type="run.failed", definition="triage")], 0)
    for tenant, run, definition, type, expected in FILTERS:
        async with log.follow(Subjects().events(tenant, run, definition, type), 0) as feed:
            found = await take(feed, len(expected))
        assert [f"{each.id[0]}{each.event.n}" for each in found] == expected


async def test_followers_do_not_take_from_each_other(log: EventLog) -> None:
    everything = Subjects().events()
    async with log.follow(everything, 0) as one, log.follow(everything, 0) as two:
        sequences = await grow(log, RUN, 3)
        assert [each.sequence for each in await take(one, 3)] == sequences
        assert [each.sequence for each in await take(two, 3)] == sequences


# -- large values -----------------------------------------------------------------------------------------------------


SIZES = (0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES - 1, (CHUNKS_AT_ONCE + 4) * CHUNK_BYTES)


async def test_values_of_any_number_of_chunks_are_restored(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs_module, "READ_BYTES_MAX", 6 * CHUNK_BYTES)
    for size in SIZES:
        data = os.urandom(size)
        digest = sha256(data).hexdigest()
        await log.put_blob(RUN, digest, data)
        await log.put_blob(RUN, digest, data)
        assert sha256(await log.get_blob(RUN, digest)).hexdigest() == digest


async def test_a_value_belongs_to_its_run(log: EventLog) -> None:
    digest = sha256(b"value").hexdigest()
    await log.put_blob(RUN, digest, b"value")
    for ref, wanted in ((OTHER, digest), (RUN, sha256(b"another").hexdigest())):
        with pytest.raises(KeyError):
            await log.get_blob(ref, wanted)
    assert await log.read(RUN) == []


# -- append -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        ["stored_but_unknown"],
        ["lost"],
        ["refused"],
        ["lost", "lost", "stored_but_unknown"],
        ["refused", "stored_but_unknown"],
    ],
)
async def test_an_append_succeeds_and_is_stored_once(log: EventLog, faults: list[Fault]) -> None:
    first = await append(log, RUN, [entry(1)], 0)
    faulty = Faulty(log, *faults)
    second = await append(faulty, RUN, [entry(2)], first)
    assert faulty.faults == []
    assert [(each.sequence, each.id) for each in await log.read(RUN)] == [(first, "w.1.1"), (second, "w.1.2")]


@pytest.mark.parametrize("fault", ["stored_but_unknown", "lost", "refused", "half_stored"])
async def test_an_append_of_several_entries_succeeds_and_stores_each_once(log: EventLog, fault: Faulted) -> None:
    entries = [entry(n) for n in range(2, 6)]
    first = await append(log, RUN, [entry(1)], 0)
    faulty = Faulty(log, fault)
    last = await append(faulty, RUN, entries, first)
    assert faulty.faults == []
    found = await log.read(RUN)
    assert [each.id for each in found] == [f"w.1.{n}" for n in range(1, 6)]
    assert found[-1].sequence == last


async def test_a_run_lost_in_the_middle_of_an_append_keeps_what_came_before(log: EventLog) -> None:
    class Robbed(Faulty):
        async def last(self, ref: RunRef) -> Recorded | None:
            found = await super().last(ref)
            if found is not None and found.event.n == 2:
                await log.put(RUN, [entry(3, "thief", type="run.claimed")], found.sequence)
            return found

    with pytest.raises(RunLost) as caught:
        await append(Robbed(log, "half_stored"), RUN, [entry(n, "owner") for n in range(1, 5)], 0)
    assert caught.value.n == 3
    assert [each.id for each in await log.read(RUN)] == ["owner.1.1", "owner.1.2", "thief.1.3"]


async def test_an_append_repeated_by_a_writer_that_never_saw_the_answer_succeeds(log: EventLog) -> None:
    first = await append(log, RUN, [entry(1)], 0)
    assert await append(log, RUN, [entry(1)], 0) == first
    assert len(await log.read(RUN)) == 1


async def test_a_writer_that_lost_the_run_gets_the_current_owner(log: EventLog) -> None:
    first = await append(log, RUN, [entry(1)], 0)
    await append(log, RUN, [entry(2, "thief", type="run.claimed")], first)
    with pytest.raises(RunLost) as caught:
        await append(log, RUN, [entry(2, "owner")], first)
    assert caught.value.ref == RUN
    assert caught.value.n == 2
    assert caught.value.found is not None
    assert caught.value.found.type == "run.claimed"
    assert [each.id for each in await log.read(RUN)] == ["w.1.1", "thief.1.2"]


async def test_a_run_lost_while_the_answer_was_unknown_is_lost(log: EventLog) -> None:
    first = await append(log, RUN, [entry(1)], 0)
    await append(log, RUN, [entry(2, "thief")], first)
    with pytest.raises(RunLost):
        await append(Faulty(log, "lost"), RUN, [entry(2, "owner")], first)


async def test_an_append_to_a_missing_run_is_lost(log: EventLog) -> None:
    with pytest.raises(RunLost) as caught:
        await append(log, RUN, [entry(7)], 41)
    assert caught.value.found is None


async def test_a_read_without_an_answer_fails_and_is_not_empty(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_api, "DIRECT_GET_TIMEOUT_S", 0.1)
    monkeypatch.setattr(jetstream_api, "SILENCE_PATIENCE_S", 0.2)
    async with jetstream(nats_url, group_commit=False) as (log,):
        nowhere = JetStreamLog(log.nc, log.subjects, "NO_SUCH_STREAM", 4, group_commit=False)
        with pytest.raises(NoAnswer):
            await nowhere.read(RUN)
        with pytest.raises(NoAnswer):
            await nowhere.get_blob(RUN, "ab")


async def test_an_append_without_answers_fails_after_its_time_limit(log: EventLog) -> None:
    with pytest.raises(LogUnavailable) as caught:
        await append(Faulty(log, "lost", "lost", "lost"), RUN, [entry(1)], 0, patience_s=0.2)
    assert (caught.value.ref, caught.value.n) == (RUN, 1)
    assert await log.read(RUN) == []


# -- racing -----------------------------------------------------------------------------------------------------------


async def test_one_of_several_racing_writers_wins_each_round(writers: Sequence[EventLog]) -> None:
    after = 0
    for n in range(1, ROUNDS + 1):
        winners = await race(writers, n, after)
        assert len(winners) == 1, f"round {n}: {winners}"
        (after,) = winners.values()
    found = await writers[0].read(RUN)
    assert [each.event.n for each in found] == list(range(1, ROUNDS + 1))
    assert found[-1].sequence == after


async def race(writers: Sequence[EventLog], n: int, after: int) -> dict[str, int]:
    """Let every writer put an event of another type as event n; return the acknowledged writers and sequences."""
    winners: dict[str, int] = {}

    async def compete(writer: EventLog, type: str) -> None:
        with suppress(AppendRefused):
            winners[type] = await writer.put(RUN, [entry(n, type, type=type)], after)

    async with anyio.create_task_group() as tasks:
        for writer, type in zip(writers, TYPES, strict=True):
            tasks.start_soon(compete, writer, type)
    return winners


async def test_one_of_several_racing_appends_wins_and_the_others_lose_the_run(writers: Sequence[EventLog]) -> None:
    first = await writers[0].put(RUN, [entry(1)], 0)
    outcomes: list[str] = []

    async def compete(writer: EventLog, type: str) -> None:
        try:
            await append(writer, RUN, [entry(2, type, type=type)], first)
            outcomes.append("won")
        except RunLost:
            outcomes.append("lost")

    async with anyio.create_task_group() as tasks:
        for writer, type in zip(writers, TYPES, strict=True):
            tasks.start_soon(compete, writer, type)
    assert sorted(outcomes) == ["lost"] * (WRITERS - 1) + ["won"]
    assert [each.event.n for each in await writers[0].read(RUN)] == [1, 2]


async def test_a_refused_put_does_not_affect_others_of_its_batch(committing: EventLog) -> None:
    taken = await committing.put(RUN, [entry(1, "before")], 0)
    runs = [RunRef("acme", f"many-{i}") for i in range(60)]
    acknowledged: dict[RunRef, int] = {}
    refused: list[RunRef] = []

    async def put(ref: RunRef) -> None:
        try:
            acknowledged[ref] = await committing.put(ref, [entry(1, ref.run)], 0)
        except AppendRefused:
            refused.append(ref)

    async with anyio.create_task_group() as tasks:
        for ref in [*runs[:30], RUN, *runs[30:]]:
            tasks.start_soon(put, ref)
    assert refused == [RUN]
    assert len(set(acknowledged.values())) == len(runs)
    for ref in runs:
        assert [(each.sequence, each.id) for each in await committing.read(ref)] == [
            (acknowledged[ref], f"{ref.run}.1.1")
        ]
    assert [each.sequence for each in await committing.read(RUN)] == [taken]


async def test_a_refused_append_of_several_entries_does_not_affect_other_runs(committing: EventLog) -> None:
    await committing.put(RUN, [entry(1, "before")], 0)
    runs = [RunRef("acme", f"many-{i}") for i in range(12)]
    refused: list[RunRef] = []

    async def put(ref: RunRef, after: int = 0) -> None:
        try:
            for turn in range(3):
                after = await committing.put(ref, [entry(n, ref.run) for n in range(4 * turn + 1, 4 * turn + 5)], after)
        except AppendRefused:
            refused.append(ref)

    async with anyio.create_task_group() as tasks:
        for ref in [*runs[:6], RUN, *runs[6:]]:
            tasks.start_soon(put, ref)
    assert refused == [RUN]
    assert [each.id for each in await committing.read(RUN)] == ["before.1.1"]
    for ref in runs:
        assert [each.id for each in await committing.read(ref)] == [f"{ref.run}.1.{n}" for n in range(1, 13)]


async def test_one_of_two_concurrent_first_events_is_refused(committing: EventLog) -> None:
    """However many others there are to be committed together with."""
    refused: list[RunRef] = []
    runs = [RunRef("acme", f"many-{i}") for i in range(12)]

    async def put(ref: RunRef, writer: str) -> None:
        try:
            await committing.put(ref, [entry(n, writer) for n in range(1, 5)], 0)
        except AppendRefused:
            refused.append(ref)

    async with anyio.create_task_group() as tasks:
        # While this is committed the others gather.
        tasks.start_soon(committing.put, RUN, [entry(1)], 0)
        for ref in runs:
            for writer in ("this", "that"):
                tasks.start_soon(put, ref, writer)
    assert sorted(ref.run for ref in refused) == sorted(ref.run for ref in runs)
    for ref in runs:
        found = await committing.read(ref)
        assert [each.event.n for each in found] == [1, 2, 3, 4]
        assert len({each.id.partition(".")[0] for each in found}) == 1


async def test_more_messages_than_fit_a_batch_are_committed_in_several(nats_url: str) -> None:
    async with jetstream(nats_url, group_commit=True) as (log,):
        runs = [RunRef("acme", f"many-{i}") for i in range(8)]
        async with anyio.create_task_group() as tasks:
            for ref in runs:
                tasks.start_soon(log.put, ref, [entry(n) for n in range(1, BATCH_MESSAGES_MAX // 4 + 1)], 0)
        for ref in runs:
            found = await log.read(ref)
            assert [each.event.n for each in found] == list(range(1, BATCH_MESSAGES_MAX // 4 + 1))


async def test_a_cancelled_put_does_not_affect_the_answers_of_others(committing: EventLog) -> None:
    runs = [RunRef("acme", f"many-{i}") for i in range(30)]
    answered: dict[RunRef, int] = {}
    scopes: dict[RunRef, anyio.CancelScope] = {}

    async def put(ref: RunRef) -> None:
        with anyio.CancelScope() as scopes[ref]:
            answered[ref] = await committing.put(ref, [entry(1, ref.run)], 0)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for ref in runs:
                tasks.start_soon(put, ref)
            await anyio.lowlevel.checkpoint()
            for ref in (runs[0], runs[1], runs[17]):
                scopes[ref].cancel()
    assert set(runs) - set(answered) <= {runs[0], runs[1], runs[17]}
    for ref, sequence in answered.items():
        assert [each.sequence for each in await committing.read(ref)] == [sequence]


# -- JetStream alone --------------------------------------------------------------------------------------------------

both_commits = pytest.mark.parametrize("group_commit", [False, True], ids=["singles", "group-commit"])


@both_commits
async def test_an_alarm_is_delivered_with_its_run(nats_url: str, group_commit: bool) -> None:
    async with jetstream(nats_url, group_commit=group_commit) as (log,):
        rung = await log.nc.jetstream().subscribe("cb.due.>", stream=log.stream, ordered_consumer=True)
        first = await log.put(RUN, [entry(1)], 0)
        parked = await log.put(RUN, [entry(2, type="run.parked")], first, Alarm(in_s(0.3), 3))
        last = await log.last(RUN)
        assert last is not None
        assert (last.sequence, last.event.type) == (parked, "run.parked")
        message = await rung.next_msg(timeout=PATIENCE_S)
        subject = log.subjects.parse_command(message.subject)
        assert (subject.ref, subject.partition, subject.verb) == (RUN, 3, "alarm")
        assert message.metadata.timestamp >= in_s(-PATIENCE_S)
        await rung.unsubscribe()


@both_commits
async def test_a_refused_event_sets_no_alarm(nats_url: str, group_commit: bool) -> None:
    async with jetstream(nats_url, group_commit=group_commit) as (log,):
        await log.put(RUN, [entry(1)], 0)
        with pytest.raises(AppendRefused):
            await log.put(RUN, [entry(2, type="run.parked")], 0, Alarm(in_s(3600), 3))
        assert await stored(log, log.subjects.timer(RUN)) == 0
        assert [each.event.n for each in await log.read(RUN)] == [1]


@both_commits
async def test_a_later_alarm_replaces_the_earlier_one(nats_url: str, group_commit: bool) -> None:
    async with jetstream(nats_url, group_commit=group_commit) as (log,):
        rung = await log.nc.jetstream().subscribe("cb.due.>", stream=log.stream, ordered_consumer=True)
        after = 0
        for n in range(1, 4):
            after = await log.put(RUN, [entry(n, type="run.parked")], after, Alarm(in_s(3600), 3))
        assert await stored(log, log.subjects.timer(RUN)) == 1
        await log.put(RUN, [entry(4, type="run.parked")], after, Alarm(in_s(-5), 1))
        message = await rung.next_msg(timeout=PATIENCE_S)
        assert log.subjects.parse_command(message.subject).partition == 1
        assert [each.event.n for each in await log.read(RUN)] == [1, 2, 3, 4]
        await rung.unsubscribe()


@both_commits
async def test_a_message_is_stored_with_its_event_but_not_with_a_refused_one(nats_url: str, group_commit: bool) -> None:
    async with jetstream(nats_url, group_commit=group_commit) as (log,):
        run_message = RunMessage(RunRef(RUN.tenant, "other"), "wake", b"{}")
        first = await log.put(RUN, [entry(1)], 0)
        with pytest.raises(AppendRefused):
            await log.put(RUN, [entry(2)], 0, run_message)
        told = log.subjects.command(partition_of(run_message.to, log.partitions), run_message.to, run_message.verb)
        assert await stored(log, told) == 0
        sequence = await log.put(RUN, [entry(2)], first, run_message)
        last = await log.last(RUN)
        assert last is not None
        assert (last.sequence, last.event.n) == (sequence, 2)
        assert await stored(log, told) == 1


async def test_a_follower_fails_when_the_connection_is_closed(nats_url: str) -> None:
    async with jetstream(nats_url, group_commit=False) as (log,), log.follow(log.subjects.run(RUN), 0) as feed:
        await log.put(RUN, [entry(1)], 0)
        assert (await anext(feed)).event.n == 1
        await log.nc.close()
        with anyio.fail_after(PATIENCE_S), pytest.raises(NoAnswer):
            await anext(feed)


async def test_the_headers_of_a_message_are_not_read_as_a_status_of_the_server(nats_url: str) -> None:
    strange = {"Status": "204", "Description": "EOB", "Nats-Last-Consumer": "x", "Nats-Consumer-Stalled": "cb.x"}
    async with jetstream(nats_url, group_commit=False) as (log,):
        for type in ("node.progress", "node.exit", "node.progress"):
            await log.publish(OutgoingMessage(log.subjects.event(RUN, "d", type), entry(1, type=type).data, strange))
        assert len(await log.read(RUN)) == 3
        async with log.follow(log.subjects.run(RUN), 0) as feed:
            with anyio.fail_after(PATIENCE_S):
                assert [(await anext(feed)).sequence for _ in range(3)] == [1, 2, 3]
        async with consumption(log, "mine", log.subjects.run(RUN)) as consumer:
            await log.publish(
                OutgoingMessage(log.subjects.event(RUN, "d", "node.exit"), entry(2, type="node.exit").data, strange)
            )
            with anyio.fail_after(PATIENCE_S):
                assert [taken.recorded.sequence for taken in await consumer.batch()] == [4]
        found: list[int] = []
        complete = anyio.Event()

        def take(delivery: Delivery) -> None:
            found.append(delivery.sequence)
            if len(found) == 4:
                complete.set()

        await ensure_consumer(log.requests, log.stream, "all", [log.subjects.run(RUN)], PATIENCE_S)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Puller(log.nc, log.stream, "all", take, Outbox(log.nc).send).run)
            with anyio.fail_after(PATIENCE_S):
                await complete.wait()
            tasks.cancel_scope.cancel()
    assert found == [1, 2, 3, 4]


async def test_a_slow_follower_buffers_few_bytes_and_misses_nothing(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "FEED_BYTES_MAX", 50_000)
    async with jetstream(nats_url, group_commit=False) as (log,):
        large = entry(1, "x" * 20_000)
        subject = log.subjects.event(RUN, "d", large.type)
        for _ in range(40):
            await log.publish(OutgoingMessage(subject, large.data, {}))
        feed = Feed(log.requests, log.subjects, log.stream, [log.subjects.run(RUN)], 0, NoKeys())
        await feed.begin()
        await until(lambda: feed.held_bytes >= 50_000)
        seen: list[int] = []
        with anyio.fail_after(PATIENCE_S):
            async for item in feed.events():
                seen.append(item.sequence)
                # Time for more to come, if there were room.
                await log.last(RUN)
                assert feed.held_bytes <= 50_000 + len(large.data)
                if len(seen) == 40:
                    break
        await feed.close()
        assert feed.held_bytes == 0
    assert seen == list(range(1, 41))


async def test_a_sequence_that_another_writer_used_is_skipped(nats_url: str) -> None:
    async with jetstream(nats_url, group_commit=False) as (log,):
        theirs = [
            await log.publish(OutgoingMessage("cb.start.acme", b"", {MESSAGE_ID: id})) for id in ("tell-7", "tell-7+1")
        ]
        assert theirs == [1, 2]
        ours = OutgoingMessage(log.subjects.command(0, RUN, "signal"), b"{}", {})
        sequence = await log.publish_once(ours, "tell-7")
        assert await log.publish_once(ours, "tell-7") == sequence == 3
        assert await stored(log, ours.subject) == 1


async def test_a_partly_written_value_is_missing(nats_url: str) -> None:
    async with jetstream(nats_url, group_commit=False) as (log,):
        data = os.urandom(3 * CHUNK_BYTES)
        digest = sha256(data).hexdigest()
        for i in (0, 1):
            chunk = data[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES]
            await publish(
                log.requests, OutgoingMessage(f"{log.subjects.blob(RUN, digest)}.{i}", chunk, {"Cb-Chunks": "3"})
            )
        with pytest.raises(KeyError):
            await log.get_blob(RUN, digest)
        await log.put_blob(RUN, digest, data)
        assert await log.get_blob(RUN, digest) == data


def in_s(seconds: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)


async def stored(log: JetStreamLog, subject: str) -> int:
    """How many messages the stream holds on a subject."""
    info = await log.nc.jetstream().stream_info(log.stream, subjects_filter=subject)
    return (info.state.subjects or {}).get(subject, 0)


RUNS_UNDER_LOAD = 20
EVENTS_UNDER_LOAD = 30
KILLED_AFTER = RUNS_UNDER_LOAD * EVENTS_UNDER_LOAD // 3
"""Acknowledged events after which the server is killed, in the middle of the rest."""


@both_commits
async def test_a_server_killed_under_load_loses_and_duplicates_nothing(tmp_path: Path, group_commit: bool) -> None:
    runs = [RunRef("acme", f"load-{i}") for i in range(RUNS_UNDER_LOAD)]
    acknowledged: dict[RunRef, list[int]] = {ref: [] for ref in runs}
    killed = False
    async with (
        EmbeddedServer(tmp_path, sync="100ms") as server,
        open_nats_connection(server.url, name="writer") as nc,
    ):
        log = await open_log(nc, Subjects(), partitions=4, group_commit=group_commit)

        async def write(ref: RunRef) -> None:
            nonlocal killed
            mine = acknowledged[ref]
            for n in range(1, EVENTS_UNDER_LOAD + 1):
                mine.append(await append(log, ref, [entry(n, ref.run)], mine[-1] if mine else 0))
                if not killed and sum(map(len, acknowledged.values())) >= KILLED_AFTER:
                    killed = True
                    server.kill()

        async with anyio.create_task_group() as tasks:
            for ref in runs:
                tasks.start_soon(write, ref)
        assert killed
        for ref in runs:
            found = await log.read(ref)
            assert [each.sequence for each in found] == acknowledged[ref]
            assert [each.id for each in found] == [f"{ref.run}.1.{n}" for n in range(1, EVENTS_UNDER_LOAD + 1)]


async def test_a_follower_continues_after_the_server_was_killed(tmp_path: Path) -> None:
    async with (
        EmbeddedServer(tmp_path, sync="100ms") as server,
        open_nats_connection(server.url, name="writer") as nc,
    ):
        log = await open_log(nc, Subjects(), partitions=4)
        async with log.follow(log.subjects.run(RUN), 0) as feed:
            before = await append(log, RUN, [entry(1)], 0)
            assert [each.sequence for each in await take(feed, 1)] == [before]
            server.kill()
            after = await append(log, RUN, [entry(2)], before)
            assert [each.sequence for each in await take(feed, 1)] == [after]
