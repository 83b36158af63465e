"""The spans exporter: it folds every run's events into spans and sends each span, when it closes, to a backend.

One process at a time leads (`callboard.runtime.cluster.leader`), though any number of workers offer to export. A leader
saves work, but is not needed to send each span once: the reader that receives an event sends the spans that it closes,
and acknowledges the event when the backend has accepted them. Earlier events of the run are known from deliveries, or
are read from the log and folded without sending. The checkpoint is the durable consumer's acknowledgements, so that
several readers, even two leaders for a moment, do no harm. Only if a reader crashes between sending and acknowledging,
its last batch is sent again, the same spans with the same ids.

Runs do not wait for the exporter. Events that cannot be exported yet stay in the stream, only one batch is in memory,
and a thread sends the spans.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.log.forks import origin_of
from callboard.bus.log.port import EventLog, NoAnswer, whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.prices import Prices
from callboard.bus.subjects import RunRef
from callboard.features.telemetry.event_consumer import DeliveredEvent, consumption
from callboard.lib.backoff import backoff_s
from callboard.projections.spans.span import Span
from callboard.projections.spans.spans import SpanFold
from callboard.runtime.cluster.leader import GRACE_S, RETRY_PAUSE_MAX_S, RETRY_PAUSE_S
from callboard.runtime.run.log import read_run

logger = structlog.get_logger(__name__)

RUNS_MAX = 10_000
"""The maximum number of folds in memory. A run whose fold was dropped is folded again from the log if it continues."""

RUNS_WITH_CONTENT_MAX = 500
"""The maximum number of folds if contents are exported, because a fold then holds the conversations of its run."""

READ_TRIES_MAX = 50
"""The number of times that a run is read until it has the events before a delivered one, because a replica may lag."""

READ_PAUSE_S = 0.1


class SpanExporter(Protocol):
    """The port for sending spans. `callboard.projections.spans.otlp.OtlpExporter` implements it."""

    def export(self, spans: Sequence[Span]) -> None:
        """Send spans in order, and block until they are sent.

        :raises SpanExportFailed: if only the first ``sent`` of them were accepted
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class _Gap(Exception):
    """Raised if the log has no events before a delivered one, because the run was purged since."""


class _Run(Struct):
    """The progress of a run. Without a fold, the run has ended or cannot be folded.

    Every event from ``since`` on was delivered to this process, so that its spans have been sent.
    """

    fold: SpanFold | None
    n: int = 0
    sequence: int = 0
    since: int = 1

    def apply(self, event: ev.Event, sequence: int) -> list[Span]:
        assert self.fold is not None
        spans = self.fold.apply(event)
        self.n, self.sequence = event.n, sequence
        if event.type == ev.RunEnd.type:
            self.fold = None
        return spans


class DeliveredSpans:
    """Folds delivered events of all runs into the spans that they close. Each span is returned once."""

    def __init__(
        self, log: EventLog, runs_max: int | None = None, *, content: bool = False, prices: Prices | None = None
    ) -> None:
        # Delivered events are not decrypted, so events that are read from the log must not be either.
        self._log = log.without_keys()
        self._prices = prices
        self._content = content
        self._runs: OrderedDict[RunRef, _Run] = OrderedDict()
        self._runs_max = runs_max or (RUNS_WITH_CONTENT_MAX if content else RUNS_MAX)

    async def take(self, recorded: Recorded) -> list[Span]:
        """Take a delivered event. Return the spans that it closes, none if the event was already taken.

        :raises NoAnswer: if the log does not answer; take the event again later
        """
        run = self._run(recorded.ref)
        n = recorded.event.n
        if run.n >= n >= run.since:
            return []
        try:
            if n <= run.n:
                # It was folded because a later event was delivered first. This process has not sent its spans.
                return await self._apply(self._unread(), recorded)
            return await self._apply(run, recorded) if run.fold is not None else []
        except NoAnswer:
            raise
        except Exception:
            # A run that cannot be folded must not prevent the export of others.
            logger.exception("run is not exported any further", run=recorded.ref.run, n=n)
            run.fold = None
            return []

    async def _apply(self, run: _Run, recorded: Recorded) -> list[Span]:
        if recorded.event.n > run.n + 1:
            await self._catch_up(run, recorded)
        event = await whole(self._log, recorded)
        if event.n == 1 and (forked := origin_of(event)) is not None:
            # A fork does not receive the events again that it shares with its origin.
            spans: list[Span] = []
            for item in await self._read(recorded.ref, 0):
                if item.event.n <= forked.n:
                    spans += run.apply(item.event, recorded.sequence)
                    await anyio.lowlevel.checkpoint()
            return spans
        return run.apply(event, recorded.sequence)

    async def _read(self, ref: RunRef, after: int) -> list[Recorded]:
        """Read a run.

        :raises _Gap: if it is a fork whose origin was purged
        """
        try:
            return await read_run(self._log, ref, after)
        except NoAnswer:
            first = await self._log.read(ref, limit=1)
            forked = origin_of(first[0].event) if first else None
            if forked is not None and await self._log.last(RunRef(ref.tenant, forked.run)) is None:
                raise _Gap(f"run {forked.run}, whose fork it is, is not in the log") from None
            raise

    async def _catch_up(self, run: _Run, recorded: Recorded) -> None:
        """Fold the events before a given one without returning spans, because another reader received those events."""
        n = recorded.event.n
        for _ in range(READ_TRIES_MAX):
            for earlier in await self._read(recorded.ref, run.sequence):
                if earlier.event.n < n:
                    run.apply(earlier.event, earlier.sequence)
                    await anyio.lowlevel.checkpoint()
            if run.n == n - 1:
                run.since = n
                return
            await anyio.sleep(READ_PAUSE_S)
        raise _Gap(f"event {run.n + 1} is not in the log")

    def _unread(self) -> _Run:
        return _Run(SpanFold(content=self._content, prices=self._prices))

    def _run(self, ref: RunRef) -> _Run:
        run = self._runs.get(ref)
        if run is None:
            run = self._runs[ref] = self._unread()
            if len(self._runs) > self._runs_max:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(ref)
        return run


