"""Following: it keeps an index up to date with the log, and resumes where the last process stopped."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import structlog
from anyio import to_thread
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.errors import CallboardError, LogUnreadable
from callboard.bus.events import RunAccepted, RunEnd
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import NoAnswer, whole
from callboard.bus.log.recorded import decode_recorded
from callboard.bus.nats.batches import BATCH_MAX, StoredBytes, open_batches, recorded_of
from callboard.bus.nats.cooling import count_cold_runs
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api, direct_get
from callboard.bus.nats.newest import LOOK_AGAIN_S, NewMessages
from callboard.bus.nats.purge import decode_mark
from callboard.bus.prices import Prices, list_prices
from callboard.bus.subjects import RunRef
from callboard.features.index.files import file_of, inode_of, is_kept, slot
from callboard.features.index.questions import HumanEvent, IndexedQuestions
from callboard.features.index.store import IndexedEvent, PurgedRun, RunIndex, Taken, is_begun, is_known, mark_of, remove
from callboard.projections.lists.questions import Questions

logger = structlog.get_logger(__name__)

T = TypeVar("T")

CATCH_UP_WAIT_S = 60.0
"""The time that a query waits for the index to catch up with the log. It starts again whenever the index advances."""

PAUSE_S = 0.005
PAUSE_MAX_S = 0.1
"""The first and the longest pause between two looks whether the index has caught up."""

FAR = 50_000
FAR_PAUSE_S = 0.3
"""The number of messages in the log from which on an index is far behind, and the time that passes before it reads
them. In this time the first page is read from the end of the log."""

BEGIN_WAIT_S = 2.0
"""How long to wait for another process that has just begun to keep the file of the index."""

LATE_S = 1.0
"""How long the index may be late while no query waits. What is stored in this time is read and indexed at once, so that
a short run is written once, when it has ended."""

DECODED_AT_ONCE = 100
"""Number of messages that are decoded before other tasks get a turn."""

TOGETHER_BYTES_MAX = 8 * 1024 * 1024
"""Limit of the events that are indexed at once: roughly their bytes, with their large values."""

IN_FILE_MAX = 2_000_000
IN_MEMORY_MAX = 120_000
"""The maximum number of runs in an index: the newest of the tenant. Older ones are only in the log."""


_OF_A_QUESTION = (sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.NotSupportedError, UnicodeEncodeError)
"""Errors of a single query, such as a parameter that SQLite does not accept. They do not affect the index."""


class QuestionFailed(CallboardError):
    """Raised if the index cannot answer one query but can answer others."""

    def __init__(self, reason: str) -> None:
        remedy = "Change the query: remove control characters and unpaired surrogates."
        super().__init__("find.question", f"the index cannot answer the query: {reason}", "", remedy)


class IndexFollower:
    """The index of a tenant's runs, kept up to date from the log. Run it in a task.

    One process at a time keeps the file of an index; others read it, and one of them takes over when that process ends.
    """

    def __init__(self, log: JetStreamLog, tenant: str, folder: Path | None, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._log = log
        self._tenant = tenant
        self._folder = folder
        self._filter = log.subjects.events(tenant, event_type="run.>")
        self._marks = log.subjects.all_gone(tenant)
        self._filters = [self._filter, log.subjects.events(tenant, event_type="human.>"), self._marks]
        self._questions = IndexedQuestions(log, tenant)
        self._news = self._no_news()
        self._index: RunIndex | None = None
        self._keeps = False
        self._read = 0
        self._obstacle = ""
        self._failures = 0
        self._one = anyio.CapacityLimiter(1)
        self._grown = anyio.Event()
        self._asked = anyio.Event()
        self._scope = anyio.CancelScope()
        self._broken = False
        self.failed = False
        self.taken = 0
        """The number of events that this process has indexed."""

    async def run(self) -> None:
        """Follow the log until cancelled."""
        try:
            with self._scope:
                source = await self._source()
                while not self.failed:
                    await self._wait_until_begun()
                    with slot(self._folder, self._tenant, lambda path: is_known(path, source)) as file:
                        if file.keeps:
                            await self._keep(file.path, source)
                        elif file.path is not None:
                            await self._share(file.path, source)
        except Exception:
            # The next query opens the index again.
            logger.exception("index failed", tenant=self._tenant)
            self.give_up()

    async def _wait_until_begun(self) -> None:
        """Wait a moment for a process that is just creating the file, so that this process can share it."""
        if self._folder is None or not (path := file_of(self._folder, self._tenant)).with_suffix(".lock").exists():
            return
        with anyio.move_on_after(BEGIN_WAIT_S):
            while is_kept(path) and not await self._in_thread(lambda: is_begun(path)):  # noqa: ASYNC110
                await anyio.sleep(PAUSE_S)

    async def _keep(self, path: Path | None, source: str) -> None:
        """Index the events of the log until cancelled."""
        index = await self._in_thread(lambda: _open_index(path, source, self._prices))
        try:
            await self._check(index)
            if await self._log.last_sequence() - self._read > FAR:
                await anyio.sleep(FAR_PAUSE_S)
            async with (
                self._hear_others(shared=path is not None),
                open_batches(self._log, self._filters, self._read) as batches,
            ):
                while True:
                    messages = await batches.read()
                    await self._take(messages)
                    if not messages:
                        await batches.wait()
                    if len(messages) < BATCH_MAX:
                        await self._wait_for_question(LATE_S)
        finally:
            with anyio.CancelScope(shield=True):
                self._index, self._keeps = None, False
                await self._in_thread(index.close)
                if self._broken and path is not None:
                    await self._in_thread(lambda: remove(path))

    async def _share(self, path: Path, source: str) -> None:
        """Read the index that another process keeps, until that process ends, or replaces the file."""
        file = inode_of(path)
        index = await self._in_thread(lambda: RunIndex(path, source, IN_FILE_MAX, self._prices, shared=True))
        try:
            self._index, self._read = index, index.sequence
            self._wake()
            # Nothing wakes this process when another one ends.
            while is_kept(path) and inode_of(path) == file:  # noqa: ASYNC110
                await anyio.sleep(LOOK_AGAIN_S)
        finally:
            self._index = None
            with anyio.CancelScope(shield=True):
                await self._in_thread(index.close)

    @asynccontextmanager
    async def _hear_others(self, *, shared: bool) -> AsyncGenerator[None]:
        """Hear during the block that queries of other processes wait for the index, if others read it."""

        async def hear(_message: Msg) -> None:
            self._asked.set()

        if not shared:
            yield
            return
        subscription = await self._log.nc.subscribe(self._log.subjects.index(self._tenant), cb=hear)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True), suppress(NatsError):
                await subscription.unsubscribe()

    async def _ask_to_catch_up(self) -> None:
        self._asked.set()
        if self._index is not None and not self._keeps:
            with suppress(NatsError):
                await self._log.nc.publish(self._log.subjects.index(self._tenant))

    async def _wait_for_question(self, most_s: float) -> None:
        """Wait until a query waits for the index, for a time at most."""
        with anyio.move_on_after(most_s):
            await self._asked.wait()
        self._asked = anyio.Event()

    def give_up(self) -> None:
        """Stop following, and wake the queries that wait, which then fail."""
        self._scope.cancel()
        self.failed = True
        self._wake()

    async def caught_up(self) -> int:
        """Wait until the index has caught up with the current end of the log; return the sequence of that end.

        :raises NoAnswer: if the log does not answer, or the index does not advance
        """
        failures, end = self._failures, await self._log.last_sequence()
        before, since, pause_s = self._read, anyio.current_time(), PAUSE_S
        while await self._lacks(end):
            if self._failures > failures:
                raise NoAnswer(self._obstacle)
            await self._ask_to_catch_up()
            if self.failed or anyio.current_time() >= since + CATCH_UP_WAIT_S:
                raise NoAnswer(f"the index is at {self._read} of {end}")
            with anyio.move_on_after(LOOK_AGAIN_S if self._keeps else pause_s):
                await self._grown.wait()
                await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            if self._read != before:
                before, since = self._read, anyio.current_time()
        return end

    async def _lacks(self, end: int) -> bool:
        """Return whether the index lacks events, or purges, up to a sequence."""
        index = self._index
        if index is None or self.failed:
            return True
        if not self._keeps:
            await self._ask(index, RunIndex.refresh)
            if index.sequence < self._read:
                # The process that keeps the index builds it again.
                self._news = self._no_news()
            self._read = index.sequence
        return await self._news.behind(self._read, end) or self._index is not index or self.failed

    def _no_news(self) -> NewMessages:
        return NewMessages(self._log, self._filters)

    async def ask(self, question: Callable[[RunIndex], T]) -> T:
        """Query the index in its current state, in a thread, because a query may take long.

        :raises QuestionFailed: if SQLite cannot answer this query
        :raises NoAnswer: if the index is not open or has failed
        """
        index = self._index
        if index is None or self.failed:
            raise NoAnswer("the index is not open")
        return await self._ask(index, question)

    async def questions(self) -> Questions:
        """Return the questions of all runs in the index's current state. Raises as `ask`."""
        return await self._questions.read(self.ask)

    async def _ask(self, index: RunIndex, question: Callable[[RunIndex], T]) -> T:
        try:
            return await self._in_thread(lambda: question(index))
        except _OF_A_QUESTION as error:
            # The index itself is intact: SQLite raises the base class for a damaged one.
            raise QuestionFailed(str(error)) from error
        except sqlite3.Error as error:
            logger.warning("the index is damaged and will be rebuilt", tenant=self._tenant, error=str(error))
            self._broken = True
            self.give_up()
            raise NoAnswer(f"the index failed: {error}") from error

    async def _check(self, index: RunIndex) -> None:
        """Check that an index is that of this log, and answer queries from it."""
        if index.sequence and not await self._holds(index):
            # Runs were removed from the log, or it was restored from a backup. The affected runs are unknown.
            await self._in_thread(index.clear)
        self._index, self._keeps, self._read = index, True, index.sequence
        self._news = self._no_news()
        self._wake()

    async def _source(self) -> str:
        """Return a text that identifies the stream and the prices."""
        answer = await api(self._log.requests, f"STREAM.INFO.{self._log.stream}", {})
        if "error" in answer:
            raise NoAnswer(str(answer["error"].get("description")))
        # With other prices, the costs in the index are wrong.
        return f"{self._log.stream} {self._log.subjects.prefix} {answer['created']} {self._prices.digest}"

    async def _holds(self, index: RunIndex) -> bool:
        """Return whether the log has the last event of the index, and as many runs before it as the index."""
        if index.last:
            request = {"next_by_subj": self._filter, "seq": index.last, "batch": 1}
            messages, _ = await direct_get(self._log.nc, self._log.stream, request)
            if [self._mark(message) for message in messages] != [(index.last, index.mark)]:
                return False
        if index.count >= index.runs_max:
            return True
        here, behind = await self._runs_from(1), await self._runs_from(index.sequence + 1)
        # At most as many: those that are being moved, or have been purged since, are counted as well.
        cold = await count_cold_runs(self._log, self._tenant)
        purged = await self._count(self._marks, index.sequence + 1)
        return here <= index.count + behind <= here + cold + purged

    def _mark(self, message: Msg) -> tuple[int, str]:
        headers = message.headers or {}
        sequence, subject = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
        ref = self._log.subjects.parse_event(subject).ref
        return sequence, mark_of(decode_recorded(subject, sequence, ref, headers.get(MARK, ""), message.data).event)

    async def _runs_from(self, sequence: int) -> int:
        """Return the number of runs in the log that were accepted at a sequence or later."""
        return await self._count(self._log.subjects.events(self._tenant, event_type=RunAccepted.type), sequence)

    async def _count(self, filter: str, sequence: int) -> int:
        request = {"next_by_subj": filter, "seq": sequence, "batch": 1}
        messages, pending = await direct_get(self._log.nc, self._log.stream, request)
        return len(messages) + pending

    async def _take(self, messages: Sequence[StoredBytes]) -> None:
        """Index messages in one transaction, or in several if their large values are many."""
        taken, size = list[Taken](), 0
        for place, message in enumerate(messages, 1):
            if place % DECODED_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            one = await self._decode(message)
            size += len(one.event.payload) if isinstance(one, IndexedEvent) else len(message.data)
            if one is not None:
                taken.append(one)
            if place == len(messages) or size >= TOGETHER_BYTES_MAX:
                await self._index_all(taken, message.sequence)
                taken, size = [], 0

    async def _decode(self, message: StoredBytes) -> Taken | None:
        """Return what a message means for the index; None for a message of another application."""
        item = recorded_of(self._log, message)
        if item is None:
            purged = decode_mark(self._log, message.subject, message.data)
            return PurgedRun(message.sequence, purged.run) if purged is not None else None
        if item.event.type.startswith("human."):
            return HumanEvent(message.sequence, item.event, message.id, message.data)
        # Large values are searched as well, but few events have any.
        return IndexedEvent(message.sequence, await whole(self._log, item))

    async def _index_all(self, taken: Sequence[Taken], sequence: int) -> None:
        """Index events, as soon as the log, or the place of cold storage, has answered what that takes."""
        events = [one for one in taken if isinstance(one, IndexedEvent)]
        while True:
            try:
                await self._index_once(taken, events, sequence)
                break
            except NoAnswer as error:
                if self.failed:
                    raise
                self._obstacle, self._failures = str(error), self._failures + 1
                logger.warning("the index waits for the log", tenant=self._tenant, error=self._obstacle)
                # Queries that wait now get the error; the next one has it tried again at once.
                self._asked = anyio.Event()
                self._wake()
                await self._wait_for_question(LOOK_AGAIN_S)
        self._read = sequence
        self.taken += len(events)
        self._wake()

    async def _index_once(self, taken: Sequence[Taken], events: Sequence[IndexedEvent], sequence: int) -> None:
        unknown = await self.ask(lambda index: index.find_unadmitted(events))
        moved = await self._find_moved([one for one in unknown if one.event.type == RunEnd.type])
        lost = await self._lost([one for one in unknown if one.event.run not in moved])
        earlier = [one for run in moved.values() for one in run]
        await self.ask(lambda index: index.take(taken, sequence, earlier, lost))

    async def _lost(self, unknown: Sequence[IndexedEvent]) -> list[IndexedEvent]:
        """Return those of the first events of unknown runs whose runs have lost their admission in the log.

        Other unknown runs are older than the oldest run in the index, or have been purged.
        """
        found: list[IndexedEvent] = []
        for one in unknown:
            ref = RunRef(self._tenant, one.event.run)
            may_be_lost = one.event.n > 1 or one.event.type == UNREADABLE
            there = may_be_lost and await self._log.last(ref) is not None
            if there and not await self._has_admission(ref):
                found.append(one)
        return found

    async def _find_moved(self, ends: Sequence[IndexedEvent]) -> dict[str, list[IndexedEvent]]:
        """Return the events of those of the ended runs that are in cold storage, by the ids of the runs."""
        log = self._log.without_keys()
        found: dict[str, list[IndexedEvent]] = {}
        sequences = {RunRef(self._tenant, one.event.run): one.sequence for one in ends}
        for ref, recorded in (await log.cold.events_of(sequences, log.ring)).items():
            wanted = [one for one in recorded if one.event.type.startswith("run.")]
            found[ref.run] = [IndexedEvent(one.sequence, await whole(log, one)) for one in wanted]
        return found

    async def _has_admission(self, ref: RunRef) -> bool:
        try:
            first = await self._log.last_of_type(ref, RunAccepted.type)
        except LogUnreadable:
            return False  # Its segment is missing or damaged.
        return first is not None and (await whole(self._log, first)).type != UNREADABLE

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await to_thread.run_sync(call, limiter=self._one)

    def _wake(self) -> None:
        grown, self._grown = self._grown, anyio.Event()
        grown.set()


def _open_index(path: Path | None, source: str, prices: Prices) -> RunIndex:
    try:
        return RunIndex(path, source, IN_FILE_MAX if path is not None else IN_MEMORY_MAX, prices)
    except (sqlite3.Error, OSError) as error:
        if path is None:
            raise
        logger.warning("the index is kept in memory", file=str(path), error=str(error))
        return RunIndex(None, source, IN_MEMORY_MAX, prices)
