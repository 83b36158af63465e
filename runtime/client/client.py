"""The client: starts runs, sends them commands, reads and follows their events.

A bare NATS client can do everything that this one does; `docs/reference/messages.md` shows how.
"""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import msgspec
from nats.aio.msg import Msg

from callboard.bus import tracecontext
from callboard.bus.commands import REPLY_HEADER, ROUTING_BYTES, WORKER_HEADER, Tell
from callboard.bus.errors import CallboardError, StoreFull
from callboard.bus.events import Event, Problem
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.commit import MESSAGE_ID, OutgoingMessage
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import LOSS_PATIENCE_S, LOSS_PAUSE_S
from callboard.bus.nats.purge import PurgeMark, purge_mark
from callboard.bus.run_ids import derived_run_id
from callboard.bus.subjects import RunRef, is_name
from callboard.lib.backoff import backoff_s
from callboard.lib.text import encode_json, normalise_json
from callboard.runtime.admission.decided import verdict_of_start, verdict_of_tell
from callboard.runtime.admission.large_starts import MEMBERS, START_BYTES_MAX, detach_parts, too_large_problem
from callboard.runtime.admission.refusals import refusal_of_start
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.run.log import read_for_view

VERDICT_WAIT_S = 10.0

ADMISSION_PAUSE_S = 0.02
ADMISSION_PAUSE_MAX_S = 1.0
"""Delay before looking again for a run that continues another one: the first one, and the longest."""

REASONS_MAX = 3
"""Problems of a rejected start that an error message contains."""

VerdictLookup = Callable[[int], Awaitable[Verdict | None]]
"""Looks up in the log the verdict about the message with a stream sequence; None if the log has none yet."""


class NoVerdict(CallboardError):
    """The message is in the stream, but no worker has admitted or refused it yet."""

    def __init__(self, what: str, run_id: str, waited_s: float) -> None:
        super().__init__(
            "client.no_verdict",
            f"the {what} of run {run_id} is durably stored, but no worker has admitted it within {waited_s:g} s",
            remedy="Start a worker (`callboard up` or `callboard worker`); it will process the stored message.",
        )
        self.run_id = run_id


class UnknownRun(CallboardError):
    """A run with this id does not exist. ``rejected`` has the reasons, if its start was rejected; ``gone`` is its mark,
    if it was purged.
    """

    def __init__(self, ref: RunRef, rejected: Sequence[Problem] = (), gone: PurgeMark | None = None) -> None:
        message = f"there is no run {ref.run!r}"
        remedy = "List the runs with `callboard runs`; another tenant's with --tenant NAME."
        if gone is not None:
            by = f" by {gone.by}" if gone.by else ""
            reason = f" ({gone.reason})" if gone.reason else ""
            message = f"{message}: it was purged{by}{reason}"
            remedy = "Import it from an archive, if there is one: `callboard import FILE`."
        elif rejected:
            reasons = "; ".join(f"{one.code}: {one.message}" for one in rejected[:REASONS_MAX])
            more = f"; and {len(rejected) - REASONS_MAX} more problems" if len(rejected) > REASONS_MAX else ""
            message = f"{message}: its start was rejected: {reasons}{more}"
            remedy = "Correct the start, and send it again."
        super().__init__("run.unknown", message, where=f"tenant {ref.tenant}", remedy=remedy)


async def unknown_run(log: JetStreamLog, ref: RunRef) -> UnknownRun:
    """Return the error for a run that does not exist, with the reason if it was purged or its start was rejected.

    :raises NoAnswer: if the log does not answer
    """
    if (gone := await purge_mark(log, ref)) is not None:
        return UnknownRun(ref, gone=gone)
    refused = await refusal_of_start(log, ref)
    return UnknownRun(ref, refused.problems if refused is not None else ())


async def _read_verdict(verdict: Awaitable[Verdict | None]) -> Verdict | None:
    """Return the verdict in the log, or None if the log has none or does not answer: the message is stored anyway."""
    try:
        return await verdict
    except NoAnswer:
        return None


