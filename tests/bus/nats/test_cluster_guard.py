"""The chain guard on a real cluster: racing writers, single events and batches of differing types, a leader that dies.

Two write single events (one of them through group commit), two write batches of two. Each is connected to one of the
servers. In every round all of them try to follow the same last event.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from callboard.bus.errors import RunLost
from callboard.bus.log.port import AppendRefused, Entry, NoAnswer, Purged, Shares, append
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.commit import OutgoingMessage, guard_headers, publish_batch
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import MARK, JetStreamLog, open_log
from callboard.bus.nats.purge import PurgeMark, mark_gone, purge_mark
from callboard.bus.subjects import RunRef, Subjects
from tests.support.cluster import SERVERS, Cluster, cluster
from tests.support.log_kinds import TYPES, entry

RUN = RunRef("acme", "contested")
ROUNDS_BEFORE = 60
ROUNDS_AFTER = 20
FORKED_AND_PURGED = 40
"""Runs that are forked and purged at once, at two servers."""

HEAD_STARTS_ROUND_TRIPS = (1, 4, 16, 64, 256, 1024, 4096)
HEAD_STARTS = [round_trips for round_trips in HEAD_STARTS_ROUND_TRIPS[:5] for _ in range(4)]
"""How many round trips to its server the second waits, where at once the same may always be first."""

RETRY_PAUSE_S = 0.1
PATIENCE_S = 60.0


@dataclass
class Writer:
    """A worker that believes to own the run, and appends ``events`` of one type at once."""

    name: str
    type: str
    log: JetStreamLog
    events: int
    won: list[str] = field(default_factory=list[str])
    """Marks of the events that were acknowledged to it."""

    async def compete(self, n: int, after: int) -> int | None:
        """Try to write the events from n; return the last sequence, or None if another writer was first."""
        entries = [entry(n + i, self.name, type=self.type) for i in range(self.events)]
        sequence = await (self._one(entries[0], after) if self.events == 1 else self._batch(entries, after))
        if sequence is not None:
            self.won += [each.id for each in entries]
        return sequence

    async def _one(self, entry: Entry, after: int) -> int | None:
        try:
            return await append(self.log, RUN, [entry], after)
        except RunLost:
            return None

    async def _batch(self, entries: list[Entry], after: int) -> int | None:
        """As `append` does it: unknown is repeated, and a refusal looked into."""
        messages = [self._message(each, after) for each in entries]
        while True:
            try:
                return await publish_batch(self.log.requests, messages)
            except NoAnswer:
                pass
            except AppendRefused:
                last = await self._last()
                if last is not None and last.id == entries[-1].id:
                    return last.sequence
                if last is not None and last.sequence != after:
                    return None
            await anyio.sleep(RETRY_PAUSE_S)

    async def _last(self) -> Recorded | None:
        while True:
            try:
                return await self.log.last(RUN)
            except NoAnswer:
                await anyio.sleep(RETRY_PAUSE_S)

    def _message(self, entry: Entry, after: int) -> OutgoingMessage:
        subjects = self.log.subjects
        headers = {**guard_headers(after, subjects.run(RUN)), MARK: entry.id}
        return OutgoingMessage(subjects.event(RUN, entry.definition, entry.type), entry.data, headers)


@asynccontextmanager
async def racing(servers: Cluster) -> AsyncGenerator[list[Writer]]:
    """Four writers, each with its own connection."""
    async with AsyncExitStack() as stack:
        writers: list[Writer] = []
        for i, events in enumerate((1, 1, 2, 2)):
            urls = ",".join(servers.urls[i % SERVERS :] + servers.urls[: i % SERVERS])
            nc = await stack.enter_async_context(open_nats_connection(urls, name=f"writer-{i}"))
            log = await open_log(nc, Subjects(), partitions=4, replicas=SERVERS, group_commit=i == 1)
            writers.append(Writer(f"writer-{i}", TYPES[i], log, events))
        yield writers


@dataclass
class Race:
    """The rounds so far: where the run ends, and who was acknowledged."""

    writers: list[Writer]
    n: int = 0
    after: int = 0
    rounds: int = 0

    async def round(self, first: Writer | None = None, head_start: int = 0) -> None:
        """Let all write at once; or one first, and the others a number of round trips later."""
        winners: dict[str, int] = {}

        async def compete(writer: Writer) -> None:
            if first is not None and writer is not first:
                for _ in range(head_start):
                    await writer.log.nc.flush()
            sequence = await writer.compete(self.n + 1, self.after)
            if sequence is not None:
                winners[writer.name] = sequence

        async with anyio.create_task_group() as tasks:
            # The writer that begins has an advantage, so each one begins in turn.
            for i in range(len(self.writers)):
                tasks.start_soon(compete, self.writers[(self.rounds + i) % len(self.writers)])
        assert len(winners) == 1, f"event {self.n + 1}: acknowledged to {winners}"
        ((name, self.after),) = winners.items()
        self.n += next(writer.events for writer in self.writers if writer.name == name)
        self.rounds += 1

    async def until_all_have_won(self) -> None:
        """Let writers that never won begin before the others, as the one at the leader would always win otherwise."""
        for writer in self.writers:
            for head_start in HEAD_STARTS_ROUND_TRIPS:
                if not writer.won:
                    await self.round(writer, head_start)


async def test_one_writer_wins_each_round_with_any_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers, racing(servers) as writers:
        race = Race(writers)
        for _ in range(ROUNDS_BEFORE):
            await race.round()
        let_in = {await note_or_mark(writers, n) for n in range(FORKED_AND_PURGED)}
        for n, head_start in enumerate(HEAD_STARTS, FORKED_AND_PURGED):
            let_in |= {await note_or_mark(writers, n, head_start)}
        assert let_in == {"note", "mark"}
        leader = await servers.leader(writers[0].log.stream)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, servers.kill, leader)
            await race.round()
        assert not servers.running(leader)
        for _ in range(ROUNDS_AFTER):
            await race.round()
        await race.until_all_have_won()
        found = await whole(writers[0].log, race.after)
    assert [each.event.n for each in found] == list(range(1, race.n + 1))
    assert sorted(each.id for each in found) == sorted(mark for writer in writers for mark in writer.won)
    assert all(writer.won for writer in writers), "the rounds were no race"


async def note_or_mark(writers: list[Writer], n: int, head_start: int = 0) -> str:
    """Have a run forked and purged at once, or nearly so, by writers at different servers; return what was let in."""
    origin, fork = RunRef("acme", f"origin-{n}"), RunRef("acme", f"fork-{n}")
    sharing, purging = writers[n % 2].log, writers[1 - n % 2].log
    let_in: list[str] = []

    async def share() -> None:
        with suppress(Purged):
            await append(sharing, fork, [entry(1, "fork")], 0, Shares(origin))
            let_in.append("note")

    async def mark() -> None:
        with suppress(AppendRefused):
            await mark_gone(purging, origin, PurgeMark(), forked=0)
            let_in.append("mark")

    async def behind(second: Callable[[], Awaitable[None]]) -> None:
        for _ in range(head_start):
            await sharing.nc.flush()
        await second()

    first, second = (share, mark) if n % 4 < 2 else (mark, share)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        tasks.start_soon(behind, second)
    assert len(let_in) == 1, let_in
    stored = await sharing.last(fork) is not None, await purge_mark(sharing, origin) is not None
    assert stored == (let_in == ["note"], let_in == ["mark"])
    return let_in[0]


async def whole(log: JetStreamLog, last: int) -> list[Recorded]:
    """Read the run up to a sequence; a replica that answers may lack events for a moment."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = await log.read(RUN)
            if found and found[-1].sequence >= last:
                return found
            await anyio.sleep(RETRY_PAUSE_S)
