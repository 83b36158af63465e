"""Ephemeral consumers: a reader of the stream in order, whose consumer is created again whenever it is lost.

Such a consumer is in the memory of one server and is lost when that server stops. The new consumer begins after the
last message that arrived, so no message is missing or comes twice. It is created as soon as the connection is back. If
a consumer is lost while the connection is up, its heartbeats stop, and the reader replaces it.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream_api import LOSS_PATIENCE_S, api
from callboard.bus.nats.requests import Requests
from callboard.lib.backoff import backoff_s

HEARTBEAT_S = 1.0
SILENCE_S = 3 * HEARTBEAT_S
"""An idle consumer sends a heartbeat in each interval. After `SILENCE_S` without any message it is considered lost."""

RETRY_S = 0.2
RETRY_MAX_S = 5.0
"""First and longest pause before another attempt to create a consumer."""

NS = 1_000_000_000


class EphemeralReader:
    """Reads the messages that match one of the filters, after a stream sequence (None: from now on)."""

    def __init__(self, requests: Requests, stream: str, filters: Sequence[str], after: int | None) -> None:
        self._requests = requests
        self._stream = stream
        self._filters = filters
        self._after = after
        self._subscription: Subscription | None = None
        self._gone = False

    async def begin(self) -> None:
        """Create the first consumer.

        :raises NoAnswer: if it could not be created for `LOSS_PATIENCE_S` seconds
        """
        await self._renew(anyio.current_time() + LOSS_PATIENCE_S)

    async def close(self) -> None:
        """Stop reading."""
        await self._leave()

    async def _leave(self) -> None:
        """Unsubscribe from the current consumer. If it pushes messages, the server then removes it."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.unsubscribe()

    def lose(self) -> None:
        """Note that the consumer is lost, or that messages of it are missing."""
        self._gone = True

    async def _renew(self, until: float | None = None) -> None:
        """Create a consumer that continues after the last message.

        :raises NoAnswer: if the connection is closed, or if this failed until the instant ``until``
        """
        tried = 0
        while True:
            self._gone = False
            try:
                await self._leave()
                await self._make()
                return
            except (NatsError, NoAnswer) as error:
                # A closed connection does not reconnect.
                if self._requests.nc.is_closed or (until is not None and anyio.current_time() > until):
                    raise NoAnswer(f"follow {', '.join(self._filters)}: {error}") from error
            tried += 1
            await anyio.sleep(backoff_s(tried, RETRY_S, RETRY_MAX_S))

    async def _make(self) -> None:
        """Create a consumer, and subscribe to its messages."""
        if self._after is None:
            # If the first consumer is lost before any message, the next one still begins at the same sequence.
            self._after = int((await self._api(f"STREAM.INFO.{self._stream}", {}))["state"]["last_seq"])
        inbox, name = self._requests.nc.new_inbox(), secrets.token_hex(8)
        self._subscription = await self._subscribe(inbox, name)
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._after + 1,
            "filter_subjects": list(self._filters),
            "ack_policy": "none",
            "max_deliver": 1,
            "num_replicas": 1,
            "mem_storage": True,
            **self._options(inbox),
        }
        body = {"stream_name": self._stream, "config": config}
        await self._api(f"CONSUMER.CREATE.{self._stream}.{name}", body)

    async def _subscribe(self, inbox: str, name: str) -> Subscription:
        """Subscribe to the messages of a consumer."""
        raise NotImplementedError

    def _options(self, inbox: str) -> Mapping[str, Any]:
        """Return what the consumer's configuration has besides the messages that it delivers."""
        raise NotImplementedError

    async def _api(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await api(self._requests, verb, body)
        if "error" in answer:
            raise NoAnswer(str(answer["error"].get("description")))
        return answer