def _store_full(what: str, verdict: Verdict) -> StoreFull:
    """Return the error for a verdict that waits until the store has room."""
    problem = verdict.problems[0]
    run = f" of run {verdict.run_id}" if verdict.run_id else ""
    return StoreFull(problem.message, failing=problem.code == "store.failing", what=f"the {what}{run}", waits=True)


def new_run_id() -> str:
    """Return a new, unique run id (UUIDv7)."""
    return derived_run_id(secrets.token_hex(), 0, time.time_ns())


class Client:
    """Speaks to the runtime as one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str) -> None:
        self.log = log
        self.tenant = tenant

    def ref(self, run_id: str) -> RunRef:
        return RunRef(self.tenant, run_id)

    async def start(self, message: dict[str, Any], *, worker: str = "", wait_s: float = VERDICT_WAIT_S) -> Verdict:
        """Publish a start message and wait for its verdict. ``worker`` performs the run for as long as it is alive.

        If the message has no run id it gets one here, so that its verdict can be looked up in the log. If the message
        is too large for the server, its largest parts are stored first, as large values of the run.

        :raises NoVerdict: if no worker admitted or refused it in time
        :raises StoreFull: if the store has no room for the message, or for the events that follow from it
        :raises NoAnswer: if the stream did not answer
        """
        if message.get("run_id") is None:
            message = {**message, "run_id": new_run_id()}
        body = await self._body(message)
        if isinstance(body, Problem):
            return Verdict("rejected", problems=[body])

        async def look_up(sequence: int) -> Verdict | None:
            run_id = message["run_id"]
            # A start with an invalid id is refused, and the log cannot contain such an id.
            return await verdict_of_start(self.log, self.ref(run_id), sequence) if is_name(run_id) else None

        headers = {**tracecontext.headers(), **({WORKER_HEADER: worker} if worker else {})}
        said = OutgoingMessage(self.log.subjects.start(self.tenant), body, headers)
        return await self._send(said, "start", message["run_id"], wait_s, look_up)

    async def store(self, message: dict[str, Any]) -> Problem | None:
        """Publish a start message with a run id durably, without waiting for its verdict.

        Return the problem that prevents it from being published, if any.

        :raises StoreFull: if the store has no room for the message
        :raises NoAnswer: if the stream did not answer
        """
        body = await self._body(message)
        if isinstance(body, Problem):
            return body
        if len(body) > self._bytes_max:
            return self._too_large("start", len(body))
        try:
            await self._publish(OutgoingMessage(self.log.subjects.start(self.tenant), body, tracecontext.headers()))
        except Full as full:
            raise full.store_full_error("the start") from full
        return None

    async def _body(self, message: dict[str, Any]) -> bytes | Problem:
        """Encode a start message. If it is too large for the server, store its largest parts first."""
        body = encode_json(message)
        if len(body) > self._bytes_max:
            apart = detach_parts(normalise_json(message), self._bytes_max)
            if apart.size > START_BYTES_MAX:
                return too_large_problem(f"{apart.size} bytes of the start do not fit into its message")
            body = encode_json(apart.message)
            if len(body) <= self._bytes_max:
                await self._store(self.ref(message["run_id"]), apart.parts)
        return body

    async def _store(self, ref: RunRef, parts: Mapping[str, bytes]) -> None:
        try:
            for digest, data in parts.items():
                await self.log.put_blob(ref, digest, data)
        except Full as full:
            raise full.store_full_error("the start") from full

    @property
    def _bytes_max(self) -> int:
        # Headers are added to the body, and the server closes the connection on a message that is too large.
        return self.log.nc.max_payload - ROUTING_BYTES

    async def tell(self, run_id: str, verb: str, tell: Tell, *, wait_s: float = VERDICT_WAIT_S) -> Verdict:
        """Send a command to a run and wait for the verdict of admission.

        :raises NoVerdict: if no worker admitted or refused it in time
        :raises StoreFull: if the store has no room for the command, or for the events that follow from it
        :raises NoAnswer: if the stream did not answer
        """
        ref = self.ref(run_id)
        said = OutgoingMessage(self.log.subjects.tell(ref, verb), encode_json(tell), {})
        return await self._send(
            said, verb, run_id, wait_s, lambda sequence: verdict_of_tell(self.log, ref, verb, sequence)
        )

    async def _send(
        self, said: OutgoingMessage, what: str, run_id: str, wait_s: float, look_up: VerdictLookup
    ) -> Verdict:
        """Publish a start or a command, and wait for its verdict. If the reply may have been lost, look in the log."""
        if len(said.data) > self._bytes_max:
            return Verdict("rejected", problems=[self._too_large(what, len(said.data))])
        inbox = self.log.nc.new_inbox()
        news = anyio.Event()
        verdicts: list[Verdict] = []

        async def take(message: Msg) -> None:
            verdicts.append(msgspec.json.decode(message.data, type=Verdict))
            news.set()

        def look() -> None:
            news.set()

        subscription = await self.log.nc.subscribe(inbox, cb=take)
        try:
            with self.log.nc.back(look):
                sequence = await self._publish(
                    OutgoingMessage(said.subject, said.data, {REPLY_HEADER: inbox, **said.headers})
                )
                until = anyio.current_time() + wait_s + LOSS_PATIENCE_S
                while not verdicts:
                    with anyio.move_on_after(wait_s):
                        await news.wait()
                    over = not news.is_set() or anyio.current_time() > until
                    news = anyio.Event()
                    if not verdicts and (found := await _read_verdict(look_up(sequence))) is not None:
                        return found
                    if over and not verdicts:
                        raise NoVerdict(what, run_id, wait_s)
        except Full as full:
            raise full.store_full_error(f"the {what}") from full
        finally:
            await subscription.unsubscribe()
        if verdicts[0].status == "waiting":
            raise _store_full(what, verdicts[0])
        return verdicts[0]

    async def _publish(self, said: OutgoingMessage) -> int:
        """Publish a message exactly once, even if the connection or the server fails; return its stream sequence."""
        headers = {MESSAGE_ID: secrets.token_hex(), **said.headers}
        until = anyio.current_time() + LOSS_PATIENCE_S
        while True:
            try:
                return await self.log.publish(OutgoingMessage(said.subject, said.data, headers))
            except Full:
                raise
            except NoAnswer:
                if anyio.current_time() >= until:
                    raise
            await anyio.sleep(LOSS_PAUSE_S)

    def _too_large(self, what: str, size: int) -> Problem:
        code, beside = "tell.too_large", ""
        if what == "start":
            code, beside = "start.too_large", f"; only {', '.join(MEMBERS)} can be stored separately"
        message, expected = f"the message has {size} bytes", f"at most {self._bytes_max} bytes{beside}"
        return Problem(code=code, message=message, where="message", expected=expected)

    async def await_admission(self, run_id: str) -> None:
        """Wait until the run that continues another one is admitted.

        :raises UnknownRun: if its start was refused, or it has been purged
        :raises NoAnswer: if the log does not answer
        """
        ref = self.ref(run_id)
        for tried in count(1):
            if await self.log.last(ref) is not None:
                return
            if tried > 1 and (
                await refusal_of_start(self.log, ref) is not None or await purge_mark(self.log, ref) is not None
            ):
                raise await unknown_run(self.log, ref)
            await anyio.sleep(backoff_s(tried, ADMISSION_PAUSE_S, ADMISSION_PAUSE_MAX_S))

    async def events(self, run_id: str) -> list[Event]:
        """Return a run's events. Other messages in its log are left out.

        An event with a damaged message or a damaged large value has the type ``log.unreadable``.

        :raises UnknownRun: if the run does not exist
        """
        events = [item.event for item in await read_for_view(self.log, self.ref(run_id)) if item.event.n]
        if not events:
            raise await unknown_run(self.log, self.ref(run_id))
        return events

    @asynccontextmanager
    async def follow(
        self, run_id: str | None = None, *, definition: str | None = None, event_type: str = ">", after: int | None = 0
    ) -> AsyncGenerator[AsyncIterator[Recorded]]:
        """Follow one run, one definition's runs, or one type of event; ``after`` as in `EventLog.follow`."""
        filter = self.log.subjects.events(self.tenant, run_id, definition, event_type)
        async with self.log.follow(filter, after) as feed:
            yield feed