class SpansExporter:
    """Sends every span that closes, starting at the durable consumer's checkpoint. A `Leader`."""

    def __init__(
        self,
        log: JetStreamLog,
        exporter: SpanExporter,
        durable: str,
        *,
        content: bool = False,
        prices: Prices | None = None,
    ) -> None:
        self._log = log
        self._prices = prices
        self._content = content
        self._exporter = exporter
        self._durable = durable
        self._spans = DeliveredSpans(log, content=content, prices=prices)
        self._in_hand: anyio.CancelScope | None = None
        self._sent = True
        self._thread = anyio.CapacityLimiter(1)

    async def run(self, orphaned: bool) -> None:
        """Export until cancelled."""
        if not self._sent:
            # The last batch was folded but not sent. It is delivered again, so it must not count as taken.
            self._spans = DeliveredSpans(self._log, content=self._content, prices=self._prices)
        async with consumption(self._log, self._durable, self._log.subjects.events(), orphaned=orphaned) as reader:
            while True:
                taken = await reader.batch()
                self._sent = False
                with anyio.CancelScope(shield=True) as self._in_hand:
                    await self._send(await self._fold(taken))
                    await reader.acknowledge(taken)
                    self._sent = True
                self._in_hand = None
                await anyio.lowlevel.checkpoint()

    def hurry(self) -> None:
        if self._in_hand is not None:
            self._in_hand.deadline = anyio.current_time() + GRACE_S

    async def _fold(self, taken: Sequence[DeliveredEvent]) -> list[Span]:
        closed: list[Span] = []
        for each in taken:
            closed += await self._take(each.recorded)
            # Runs share this event loop, so yield to them after every event.
            await anyio.lowlevel.checkpoint()
        return closed

    async def _take(self, recorded: Recorded) -> list[Span]:
        for tried in count(1):
            try:
                return await self._spans.take(recorded)
            except NoAnswer as error:
                logger.warning("spans are waiting for the log", error=str(error))
            await anyio.sleep(backoff_s(tried, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S))
        raise AssertionError("the log answers at last, or this is cancelled")

    async def _send(self, spans: Sequence[Span]) -> None:
        """Send spans until the backend has accepted all of them."""
        tried = 0
        while spans:
            spans = spans[await _send_once(self._exporter, spans, self._thread) :]
            if spans:
                tried += 1
                pause = backoff_s(tried, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S)
                logger.warning("spans are waiting for the OpenTelemetry backend", spans=len(spans), again_in_s=pause)
                await anyio.sleep(pause)


async def _send_once(exporter: SpanExporter, spans: Sequence[Span], thread: anyio.CapacityLimiter) -> int:
    """Send spans in a thread. Return how many of them were accepted."""
    from callboard.projections.spans.otlp import SpanExportFailed

    try:
        await anyio.to_thread.run_sync(exporter.export, spans, abandon_on_cancel=True, limiter=thread)
    except SpanExportFailed as failed:
        return failed.sent
    except Exception:
        logger.exception("span exporter failed unexpectedly")
        return 0
    return len(spans)


async def export_run(log: EventLog, ref: RunRef, exporter: SpanExporter, *, content: bool = False) -> int:
    """Send all closed spans of one run, even if they were sent before. Return their number.

    Their ids are the same every time, so that a backend recognises them. If the run has not ended, later spans are sent
    by `open_exporters` if it is open, or by calling this again.

    :raises SpanExportFailed: if the backend did not accept all of them
    :raises NoAnswer: if the log does not answer
    """
    fold = SpanFold(content=content)
    spans = [span for recorded in await read_run(log.without_keys(), ref) for span in fold.apply(recorded.event)]
    await anyio.to_thread.run_sync(exporter.export, spans)
    return len(spans)
