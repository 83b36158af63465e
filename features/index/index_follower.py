"""Following: it keeps an index up to date with the log, and resumes where the last process stopped."""

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from anyio import to_thread
from nats.aio.msg import Msg

from callboard.bus.errors import CallboardError
from callboard.bus.events import RunAccepted
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import NoAnswer, Recorded, decode_recorded, whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api, direct_get
from callboard.bus.nats.newest import LOOK_AGAIN_S, News
from callboard.bus.nats.purge import decode_mark
from callboard.bus.prices import Prices, list_prices
from callboard.bus.subjects import RunRef
from callboard.features.index.files import slot
from callboard.features.index.store import RunIndex, Taken, mark_of, remove

logger = structlog.get_logger(__name__)

T = TypeVar("T")

CATCH_UP_WAIT_S = 60.0
"""The time that a query waits for the index to catch up with the log. It starts again whenever the index advances."""

TOGETHER_MAX = 500
TOGETHER_BYTES_MAX = 8 * 1024 * 1024
"""Limits of the events that are indexed at once: their number, and roughly their bytes, with their large values."""

GONE_MAX = 10_000
"""The maximum number of purged runs in memory, whose events are skipped if they were read before the purge."""

IN_FILE_MAX = 1_000_000
IN_MEMORY_MAX = 120_000
"""The maximum number of runs in an index: the newest of the tenant. Older ones are only in the log."""


_OF_A_QUESTION = (sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.NotSupportedError, UnicodeEncodeError)
"""Errors of a single query, such as a parameter that SQLite does not accept. They do not affect the index."""


class QuestionFailed(CallboardError):
    """Raised if the index cannot answer one query but can answer others."""

    def __init__(self, reason: str) -> None:
        remedy = "Change the query: remove control characters and unpaired surrogates."
        super().__init__("find.question", f"the index cannot answer the query: {reason}", "", remedy)


