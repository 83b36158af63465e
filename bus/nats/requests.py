"""Requests: request and reply over one inbox, with little overhead.

A request with the client library takes about a third of the time of an append. This module uses the same mechanism (one
wildcard subscription, a token per request) without the checks and the timeout task for each request.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, takewhile
from typing import NamedTuple

import anyio
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.client import Posted, ReconnectingClient

REQUEST_TIMEOUT_S = 2.0
"""How long one request to JetStream may take before its result is considered unknown. Callers then repeat it."""

SWEEP_S = 0.25
"""Interval of the check for requests that have timed out."""

NO_RESPONDERS = "503"


class Silent(NoAnswer):
    """The request was sent, but no answer came in time."""

    def __init__(self, subject: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        super().__init__(f"{subject}: no answer within {timeout_s:g} s")
        self.subject = subject


class Lost(NoAnswer):
    """The connection was lost before the answer came, or is still down."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject}: the connection was lost")


Answer = bytes | Msg | None
"""The body of an answer, or the message itself if it has headers; None if no answer came."""


class _Waiting(NamedTuple):
    take: Callable[[Answer], None]
    until: float


class Requests:
    """Requests over one connection."""

    def __init__(self, nc: ReconnectingClient) -> None:
        self.nc = nc
        self._inbox = nc.new_inbox()
        self._name = self._inbox.rpartition(".")[2]
        self._tokens = count()
        self._waiting: dict[str, _Waiting] = {}
        self._sweeping = False
        self._loop = asyncio.get_running_loop()
        self._subscribing = anyio.Lock()
        self._subscribed = False
        self._losses = 0
        nc.when_lost(self._lose)

    async def request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, *, hurry: bool = False
    ) -> bytes:
        """Publish a request and return the body of its answer.

        With ``hurry`` the request, and all messages published before it, are written to the wire immediately.

        :raises Silent: if no answer came in time
        :raises Lost: if the connection was lost
        :raises NoAnswer: if the subject has no responders, or the connection is down
        """
        await self.prepare()
        answer: asyncio.Future[Answer] = self._loop.create_future()
        token, losses = self._expect(partial(_set, answer)), self._losses
        try:
            await self.nc.publish(subject, data, f"{self._inbox}.{token}", headers)
            if hurry:
                self.nc.push()
            message = await answer
        except NatsError as error:
            raise NoAnswer(f"{subject}: {error}") from error
        finally:
            self._waiting.pop(token, None)
        return self._body(subject, message, losses)

    def name_batch(self) -> str:
        """Return a name that no other batch of any connection has."""
        return f"{self._name}-{next(self._tokens)}"

    def post(self, messages: Sequence[Posted], take: Callable[[Callable[[], bytes]], None]) -> None:
        """Write messages to the wire at once; the last is a request. Call `prepare` before.

        The reply subject of the last message is added to that of the request. ``take`` is called once, without a task,
        when the answer comes or cannot come any longer. It receives a function that returns the body of the answer or
        raises as `request`.

        :raises NoAnswer: if the messages cannot be published in this way: `request` may say why
        """
        last, losses = messages[-1].subject, self._losses
        token = self._expect(lambda answer: take(partial(self._body, last, answer, losses)))
        if not self.nc.write(messages, f"{self._inbox}.{token}{messages[-1].reply}"):
            del self._waiting[token]
            raise NoAnswer(f"{last}: the connection is down, or a message is not a usual one")

    def _expect(self, take: Callable[[Answer], None]) -> str:
        """Return the token of a new request."""
        token = str(next(self._tokens))
        self._waiting[token] = _Waiting(take, self._loop.time() + REQUEST_TIMEOUT_S)
        if not self._sweeping:
            self._sweep()
        return token

    def _body(self, subject: str, message: Answer, losses: int) -> bytes:
        """Return the body of an answer to a request that was sent after so many losses of the connection."""
        if isinstance(message, bytes):
            return message
        if message is None:
            raise Silent(subject) if losses == self._losses and self.nc.is_connected else Lost(subject)
        if message.headers is not None and message.headers.get("Status") == NO_RESPONDERS:
            raise NoAnswer(f"{subject}: no responders")
        return message.data

    async def send(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish a message without a reply subject.

        :raises NoAnswer: if it cannot be published
        """
        try:
            await self.nc.publish(subject, data, headers=headers)
        except NatsError as error:
            raise NoAnswer(f"{subject}: {error}") from error

    async def prepare(self) -> None:
        """Subscribe to the answers, once."""
        if self._subscribed:
            return
        async with self._subscribing:
            if not self._subscribed:
                await self.nc.subscribe_directly(f"{self._inbox}.>", self._take_plain, self._take)
                self._subscribed = True

    def _take_plain(self, subject: bytes, data: bytes) -> None:
        self._settle(subject.decode()[len(self._inbox) + 1 :].partition(".")[0], data)

    async def _take(self, message: Msg) -> None:
        self._settle(message.subject[len(self._inbox) + 1 :].partition(".")[0], message)

    def _settle(self, token: str, message: Answer) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            waiting.take(message)

    def _lose(self) -> None:
        """End all open requests, because their answers are lost with the connection."""
        self._losses += 1
        for token in list(self._waiting):
            self._settle(token, None)

    def _sweep(self) -> None:
        """End requests that have timed out. One timer serves all requests, as long as there are any."""
        now = self._loop.time()
        # All have the same timeout, so they time out in the order in which they were sent.
        for token in list(takewhile(lambda token: self._waiting[token].until <= now, self._waiting)):
            self._settle(token, None)
        self._sweeping = bool(self._waiting)
        if self._sweeping:
            self._loop.call_later(SWEEP_S, self._sweep)


def _set(answer: asyncio.Future[Answer], message: Answer) -> None:
    if not answer.done():
        answer.set_result(message)
