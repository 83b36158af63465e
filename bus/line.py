"""The line to the server: nats-py's client, which says when the connection is lost and when it is back.

nats-py connects again by itself, with all subscriptions. What was on its way is lost, and the consumers and requests
that lived with the connection are gone; nobody else tells those who wait for them.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.protocol.parser import ERR_RE, PERMISSIONS_ERR

Act = Callable[[], None]

Take = Callable[[bytes, bytes], None]
"""Takes the subject and the data of a message."""

HEARD_OUT_S = 2.0
"""How long what is still to come of a subscription is waited for."""

USUAL_HEADERS = b"NATS/1.0\r\n"
"""How headers begin that say nothing of the server's own."""

_plain = re.compile(r"[!-~]+").fullmatch
"""A subject that needs no second look: visible ASCII."""


NO_LEADER = frozenset({10008, 10009})
"""Codes of the JetStream API that say that its cluster has no leader just now."""


class TlsMissing(NatsError):
    """The URL asks for TLS, and the server does not offer it: what we say, the credentials first, could be read."""


class Line(Client):
    """A client that connects again by itself. Functions that are called when it is lost or back must not block."""

    def __init__(self, domain: str = "") -> None:
        super().__init__()
        self.domain = domain
        """The domain of JetStream that is meant, empty for that of the server at the other end."""
        self._at_loss: dict[object, Act] = {}
        self._at_return: dict[object, Act] = {}
        self._takers: dict[int, Take] = {}
        self._whole = True

    @property
    def in_cluster(self) -> bool:
        """Whether the server at the other end belongs to a cluster."""
        return bool(self._server_info.get("cluster"))

    @property
    def encrypted(self) -> bool:
        """Whether the server had the connection upgraded to TLS."""
        return bool(self._server_info.get("tls_required"))

    def js(self, verb: str) -> str:
        """The subject of a request to JetStream's interface."""
        return f"$JS.{self.domain}.API.{verb}" if self.domain else f"$JS.API.{verb}"

    def jetstream(self, **opts: Any) -> JetStreamContext:
        """As the client library's, in our domain."""
        return super().jetstream(**({"domain": self.domain, **opts} if self.domain else opts))

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish as the client library does, with less between the call and the wire: it is done for every event.

        What is out of the ordinary (a connection that is down, a body that is too large, a subject or header that is
        none) is the library's affair, with its errors.
        """
        # Added up, not formatted: the library's own names of headers are members of an enumeration.
        head = "".join([name + ": " + value + "\r\n" for name, value in headers.items()]) if headers else ""
        usual = (
            self.is_connected
            and not self.is_draining_pubs
            and len(payload) <= self._max_payload
            and _plain(subject) is not None
            and (not reply or _plain(reply) is not None)
            and head.count("\n") == head.count("\r") == (len(headers) if headers else 0)
        )
        if not usual or self._flush_queue is None:
            await super().publish(subject, payload, reply, headers)
            return
        if headers:
            lines = f"NATS/1.0\r\n{head}\r\n".encode()
            size = len(lines) + len(payload)
            frame = b"".join((f"HPUB {subject} {reply} {len(lines)} {size}\r\n".encode(), lines, payload, b"\r\n"))
        else:
            frame = b"".join((f"PUB {subject} {reply} {len(payload)}\r\n".encode(), payload, b"\r\n"))
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        await self._send_command(frame)
        if self._flush_queue.empty():
            await self._flush_pending()

    async def _process_err(self, err_msg: str) -> None:
        """Report a denied subject as the server spells it: the library hands errors on in lower case."""
        found = ERR_RE.match(self._ps.buf) if PERMISSIONS_ERR in err_msg else None
        if found is None:
            await super()._process_err(err_msg)
            return
        self._err = NatsError(f"nats: {found[1].decode()}")
        await self._error_cb(self._err)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(info, initial_connection)
        server = self._current_server
        if initial_connection and server is not None and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise TlsMissing("the URL begins with tls://, and the server does not require TLS")

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        # The library upgrades to TLS without telling asyncio's protocol, which logs a warning when the server closes.
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        if writer is not None and writer.get_extra_info("sslcontext") is not None:
            protocol: Any = writer.transport.get_protocol()
            protocol._over_ssl = True

    async def _connect_to_server(self, s: Srv) -> None:
        # A cancellation that comes at the same time as a server's refusal is lost: who is closed would try for ever.
        if self.is_closed and asyncio.current_task() is self._reconnection_task:
            raise asyncio.CancelledError
        await super()._connect_to_server(s)

    def push(self) -> None:
        """Write at once what has been published, not when the library's task comes by: somebody waits for what follows
        from it."""
        if self._transport is not None and self._pending and self.is_connected:
            pending, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.writelines(pending)

    async def subscribe_directly(self, subject: str, take: Take, cb: Callable[[Msg], Awaitable[None]]) -> None:
        """Have messages taken as they are read from the wire, by a function that must not block; those with headers go
        to ``cb``, as with `subscribe`."""
        subscription = await self.subscribe(subject, cb=cb)
        self._takers[subscription._id] = take  # pyright: ignore[reportPrivateUsage] - the library has no other name

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        take = self._takers.get(sid) if not headers else None
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        take(subject, data)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """Read headers as the client library does, in half the time: all events that are read have some."""
        if headers is None or not headers.startswith(USUAL_HEADERS) or not headers.isascii():
            return await super()._process_headers(headers)
        found: dict[str, str] = {}
        for line in headers[len(USUAL_HEADERS) :].decode().strip().split("\r\n"):
            name, colon, value = line.partition(":")
            if not colon or _plain(name) is None:
                return await super()._process_headers(headers)
            found[name] = value.strip()
        return found

    async def hear_out(self, subscription: Subscription) -> None:
        """End a subscription when all that the server had sent for it has been taken, in spite of a cancellation."""
        with anyio.CancelScope(shield=True), suppress(NatsError):
            if self.is_connected:
                with anyio.move_on_after(HEARD_OUT_S):
                    await subscription.drain()
            else:
                await subscription.unsubscribe()
        # Where that took too long, it would be subscribed to again with the next connection.
        self._subs.pop(subscription._id, None)  # pyright: ignore[reportPrivateUsage] - the library has no other name

    def when_lost(self, act: Act) -> None:
        """Call a function whenever the connection is lost: what was asked over it will not be answered."""
        self._at_loss[object()] = act

    @contextmanager
    def lost(self, act: Act) -> Generator[None]:
        """Call a function whenever the connection is lost within the block."""
        with _registered(self._at_loss, act):
            yield

    @contextmanager
    def back(self, act: Act) -> Generator[None]:
        """Call a function whenever the connection is back within the block: subscriptions hear again."""
        with _registered(self._at_return, act):
            yield

    async def settled(self) -> None:
        """Wait as long as the connection is just coming back: to drain it then would take until that times out."""
        news = anyio.Event()
        with self.lost(news.set), self.back(news.set):
            if self.is_connected and not self._whole:
                await news.wait()

    def say_lost(self) -> None:
        """The connection is lost."""
        self._whole = False
        for act in list(self._at_loss.values()):
            act()

    def say_back(self) -> None:
        """There is a new connection, with all subscriptions."""
        self._whole = True
        for act in list(self._at_return.values()):
            act()


@contextmanager
def _registered(acts: dict[object, Act], act: Act) -> Generator[None]:
    token = object()
    acts[token] = act
    try:
        yield
    finally:
        del acts[token]
