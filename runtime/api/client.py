"""The client: start runs, tell them things, read and follow their events. A convenience over plain messages.

Everything here can be done with a bare NATS client; `docs/messages.md` shows how.
"""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from nats.aio.client import Client as Connection
from nats.aio.msg import Msg

from callboard.bus.commands import REPLY_HEADER, ROUTING_BYTES, WORKER_HEADER, Tell
from callboard.bus.commit import Message
from callboard.bus.errors import CallboardError, StoreFull
from callboard.bus.events import Event, Problem
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import Full, Recorded
from callboard.bus.subjects import RunRef
from callboard.runtime.admission.admission import Verdict, derived_run_id
from callboard.runtime.admission.large_starts import MEMBERS, START_BYTES_MAX, detached, too_large
from callboard.runtime.run.log import read_run

VERDICT_WAIT_S = 10.0

NO_HEADERS: Mapping[str, str] = {}


class NoVerdict(CallboardError):
    """The message is in the stream, but nobody has admitted it yet: no worker is there."""

    def __init__(self, what: str, waited_s: float) -> None:
        super().__init__(
            "client.no_verdict",
            f"the {what} is durably stored, but no worker has looked at it within {waited_s:g} s",
            remedy="Start a worker (`callboard up` or `callboard worker`); the message waits.",
        )


class UnknownRun(CallboardError):
    """There is no run of this id."""

    def __init__(self, ref: RunRef) -> None:
        super().__init__(
            "run.unknown",
            f"there is no run {ref.run!r}",
            where=f"tenant {ref.tenant}",
            remedy="List the runs with `callboard runs`; another tenant's with --tenant NAME.",
        )


def _waits(what: str, verdict: Verdict) -> StoreFull:
    """What a verdict says of which nothing can follow for lack of room."""
    problem = verdict.problems[0]
    run = f" of run {verdict.run_id}" if verdict.run_id else ""
    return StoreFull(problem.message, failing=problem.code == "store.failing", what=f"the {what}{run}", waits=True)


def _new_run_id() -> str:
    """A run id (UUIDv7) that no other run has."""
    return derived_run_id(secrets.token_hex(), 0, time.time_ns())


class Client:
    """Speaks to the runtime as one tenant."""

    def __init__(self, nc: Connection, log: JetStreamLog, tenant: str) -> None:
        self.nc = nc
        self.log = log
        self.tenant = tenant

    def ref(self, run_id: str) -> RunRef:
        return RunRef(self.tenant, run_id)

    async def start(self, message: dict[str, Any], *, worker: str = "", wait_s: float = VERDICT_WAIT_S) -> Verdict:
        """Publish a start message and wait for its verdict; ``worker`` is the one to perform it as long as it lives.

        Of a message that is too large for the server the largest parts are stored before, as large values of the run.

        :raises NoVerdict: if no worker admitted or refused it in time
        :raises StoreFull: if there is no room for it, or for what follows from it
        :raises NoAnswer: if the stream did not answer
        """
        headers = {WORKER_HEADER: worker} if worker else {}
        subject = self.log.subjects.start(self.tenant)
        body = msgspec.json.encode(message)
        if len(body) > self._bytes_max:
            message = {**message, "run_id": message.get("run_id") or _new_run_id()}
            apart = detached(message, self._bytes_max)
            if apart.size > START_BYTES_MAX:
                problem = too_large(f"{apart.size} bytes of the start do not fit into its message")
                return Verdict("rejected", problems=[problem])
            body = msgspec.json.encode(apart.message)
            if len(body) <= self._bytes_max:
                await self._store(self.ref(message["run_id"]), apart.parts)
        return await self._say(subject, body, "start", wait_s, headers)

    async def _store(self, ref: RunRef, parts: Mapping[str, bytes]) -> None:
        try:
            for digest, data in parts.items():
                await self.log.put_blob(ref, digest, data)
        except Full as full:
            raise full.told("the start") from full

    @property
    def _bytes_max(self) -> int:
        # Published with our headers, a body that fills a whole message would cost us the connection.
        return self.nc.max_payload - ROUTING_BYTES

    async def tell(self, run_id: str, verb: str, tell: Tell, *, wait_s: float = VERDICT_WAIT_S) -> Verdict:
        """Tell a run something and wait for the verdict of admission.

        :raises NoVerdict: if no worker admitted or refused it in time
        :raises StoreFull: if there is no room for it, or for what follows from it
        :raises NoAnswer: if the stream did not answer
        """
        subject = self.log.subjects.tell(self.ref(run_id), verb)
        return await self._say(subject, msgspec.json.encode(tell), verb, wait_s)

    async def _say(
        self, subject: str, body: bytes, what: str, wait_s: float, headers: Mapping[str, str] = NO_HEADERS
    ) -> Verdict:
        if len(body) > self._bytes_max:
            code, beside = "tell.too_large", ""
            if what == "start":
                code, beside = "start.too_large", f"; only {', '.join(MEMBERS)} can travel beside it"
            message, expected = f"the message has {len(body)} bytes", f"at most {self._bytes_max} bytes{beside}"
            problem = Problem(code=code, message=message, where="message", expected=expected)
            return Verdict("rejected", problems=[problem])
        inbox = self.nc.new_inbox()
        answered = anyio.Event()
        verdicts: list[Verdict] = []

        async def take(message: Msg) -> None:
            verdicts.append(msgspec.json.decode(message.data, type=Verdict))
            answered.set()

        subscription = await self.nc.subscribe(inbox, cb=take)
        try:
            await self.log.publish(Message(subject, body, {REPLY_HEADER: inbox, **headers}))
            with anyio.move_on_after(wait_s):
                await answered.wait()
        except Full as full:
            raise full.told(f"the {what}") from full
        finally:
            await subscription.unsubscribe()
        if not verdicts:
            raise NoVerdict(what, wait_s)
        if verdicts[0].status == "waiting":
            raise _waits(what, verdicts[0])
        return verdicts[0]

    async def events(self, run_id: str) -> list[Event]:
        """Read a run's log; what is no event in it is left out.

        :raises UnknownRun: if there is no such run
        """
        events = [item.event for item in await read_run(self.log, self.ref(run_id)) if item.readable]
        if not events:
            raise UnknownRun(self.ref(run_id))
        return events

    @asynccontextmanager
    async def follow(
        self, run_id: str | None = None, *, definition: str | None = None, event_type: str = ">", after: int | None = 0
    ) -> AsyncGenerator[AsyncIterator[Recorded]]:
        """Follow one run, one definition's runs, or one type of event; ``after`` as in `EventLog.follow`."""
        filter = self.log.subjects.events(self.tenant, run_id, definition, event_type)
        async with self.log.follow(filter, after) as feed:
            yield feed
