"""Asking the server: the JetStream API, and reading many messages at once.

Nothing that is asked here does harm when it is asked twice. So what was lost with the connection is asked again, and
what a server with much to do has not answered in time.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.line import NO_LEADER, Line
from callboard.bus.log import NoAnswer
from callboard.bus.requests import REQUEST_TIMEOUT_S, Lost, Requests, Silent

T = TypeVar("T")

LOSS_PATIENCE_S = 30.0
"""How long something is asked again because the connection is lost: by then a server that restarts is back."""

SILENCE_PATIENCE_S = 10.0
"""How long something is asked again because there was no answer, though the connection is there."""

LOSS_PAUSE_S = 0.05
"""Between two attempts: what fails at once because nobody is connected shall not fill the event loop."""

DIRECT_GET_TIMEOUT_S = 2 * REQUEST_TIMEOUT_S
"""How long the messages of one batched get may take."""


class NoLeader(NoAnswer):
    """The cluster elects a leader, and answers when it has one."""


async def again(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, and again whenever the connection was lost, no answer came, or the cluster had no leader.

    :raises Lost: if that is so for `LOSS_PATIENCE_S` seconds
    :raises NoLeader: likewise
    :raises Silent: if there was no answer for `SILENCE_PATIENCE_S` seconds
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


async def api(requests: Requests, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """One request to the JetStream API; an error is part of the answer.

    :raises NoAnswer: if no answer came
    """
    asked = msgspec.json.encode(body)

    async def ask() -> dict[str, Any]:
        answer = msgspec.json.decode(await requests.request(requests.nc.js(verb), asked))
        if (answer.get("error") or {}).get("err_code") in NO_LEADER:
            raise NoLeader(f"{verb}: {answer['error'].get('description')}")
        return answer

    return await again(ask)


async def direct_get(nc: Line, stream: str, request: Mapping[str, Any]) -> tuple[list[Msg], int]:
    """One batched direct get (ADR-31): the messages, and how many more there are.

    :raises NoAnswer: if there was no answer, or nobody to answer
    """
    body = msgspec.json.encode(request)
    return await again(lambda: _direct_get(nc, stream, body))


async def _direct_get(nc: Line, stream: str, body: bytes) -> tuple[list[Msg], int]:
    messages: list[Msg] = []
    pending = 0
    refusal = ""
    lost = False
    finished = anyio.Event()

    async def take(message: Msg) -> None:
        nonlocal pending, refusal
        headers = message.headers or {}
        # A message of the stream may have any headers; but the server's own words have no subject in it.
        status = headers.get("Status") if "Nats-Subject" not in headers else None
        if status is None:
            messages.append(message)
            return
        if status == "204":
            pending = int(headers.get("Nats-Num-Pending", "0"))
        elif status != "404":
            # 503: no leader, or not up yet. Nothing found is not the same as nobody there to look.
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
