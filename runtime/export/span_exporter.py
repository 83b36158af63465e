"""The spans exporter: folds every run's events into spans and sends each, when it closes, to an OpenTelemetry backend.

One process at a time leads (`callboard.runtime.cluster.leader`), though any number of workers offer to export. That is
for economy; what makes spans go out once is how they are made: the spans that an event closes are sent by whoever has
that event delivered, who acknowledges it when they have been taken. What came before it in its run is known from
deliveries, or read from the log and folded without sending. So it does not matter who read the events before, nor
whether two led for a moment: what the durable consumer has acknowledged is the checkpoint. Only a reader that dies
between sending and acknowledging has its last batch sent again, the same spans with the same ids.

No run waits for it: what cannot be sent yet waits in the stream, one batch is in memory, and a thread does the sending.
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
from callboard.bus.backoff import backoff_s
from callboard.bus.forks import origin_of
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import EventLog, NoAnswer, Recorded, whole
from callboard.bus.prices import Prices
from callboard.bus.subjects import RunRef
from callboard.projections.span import Span
from callboard.projections.spans import SpanFold
from callboard.runtime.cluster.leader import GRACE_S, RETRY_PAUSE_MAX_S, RETRY_PAUSE_S
from callboard.runtime.export.following import Taken, consumption
from callboard.runtime.run.log import read_run

logger = structlog.get_logger(__name__)

RUNS_MAX = 10_000
"""Runs that are kept folded; one that was put away is folded again from the log when it goes on."""

RUNS_WITH_CONTENT_MAX = 500
"""The same where contents are exported: then a fold holds the conversations of its run."""

READ_TRIES_MAX = 50
"""How often a run is read until it shows the events before one that was delivered; a replica may lag."""

READ_PAUSE_S = 0.1


class SpanExporter(Protocol):
    """Where spans go; `callboard.projections.otlp.OtlpExporter` is one."""

    def export(self, spans: Sequence[Span]) -> None:
        """Send spans, in order; blocking.

        :raises SpanExportFailed: if only the first ``sent`` of them were taken
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class _Gap(Exception):
    """The log does not hold the events before one that was delivered: the run has been purged meanwhile."""


class _Run(Struct):
    """A run as far as it is folded. Without a fold it is over, or cannot be folded.

    From event ``since`` on every event was delivered here, so that its spans have been sent.
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


class Spans:
    """Folds delivered events of all runs into the spans that they close, each returned once."""

    def __init__(
        self, log: EventLog, runs_max: int | None = None, *, content: bool = False, prices: Prices | None = None
    ) -> None:
        # What is delivered is as it is stored, and so must be what is read beside it.
        self._log = log.without_keys()
        self._prices = prices
        self._content = content
        self._runs: OrderedDict[RunRef, _Run] = OrderedDict()
        self._runs_max = runs_max or (RUNS_WITH_CONTENT_MAX if content else RUNS_MAX)

    async def take(self, recorded: Recorded) -> list[Span]:
        """Take a delivered event; return the spans that it closes, none if it has been taken before.

        :raises NoAnswer: if the log does not answer; take it again
        """
        run = self._run(recorded.ref)
        n = recorded.event.n
        if run.n >= n >= run.since:
            return []
        try:
            if n <= run.n:
                # Folded because a later event had come first; its own spans have not been sent by us.
                return await self._apply(self._unread(), recorded)
            return await self._apply(run, recorded) if run.fold is not None else []
        except NoAnswer:
            raise
        except Exception:
            # One run that cannot be folded must not keep the others from being exported.
            logger.exception("run is not exported any further", run=recorded.ref.run, n=n)
            run.fold = None
            return []

    async def _apply(self, run: _Run, recorded: Recorded) -> list[Span]:
        if recorded.event.n > run.n + 1:
            await self._catch_up(run, recorded)
        event = await whole(self._log, recorded)
        if event.n == 1 and (forked := origin_of(event)) is not None:
            return await self._shared(run, recorded, forked.n)
        return run.apply(event, recorded.sequence)

    async def _shared(self, run: _Run, recorded: Recorded, until: int) -> list[Span]:
        """Fold what a fork has of its origin, and return its spans: nobody is ever delivered that as the fork's."""
        spans: list[Span] = []
        for item in await self._read(recorded.ref, 0):
            if item.event.n <= until:
                spans += run.apply(item.event, recorded.sequence)
                await anyio.lowlevel.checkpoint()
        return spans

    async def _read(self, ref: RunRef, after: int) -> list[Recorded]:
        """Read a run.

        :raises _Gap: if it is a fork, and its origin is gone
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
        """Fold what comes before an event without returning its spans: they were delivered to another reader."""
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
    """Sends every span that closes, from the durable's checkpoint on. A `Leader`."""

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
        self._spans = Spans(log, content=content, prices=prices)
        self._in_hand: anyio.CancelScope | None = None
        self._sent = True
        self._thread = anyio.CapacityLimiter(1)

    async def run(self, orphaned: bool) -> None:
        """Export until cancelled."""
        if not self._sent:
            # Folded, but not sent: what was in hand comes again, and must not count as taken.
            self._spans = Spans(self._log, content=self._content, prices=self._prices)
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

    async def _fold(self, taken: Sequence[Taken]) -> list[Span]:
        closed: list[Span] = []
        for each in taken:
            closed += await self._take(each.recorded)
            # Runs share this loop: they get their turn after every event.
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
        """Send spans until the backend has taken them all."""
        tried = 0
        while spans:
            spans = spans[await _send_once(self._exporter, spans, self._thread) :]
            if spans:
                tried += 1
                pause = backoff_s(tried, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S)
                logger.warning("spans are waiting for the OpenTelemetry backend", spans=len(spans), again_in_s=pause)
                await anyio.sleep(pause)


async def _send_once(exporter: SpanExporter, spans: Sequence[Span], thread: anyio.CapacityLimiter) -> int:
    """Send spans in a thread; return how many of them were taken."""
    from callboard.projections.otlp import SpanExportFailed

    try:
        await anyio.to_thread.run_sync(exporter.export, spans, abandon_on_cancel=True, limiter=thread)
    except SpanExportFailed as failed:
        return failed.sent
    except Exception:
        logger.exception("span exporter failed unexpectedly")
        return 0
    return len(spans)


async def export_run(log: EventLog, ref: RunRef, exporter: SpanExporter, *, content: bool = False) -> int:
    """Send the closed spans of one run, with or without content, whether sent before or not; return how many.

    Their ids are the same every time, so that a backend recognises them. Spans of a run that goes on follow when they
    close, through `open_exporters` if it runs, or by calling this again.

    :raises SpanExportFailed: if the backend did not take them all
    :raises NoAnswer: if the log does not answer
    """
    fold = SpanFold(content=content)
    spans = [span for recorded in await read_run(log.without_keys(), ref) for span in fold.apply(recorded.event)]
    await anyio.to_thread.run_sync(exporter.export, spans)
    return len(spans)
