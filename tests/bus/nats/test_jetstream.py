"""JetStream logs on a real embedded server: alarms, messages, slow followers, and a killed server."""

import datetime as dt
import os
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from callboard.bus.log.encryption import NoKeys
from callboard.bus.log.port import (
    Alarm,
    AppendRefused,
    NoAnswer,
    RunMessage,
    append,
)
from callboard.bus.nats import feed as feed_module
from callboard.bus.nats.blobs import CHUNK_BYTES
from callboard.bus.nats.commit import MESSAGE_ID, OutgoingMessage, publish
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.feed import Feed
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.queue import Delivery, Outbox, Puller, ensure_consumer
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.subjects import RunRef, Subjects, partition_of
from callboard.features.telemetry.event_consumer import consumption
from tests.support.log_kinds import (
    PATIENCE_S,
    RUN,
    entry,
    jetstream,
    take,
)
from tests.support.patience import until

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
