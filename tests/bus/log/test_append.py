"""Conformance tests for every implementation of the log: appends with faults, and racing writers."""

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Literal

import anyio
import pytest

from callboard.bus.errors import LogUnavailable, RunLost
from callboard.bus.log.encryption import KeyRing
from callboard.bus.log.memory import Fault
from callboard.bus.log.port import AppendRefused, Beside, Entry, EventLog, LogReader, NoAnswer, append
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats import jetstream_api
from callboard.bus.nats.commit import BATCH_MESSAGES_MAX
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from tests.support.log_kinds import (
    PATIENCE_S,
    RUN,
    TYPES,
    WRITERS,
    entry,
    jetstream,
)
from tests.support.log_kinds import committing as committing  # fixtures
from tests.support.log_kinds import log as log
from tests.support.log_kinds import writers as writers

ROUNDS = 20


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
