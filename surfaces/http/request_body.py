"""Receives bodies of requests, bounded in bytes and in time, and notices when a client disconnects."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request

from callboard.service.operations.operation import ApiError

BODY_WAIT_S = 60.0
"""How long a body may take to arrive: until then it occupies one of a limited number of places."""

SAID_WAIT_S = 30.0
"""How long a changing request is carried on after its client disconnected: the client may still want the change."""

T = TypeVar("T")


class ClientDisconnected(Exception):
    """The client of a request has disconnected, so no answer is needed."""


class RequestSlots:
    """Limits the number of requests that are answered at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def take(self) -> Generator[None]:
        """Take a place for the length of the block.

        :raises ApiError: if all are taken
        """
        if self._taken >= self._most:
            raise ApiError(503, "api.busy", f"{self._most} requests are being answered")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class ClientSlots:
    """Limits the number of bodies that are received at once, per client and in total. So one slow client cannot take
    all places."""

    def __init__(self, each: int, most: int) -> None:
        self._each = each
        self._most = most
        self._taken = Counter[str]()

    @contextmanager
    def take(self, request: Request) -> Generator[None]:
        """Take a place of the client for the length of the block.

        :raises ApiError: if the client has no place left, or all are taken
        """
        client = request.client.host if request.client is not None else ""
        if self._taken[client] >= self._each or self._taken.total() >= self._most:
            raise ApiError(503, "api.busy", f"{self._taken[client]} bodies of this client are being received")
        self._taken[client] += 1
        try:
            yield
        finally:
            self._taken[client] -= 1
            if not self._taken[client]:
                del self._taken[client]


async def receive_body(request: Request, most: int, wait_s: float = BODY_WAIT_S) -> bytes:
    """Read a whole body of at most ``most`` bytes.

    :raises ApiError: if it is larger, does not arrive in time, or the client disconnects before its end
    """
    found = bytearray()
    try:
        with anyio.fail_after(wait_s):
            async for chunk in request.stream():
                found += chunk
                if len(found) > most:
                    raise ApiError(413, "http.too_large", f"the body has more than {most} bytes")
    except TimeoutError:
        raise ApiError(408, "http.slow", f"the body did not arrive within {wait_s:g} s") from None
    except ClientDisconnect:
        raise ApiError(400, "http.slow", "the client disconnected before its body had arrived") from None
    return bytes(found)


async def while_there(request: Request, work: Callable[[], Awaitable[T]], patience_s: float = 0.0) -> T:
    """Return the result of ``work``, which must not raise. Cancel it ``patience_s`` after the client disconnected.

    :raises ClientDisconnected: if it was cancelled
    """
    found: list[T] = []
    async with anyio.create_task_group() as tasks:

        async def until_gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            await anyio.sleep(patience_s)
            tasks.cancel_scope.cancel()

        tasks.start_soon(until_gone)
        found.append(await work())
        tasks.cancel_scope.cancel()
    if not found:
        raise ClientDisconnected
    return found[0]
