"""The client of the NATS server: nats-py's client, with callbacks for when the connection is lost and when it is back.

nats-py reconnects automatically, with all subscriptions. But messages in flight are lost, and so are the consumers and
requests of the old connection. The callbacks notify the code that waits for them.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.protocol.parser import ERR_RE, PERMISSIONS_ERR

from callboard.bus.nats import nkeys

Act = Callable[[], None]

Take = Callable[[bytes, bytes], None]
"""Receives the subject and the data of a message."""

HEARD_OUT_S = 2.0
"""How long to wait for the remaining messages of a subscription when it ends."""

USUAL_HEADERS = b"NATS/1.0\r\n"
"""The beginning of headers without a status line of the server."""

_plain = re.compile(r"[!-~]+").fullmatch
"""Matches a text of visible ASCII characters, which needs no further check as a subject."""


NO_LEADER = frozenset({10008, 10009})
"""Error codes of the JetStream API: its cluster currently has no leader."""


class TlsMissing(NatsError):
    """The URL asks for TLS, and the server does not offer it: what we say, the credentials first, could be read."""


class ReconnectingClient(Client):
    """A client that reconnects automatically. Callbacks for a lost or restored connection must not block."""

    def __init__(self, domain: str = "") -> None:
        super().__init__()
        self.domain = domain
        """The JetStream domain to use, empty for that of the connected server."""
        self._at_loss: dict[object, Act] = {}
        self._at_return: dict[object, Act] = {}
        self._takers: dict[int, Take] = {}
        self._whole = True

    @property
    def in_cluster(self) -> bool:
        """Whether the connected server belongs to a cluster."""
        return bool(self._server_info.get("cluster"))

    @property
    def encrypted(self) -> bool:
        """Whether the server had the connection upgraded to TLS."""
        return bool(self._server_info.get("tls_required"))

    def js(self, verb: str) -> str:
        """Return the subject of a request to the JetStream API."""
        return f"$JS.{self.domain}.API.{verb}" if self.domain else f"$JS.API.{verb}"

    def jetstream(self, **opts: Any) -> JetStreamContext:
        """Return the client library's JetStream context, in our domain."""
        return super().jetstream(**({"domain": self.domain, **opts} if self.domain else opts))

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish as the client library does, but faster, because every event is published here.

        Unusual cases (a connection that is down, a body that is too large, an invalid subject or header) are left to
        the library, which raises its errors.
        """
        # Concatenated instead of formatted: the library's names of headers are members of a string enumeration.
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

    def _setup_nkeys_connect(self) -> None:
        """Sign with the seed, or with that of the credentials file, which is read at each connection."""
        if self._nkeys_seed_str is not None:
            key = nkeys.read_seed(self._nkeys_seed_str)
            self._public_nkey = nkeys.public_key(key)
            self._signature_cb = partial(nkeys.sign, key)
        else:
            file = str(self._user_credentials)
            self._user_jwt_cb = lambda: bytearray(nkeys.read_credentials(file)[0].encode())
            self._signature_cb = lambda nonce: nkeys.sign(nkeys.read_seed(nkeys.read_credentials(file)[1]), nonce)

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
        # The library upgrades to TLS without notice to asyncio's protocol, which warns when the server closes.
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        if writer is not None and writer.get_extra_info("sslcontext") is not None:
            protocol: Any = writer.transport.get_protocol()
            protocol._over_ssl = True

    async def _connect_to_server(self, s: Srv) -> None:
        # The library loses a cancellation that arrives together with a server's refusal. Without this check, a closed
        # client would try to reconnect without end.
        if self.is_closed and asyncio.current_task() is self._reconnection_task:
            raise asyncio.CancelledError
        await super()._connect_to_server(s)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # The library flushes pending data. If the connection is lost, the flush fails and the library's tasks stay.
        if not self.is_connected:
            self._drop_pending()
        try:
            await super()._close(status, do_cbs)
        except OSError:
            self._drop_pending()
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)

    def _drop_pending(self) -> None:
        self._pending, self._pending_data_size = [], 0

    def push(self) -> None:
        """Write published messages to the wire immediately, instead of waiting for the library's flusher task.

        Used when a caller waits for the effect of these messages."""
        if self._transport is not None and self._pending and self.is_connected:
            pending = self._pending
            self._drop_pending()
            self._transport.writelines(pending)

    async def subscribe_directly(self, subject: str, take: Take, cb: Callable[[Msg], Awaitable[None]]) -> None:
        """Subscribe with a function that gets messages as they are read from the wire, and must not block.

        Messages with headers go to ``cb``, as with `subscribe`."""
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
        """Parse headers as the client library does, in half the time, because every event has headers."""
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
        """End a subscription after all messages that the server sent for it are handled, even during a cancellation."""
        with anyio.CancelScope(shield=True), suppress(NatsError):
            if self.is_connected:
                with anyio.move_on_after(HEARD_OUT_S):
                    await subscription.drain()
            else:
                await subscription.unsubscribe()
        # If that timed out, the library would otherwise renew the subscription with the next connection.
        self._subs.pop(subscription._id, None)  # pyright: ignore[reportPrivateUsage] - the library has no other name

    def when_lost(self, act: Act) -> None:
        """Call a function whenever the connection is lost. Requests in flight will then get no answer."""
        self._at_loss[object()] = act

    @contextmanager
    def lost(self, act: Act) -> Generator[None]:
        """Call a function whenever the connection is lost within the block."""
        with _register(self._at_loss, act):
            yield

    @contextmanager
    def back(self, act: Act) -> Generator[None]:
        """Call a function whenever the connection is restored within the block, with all subscriptions."""
        with _register(self._at_return, act):
            yield

    async def wait_settled(self) -> None:
        """Wait while the client is reconnecting. A drain during that time would only end by its timeout."""
        news = anyio.Event()
        with self.lost(news.set), self.back(news.set):
            if self.is_connected and not self._whole:
                await news.wait()

    def say_lost(self) -> None:
        """Call the callbacks for a lost connection."""
        self._whole = False
        for act in list(self._at_loss.values()):
            act()

    def say_back(self) -> None:
        """Call the callbacks for a restored connection."""
        self._whole = True
        for act in list(self._at_return.values()):
            act()


@contextmanager
def _register(acts: dict[object, Act], act: Act) -> Generator[None]:
    token = object()
    acts[token] = act
    try:
        yield
    finally:
        del acts[token]
