"""Receiving: the body of a request, bounded in bytes and in time, and whether whoever makes it is still there."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request

from callboard.service.api.verbs import ApiError

BODY_WAIT_S = 60.0
"""How long a body may take to come: whoever sends it holds the place of another."""

SAID_WAIT_S = 30.0
"""How long what somebody says is carried on when they have gone: what they have sent may be meant."""

T = TypeVar("T")


class Gone(Exception):
    """Raised where whoever has made a request has gone: nobody hears what is answered."""


class Places:
    """So many requests are answered at once, and no more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def taken(self) -> Generator[None]:
        """Take a place for the length of the block.

        :raises ApiError: if there is none
        """
        if self._taken >= self._most:
            raise ApiError(503, "api.busy", f"{self._most} requests are being answered")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class ClientPlaces:
    """Bounds how many bodies are received at once, of one client and of all. A slow client takes the places
    of no other one."""

    def __init__(self, each: int, most: int) -> None:
        self._each = each
        self._most = most
        self._taken = Counter[str]()

    @contextmanager
    def taken(self, request: Request) -> Generator[None]:
        """Take a place of the client for the length of the block.

        :raises ApiError: if it has none left
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


async def received(request: Request, most: int, wait_s: float = BODY_WAIT_S) -> bytes:
    """Read a whole body, of at most so many bytes.

    :raises ApiError: if it is larger, does not come in time, or whoever sends it goes before its end
    """
    found = bytearray()
    try:
        with anyio.fail_after(wait_s):
            async for chunk in request.stream():
                found += chunk
                if len(found) > most:
                    raise ApiError(413, "http.too_large", f"the body has more than {most} bytes")
    except TimeoutError:
        raise ApiError(408, "http.slow", f"the body did not come within {wait_s:g} s") from None
    except ClientDisconnect:
        raise ApiError(400, "http.slow", "the sender went before its body had come") from None
    return bytes(found)


async def while_there(request: Request, work: Callable[[], Awaitable[T]], patience_s: float = 0.0) -> T:
    """Do something that raises nothing, and return what comes of it; give it up when who asks has been gone so long.

    :raises Gone: if it was given up
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
        raise Gone
    return found[0]
