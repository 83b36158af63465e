"""Requests: request and reply over one inbox, with as little between publish and answer as can be.

The client library's own request costs about a third of an append; this is the same mechanism (one wildcard
subscription, a token per request) without its per-request checks and timeouts' tasks.
"""

import asyncio
from itertools import count

import anyio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.log import Unknown

REQUEST_TIMEOUT_S = 2.0
"""How long one request to JetStream may take before its outcome counts as unknown. Whoever asks asks again."""

NO_RESPONDERS = "503"


class Requests:
    """Requests over one connection."""

    def __init__(self, nc: Client) -> None:
        self.nc = nc
        self._inbox = nc.new_inbox()
        self._tokens = count()
        self._waiting: dict[str, asyncio.Future[Msg | None]] = {}
        self._loop = asyncio.get_running_loop()
        self._subscribing = anyio.Lock()
        self._subscribed = False

    async def request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """Publish a request and return the body of its answer.

        :raises Unknown: if there was none in time, nobody was there to answer, or the connection is down
        """
        if not self._subscribed:
            await self._subscribe()
        token = str(next(self._tokens))
        answer = self._waiting[token] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._settle, token, None)
        try:
            await self.nc.publish(subject, data, f"{self._inbox}.{token}", headers)
            message = await answer
        except NatsError as error:
            raise Unknown(f"{subject}: {error}") from error
        finally:
            timer.cancel()
            self._waiting.pop(token, None)
        if message is None:
            raise Unknown(f"{subject}: no answer within {timeout_s:g} s")
        if message.headers is not None and message.headers.get("Status") == NO_RESPONDERS:
            raise Unknown(f"{subject}: nobody answers")
        return message.data

    async def send(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish without asking for an answer.

        :raises Unknown: if the connection does not take it
        """
        try:
            await self.nc.publish(subject, data, headers=headers)
        except NatsError as error:
            raise Unknown(f"{subject}: {error}") from error

    async def _subscribe(self) -> None:
        async with self._subscribing:
            if not self._subscribed:
                await self.nc.subscribe(f"{self._inbox}.*", cb=self._take)
                self._subscribed = True

    async def _take(self, message: Msg) -> None:
        self._settle(message.subject.rpartition(".")[2], message)

    def _settle(self, token: str, message: Msg | None) -> None:
        answer = self._waiting.get(token)
        if answer is not None and not answer.done():
            answer.set_result(message)
