"""Fast batches: a turn is stored message by message, with one answer, and never after an event of another worker."""

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from callboard.bus.errors import RunLost
from callboard.bus.log.port import Alarm, AppendRefused, append
from callboard.bus.nats.commit import OutgoingMessage, fast_batched, guard_headers
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.subjects import Subjects
from tests.support.log_kinds import OTHER, PATIENCE_S, RUN, T0, entry, jetstream


@asynccontextmanager
async def two_logs(url: str) -> AsyncGenerator[tuple[JetStreamLog, JetStreamLog]]:
    """Open two logs on one stream; the first one commits every turn as a fast batch, if nobody disturbs it."""
    async with jetstream(url, group_commit=True, writers=2) as (fast, other):
        await fast.choose_commit(group_commit=True, batches=False)
        assert fast.fast
        yield fast, other


async def put_turns(log: JetStreamLog, turns: int = 2) -> int:
    """Store turns of two events, so that the next turn is a fast batch; return the last sequence."""
    after = 0
    for n in range(1, 2 * turns, 2):
        after = await log.put(RUN, [entry(n), entry(n + 1)], after)
    return after


async def stored(log: JetStreamLog) -> list[str]:
    """Return the ids of the run's events."""
    return [each.id for each in await log.read(RUN)]


def ids(*numbers: int, writer: str = "w") -> list[str]:
    return [f"{writer}.1.{n}" for n in numbers]


async def test_a_turn_takes_one_answer_and_its_events_follow_each_other(nats_url: str) -> None:
    async with two_logs(nats_url) as (log, _):
        after = await put_turns(log)
        before = log.nc.stats["in_msgs"]
        last = await log.put(RUN, [entry(n) for n in range(5, 9)], after)
        assert log.nc.stats["in_msgs"] == before + 1
        assert [each.sequence for each in await log.read(RUN)][-4:] == list(range(after + 1, last + 1))
        assert await stored(log) == ids(*range(1, 9))


async def test_a_turn_of_a_lost_run_stores_nothing(nats_url: str) -> None:
    """The event of the other worker has the sequence that the second event of the turn expects."""
    async with two_logs(nats_url) as (log, other):
        after = await put_turns(log)
        assert await append(other, RUN, [entry(5, "theirs")], after) == after + 1
        with pytest.raises(AppendRefused):
            await log.put(RUN, [entry(5, "ours"), entry(6, "ours")], after)
        assert await stored(log) == [*ids(1, 2, 3, 4), *ids(5, writer="theirs")]


async def test_nothing_of_a_turn_is_stored_after_an_event_of_another_worker(nats_url: str) -> None:
    """The other worker follows the first event of a turn before the rest of the turn arrives."""
    async with two_logs(nats_url) as (log, other):
        after = await put_turns(log)
        first, *rest = fast_batched(turn(log, after, 3), log.requests.name_batch(), after)
        await log.nc.publish(first.subject, first.data, first.reply, first.headers)
        await log.nc.flush()
        theirs = entry(6, "theirs")
        assert await append(other, RUN, [theirs], after + 1) == after + 2
        answer: asyncio.Future[Callable[[], bytes]] = asyncio.get_running_loop().create_future()
        log.requests.post(rest, answer.set_result)
        assert b"error" in (await answer)()
        assert await stored(log) == [*ids(1, 2, 3, 4, 5), theirs.id]


def turn(log: JetStreamLog, after: int, events: int) -> Sequence[OutgoingMessage]:
    """Return the messages of a turn that begins with the fifth event of the run."""
    return [
        OutgoingMessage(
            log.subjects.event(RUN, "d", "node.progress"),
            entry(n).data,
            {**guard_headers(after, log.subjects.run(RUN)), "Cb-Id": entry(n).id},
        )
        for n in range(5, 5 + events)
    ]


async def test_a_turn_is_stored_once_if_others_write_to_the_stream(nats_url: str) -> None:
    async with two_logs(nats_url) as (log, other):
        after = theirs = 0
        for n in range(1, 40, 2):
            if n % 3 == 0:
                theirs = await append(other, OTHER, [entry(n)], theirs)
            after = await append(log, RUN, [entry(n), entry(n + 1)], after)
        assert await stored(log) == ids(*range(1, 41))


async def test_a_refused_event_sets_no_alarm(nats_url: str) -> None:
    async with two_logs(nats_url) as (log, _):
        after = await put_turns(log)
        with pytest.raises(AppendRefused):
            await log.put(RUN, [entry(5), entry(6, type="run.parked")], after - 1, Alarm(T0 + dt.timedelta(1), 3))
        assert await log.last_message(log.subjects.timer(RUN)) is None
        assert await stored(log) == ids(1, 2, 3, 4)


async def test_racing_workers_never_store_events_of_the_same_number(nats_url: str) -> None:
    async with jetstream(nats_url, group_commit=True, writers=3) as logs:
        for log in logs:
            await log.choose_commit(group_commit=True, batches=False)
        after = 0
        won = list[str]()

        async def compete(log: JetStreamLog, name: str, n: int) -> None:
            nonlocal after
            entries = [entry(n, name), entry(n + 1, name)]
            try:
                after = await append(log, RUN, entries, before)
            except RunLost:
                return
            won.extend(each.id for each in entries)

        for n in range(1, 60, 2):
            before = after
            # The winner of a round is undisturbed if its log is the first to write again.
            async with anyio.create_task_group() as tasks:
                for i in range(3):
                    number = (n // 2 // 5 + i) % 3
                    tasks.start_soon(compete, logs[number], f"w{number}", n)
        assert await stored(logs[0]) == won
        assert [each.event.n for each in await logs[0].read(RUN)] == list(range(1, 61))


async def test_a_server_killed_between_turns_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    async with (
        EmbeddedServer(tmp_path, sync="100ms") as server,
        open_nats_connection(server.url, name="writer") as nc,
    ):
        log = await open_log(nc, Subjects(), partitions=4, ours=True)
        await log.choose_commit(group_commit=True, batches=False)
        after = 0
        with anyio.fail_after(PATIENCE_S):
            for n in range(1, 90, 3):
                if n % 30 == 1:
                    asyncio.get_running_loop().call_soon(server.kill)
                after = await append(log, RUN, [entry(n), entry(n + 1), entry(n + 2)], after)
        assert await stored(log) == ids(*range(1, 91))
