"""Requests to the server: the JetStream API, and reads of many messages at once.

All requests here are idempotent. So a request is sent again if it was lost with the connection, or if a busy server has
not answered it in time.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.client import NO_LEADER, ReconnectingClient
from callboard.bus.nats.requests import REQUEST_TIMEOUT_S, Lost, Silent

T = TypeVar("T")

LOSS_PATIENCE_S = 30.0
"""How long to repeat a request while the connection is lost. A server that restarts is back by then."""

SILENCE_PATIENCE_S = 10.0
"""How long to repeat a request that gets no answer although the connection is up."""

LOSS_PAUSE_S = 0.05
"""Pause between two attempts. A request without a connection fails at once, and must not occupy the event loop."""

DIRECT_GET_TIMEOUT_S = 2 * REQUEST_TIMEOUT_S
"""Maximum time for all messages of one batched get."""


class NoLeader(NoAnswer):
    """The cluster is electing a leader. It answers once it has one."""


async def again(ask: Callable[[], Awaitable[T]]) -> T:
    """Send a request, and repeat it while the connection is lost, no answer comes, or the cluster has no leader.

    :raises Lost: if the connection is lost for `LOSS_PATIENCE_S` seconds
    :raises NoLeader: if the cluster has no leader for `LOSS_PATIENCE_S` seconds
    :raises Silent: if no answer comes for `SILENCE_PATIENCE_S` seconds
    """
    begun = anyio.current_time()
    while True:
        try:
            return await ask()
        except (Lost, NoLeader):
            if anyio.current_time() >= begun + LOSS_PATIENCE_S:
                raise
        except Silent:
            if anyio.current_time() >= begun + SILENCE_PATIENCE_S:
                raise
        await anyio.sleep(LOSS_PAUSE_S)


class Asking(Protocol):
    """The part of `Requests` that `api` uses."""

    @property
    def nc(self) -> ReconnectingClient: ...

    async def request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, *, hurry: bool = False
    ) -> bytes: ...


async def api(requests: Asking, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the JetStream API and return its answer; an error is part of the answer.

    :raises NoAnswer: if no answer came
    """
    asked = msgspec.json.encode(body)

    async def ask() -> dict[str, Any]:
        answer = msgspec.json.decode(await requests.request(requests.nc.js(verb), asked))
        if (answer.get("error") or {}).get("err_code") in NO_LEADER:
            raise NoLeader(f"{verb}: {answer['error'].get('description')}")
        return answer

    return await again(ask)


async def direct_get(nc: ReconnectingClient, stream: str, request: Mapping[str, Any]) -> tuple[list[Msg], int]:
    """Send a batched direct get (ADR-31); return the messages, and how many more there are.

    :raises NoAnswer: if no answer came, or the server is not able to answer
    """
    body = msgspec.json.encode(request)
    return await again(lambda: _direct_get(nc, stream, body))


async def _direct_get(nc: ReconnectingClient, stream: str, body: bytes) -> tuple[list[Msg], int]:
    messages: list[Msg] = []
    pending = 0
    refusal = ""
    lost = False
    finished = anyio.Event()

    async def take(message: Msg) -> None:
        nonlocal pending, refusal
        headers = message.headers or {}
        # A stored message may have any headers, also Status. Only a status of the server has no Nats-Subject.
        status = headers.get("Status") if "Nats-Subject" not in headers else None
        if status is None:
            messages.append(message)
            return
        if status == "204":
            pending = int(headers.get("Nats-Num-Pending", "0"))
        elif status != "404":
            # 503: the stream has no leader, or has not started yet. It may contain matching messages.
            refusal = status
        finished.set()

    def lose() -> None:
        nonlocal lost
        lost = not finished.is_set()
        finished.set()

    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox, cb=take)
    subject = nc.js(f"DIRECT.GET.{stream}")
    try:
        with nc.lost(lose), anyio.fail_after(DIRECT_GET_TIMEOUT_S):
            await nc.publish(subject, body, reply=inbox)
            await finished.wait()
    except TimeoutError:
        raise Silent(subject, DIRECT_GET_TIMEOUT_S) if nc.is_connected else Lost(subject) from None
    except NatsError as error:
        raise NoAnswer(str(error)) if nc.is_connected else Lost(subject) from error
    finally:
        await subscription.unsubscribe()
    if lost:
        raise Lost(subject)
    if refusal:
        raise NoAnswer(f"direct get: status {refusal}")
    return messages, pending