class Following:
    """The index of a tenant's runs, kept up to date from the log. Run it in a task."""

    def __init__(self, log: JetStreamLog, tenant: str, folder: Path | None, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._log = log
        self._tenant = tenant
        self._folder = folder
        self._filter = log.subjects.events(tenant, event_type="run.>")
        self._news = News(log, [self._filter])
        self._index: RunIndex | None = None
        self._read = 0
        self._pending: list[Taken] = []
        self._pending_bytes = 0
        self._gone: dict[str, int] = {}
        self._one = anyio.CapacityLimiter(1)
        self._taking = anyio.Lock()
        self._grown = anyio.Event()
        self._scope = anyio.CancelScope()
        self._broken = False
        self.failed = False
        self.taken = 0
        """The number of events that this process has indexed."""

    async def run(self) -> None:
        """Follow the log until cancelled."""
        with ExitStack() as stack:
            path = stack.enter_context(slot(self._folder, self._tenant))
            try:
                with self._scope:
                    await self._open(path)
                    async with self._log.without_keys().follow(self._filter, self._read) as feed:
                        async for item in feed:
                            await self._hear(item)
            except Exception:
                # The next query opens the index again.
                logger.exception("index failed", tenant=self._tenant)
                self.give_up()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._close()
                    if self._broken and path is not None:
                        await self._in_thread(lambda: remove(path))

    def give_up(self) -> None:
        """Stop following, and wake the queries that wait, which then fail."""
        self._scope.cancel()
        self.failed = True
        self._wake()

    async def caught_up(self) -> None:
        """Wait until the index has caught up with the current end of the log.

        :raises NoAnswer: if the log does not answer, or the index does not advance
        """
        wanted = await self._news.last() if await self._news.behind(self._read) else self._read
        before, since = self._read, anyio.current_time()
        while self._lacks(wanted):
            with anyio.move_on_after(LOOK_AGAIN_S):
                while self._lacks(wanted):
                    await self._grown.wait()
            if self._read != before:
                before, since = self._read, anyio.current_time()
            elif anyio.current_time() >= since + CATCH_UP_WAIT_S:
                break
            elif self._lacks(wanted):
                wanted = min(wanted, await self._news.last())
        if self._index is None or self._read < wanted or self.failed:
            raise NoAnswer(f"the index is at {self._read} of {wanted}")
        await self._take()
        await self._forget(self._index)

    def _lacks(self, wanted: int) -> bool:
        return (self._index is None or self._read < wanted) and not self.failed

    async def ask(self, question: Callable[[RunIndex], T]) -> T:
        """Query the index in its current state, in a thread, because a query may take long.

        :raises QuestionFailed: if SQLite cannot answer this query
        :raises NoAnswer: if the index is not open or has failed
        """
        index = self._index
        if index is None or self.failed:
            raise NoAnswer("the index is not open")
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

    async def _open(self, path: Path | None) -> None:
        source = await self._source()
        index = await self._in_thread(lambda: _open_index(path, source, self._prices))
        self._index = index
        await self._forget(index)
        if index.sequence and not await self._holds(index):
            # Runs were removed from the log, or it was restored from a backup. The affected runs are unknown.
            await self._in_thread(index.clear)
        self._read = index.sequence
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
        request = {"next_by_subj": self._filter, "seq": index.sequence, "batch": 1}
        messages, _ = await direct_get(self._log.nc, self._log.stream, request)
        if [self._mark(message) for message in messages] != [(index.sequence, index.mark)]:
            return False
        if index.count >= index.runs_max:
            return True
        all, behind = await self._runs_from(1), await self._runs_from(index.sequence + 1)
        return all - behind == index.count

    def _mark(self, message: Msg) -> tuple[int, str]:
        headers = message.headers or {}
        sequence, subject = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
        ref = self._log.subjects.parse_event(subject).ref
        return sequence, mark_of(decode_recorded(subject, sequence, ref, "", message.data).event)

    async def _runs_from(self, sequence: int) -> int:
        """Return the number of runs in the log that were accepted at a sequence or later."""
        filter = self._log.subjects.events(self._tenant, event_type=RunAccepted.type)
        request = {"next_by_subj": filter, "seq": sequence, "batch": 1}
        messages, pending = await direct_get(self._log.nc, self._log.stream, request)
        return len(messages) + pending

    async def _hear(self, item: Recorded) -> None:
        if item.sequence > self._gone.get(item.ref.run, 0):
            # Large values are searched as well, but few events have any.
            event = await whole(self._log, item)
            self._pending.append(Taken(item.sequence, event))
            self._pending_bytes += len(event.payload)
        self._read = item.sequence
        if len(self._pending) >= TOGETHER_MAX or self._pending_bytes >= TOGETHER_BYTES_MAX:
            await self._take()
        self._wake()

    async def _take(self) -> None:
        """Index the pending events."""
        async with self._taking:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            if pending:
                unknown = await self.ask(lambda index: index.take(pending, pending[-1].sequence))
                self.taken += len(pending)
                await self._take_unadmitted(unknown)

    async def _take_unadmitted(self, unknown: list[Taken]) -> None:
        """Index the unknown runs whose first event the log has lost.

        Other unknown runs are older than the oldest run in the index, or have been purged.
        """
        lost: list[Taken] = []
        for one in unknown:
            ref = RunRef(self._tenant, one.event.run)
            may_be_lost = one.event.n > 1 or one.event.type == UNREADABLE
            there = may_be_lost and await self._log.last(ref) is not None
            if there and not await self._has_admission(ref):
                lost.append(one)
        if lost:
            await self.ask(lambda index: index.take_unadmitted(lost))

    async def _has_admission(self, ref: RunRef) -> bool:
        first = await self._log.last_of_type(ref, RunAccepted.type)
        return first is not None and (await whole(self._log, first)).type != UNREADABLE

    async def _forget(self, index: RunIndex) -> None:
        """Remove the runs that were purged since the last call."""
        runs, sequence = dict[str, int](), index.gone
        marks = self._log.subjects.all_gone(self._tenant)
        while (mark := await self._log.next_message(marks, sequence + 1)) is not None:
            sequence = mark.sequence
            if (told := decode_mark(self._log, mark.subject, mark.data)) is not None:
                runs[told.run] = self._gone[told.run] = sequence
        while len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        if runs:
            await self.ask(lambda index: index.forget(runs, sequence))

    async def _close(self) -> None:
        if self._index is None:
            return
        if not self.failed:
            with suppress(NoAnswer):
                await self._take()
        index, self._index = self._index, None
        await self._in_thread(index.close)

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
