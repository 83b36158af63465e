"""Conformance tests for every implementation of the log: writing, reading, following and large values."""

import os
from hashlib import sha256

import pytest

from callboard.bus.log.port import (
    AppendRefused,
    EventLog,
)
from callboard.bus.nats import blobs as blobs_module
from callboard.bus.nats import jetstream as jetstream_module
from callboard.bus.nats.blobs import CHUNK_BYTES, CHUNKS_AT_ONCE
from callboard.bus.subjects import RunRef, Subjects
from tests.support.log_kinds import OTHER, RUN, TYPES, WRITERS, entry, take
from tests.support.log_kinds import committing as committing  # fixtures
from tests.support.log_kinds import log as log
from tests.support.log_kinds import writers as writers

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
