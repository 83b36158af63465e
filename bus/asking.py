"""Asking the server: the JetStream API, and reading many messages at once."""

from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.log import NoAnswer
from callboard.bus.requests import REQUEST_TIMEOUT_S, Requests


async def api(requests: Requests, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """One request to the JetStream API; an error is part of the answer.

    :raises NoAnswer: if no answer came
    """
    return msgspec.json.decode(await requests.request(f"$JS.API.{verb}", msgspec.json.encode(body)))


async def direct_get(nc: Client, stream: str, request: Mapping[str, Any]) -> tuple[list[Msg], int]:
    """One batched direct get (ADR-31): the messages, and how many more there are.

    :raises NoAnswer: if there was no answer, or nobody to answer
    """
    messages: list[Msg] = []
    pending = 0
    refusal = ""
    finished = anyio.Event()

    async def take(message: Msg) -> None:
        nonlocal pending, refusal
        status = (message.headers or {}).get("Status")
        if status is None:
            messages.append(message)
            return
        if status == "204":
            pending = int((message.headers or {}).get("Nats-Num-Pending", "0"))
        elif status != "404":
            # 503: no leader, or not up yet. Nothing found is not the same as nobody there to look.
            refusal = status
        finished.set()

    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox, cb=take)
    try:
        body = msgspec.json.encode(request)
        await nc.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox)
        with anyio.fail_after(REQUEST_TIMEOUT_S * 2):
            await finished.wait()
    except (TimeoutError, NatsError) as error:
        raise NoAnswer(str(error)) from error
    finally:
        await subscription.unsubscribe()
    if refusal:
        raise NoAnswer(f"direct get: status {refusal}")
    return messages, pending
