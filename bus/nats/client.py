"""The client of the NATS server: nats-py's client, with callbacks for when the connection is lost and when it is back.

nats-py reconnects automatically, with all subscriptions. But messages in flight are lost, and so are the consumers and
requests of the old connection. The callbacks notify the code that waits for them.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import anyio
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.protocol.parser import AWAITING_CONTROL_LINE, ERR_RE, PERMISSIONS_ERR

from callboard.bus.nats import nkeys

Act = Callable[[], None]

Take = Callable[[bytes, bytes], None]
"""Receives the subject and the data of a message."""

RawTake = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Receives the subject, the reply subject, the data and the headers of a message as they were sent."""


class Posted(Protocol):
    """A message to publish."""

    subject: str
    data: bytes
    headers: dict[str, str]
    reply: str


HEARD_OUT_S = 2.0
"""How long to wait for the remaining messages of a subscription when it ends."""

UNWRITTEN_BYTES_MAX = 1024 * 1024
"""With more data than this, messages of synchronous code wait until the connection has taken some."""

UNTAKEN_BYTES_MAX = 16 * 1024 * 1024
"""With more data than this that the connection has not taken, appends are not written at once. They are repeated while
the server does not answer, and a server that reads nothing must not have them fill the memory."""

USUAL_HEADERS = b"NATS/1.0\r\n"
"""The beginning of headers without a status line of the server."""

CRLF = b"\r\n"

_direct = re.compile(rb"MSG (\S+) (\d+) (\d+)\r\n").match
"""Matches the first line of a message without headers and without a reply subject."""

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
        self._raw_takers: dict[int, RawTake] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._whole = True
        self._pushes: set[float] = set()
        """The delays after which messages are written, as far as a timer for them runs."""

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
        usual = self.is_connected and not self.is_draining_pubs and self._flush_queue is not None
        frame = self._frame(subject, payload, reply, headers) if usual else None
        if frame is None or (reply and _plain(reply) is None):
            await super().publish(subject, payload, reply, headers)
            return
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        await self._send_command(frame)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    def write(self, messages: Sequence[Posted], reply: str) -> bool:
        """Write messages to the wire at once, the last with this reply subject; return false in unusual cases.

        Return false also while the connection takes data too slowly.
        """
        if self._transport is None or not self.is_connected or self.is_draining_pubs:
            return False
        if self._untaken_bytes() > UNTAKEN_BYTES_MAX:
            return False
        frames, size, last = list[bytes](), 0, messages[-1]
        for message in messages:
            answer = reply if message is last else message.reply
            frame = self._frame(message.subject, message.data, answer, message.headers)
            if frame is None:
                return False
            frames.append(frame)
            size += len(message.data)
        self.stats["out_msgs"] += len(frames)
        self.stats["out_bytes"] += size
        self._pending += frames
        self.push()
        return True

    def enqueue(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, *, within_s: float = 0.0
    ) -> bool:
        """Have a message written together with those that follow, ``within_s`` seconds; return false in unusual cases.

        Return false also while the connection takes data too slowly.
        """
        if self._transport is None or not self.is_connected or self.is_draining_pubs:
            return False
        frame = self._frame(subject, data, "", headers)
        if frame is None or self._pending_data_size + self._untaken_bytes() > UNWRITTEN_BYTES_MAX:
            return False
        if within_s not in self._pushes:
            self._pushes.add(within_s)
            asyncio.get_running_loop().call_later(within_s, self._push_after, within_s)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(data)
        self._pending.append(frame)
        self._pending_data_size += len(frame)
        return True

    def _push_after(self, seconds: float) -> None:
        self._pushes.discard(seconds)
        self.push()

    def _untaken_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size() if self._writer is not None else 0

    def _frame(self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None) -> bytes | None:
        """Return a message as it is written to the wire; None in unusual cases."""
        if len(payload) > self._max_payload or _plain(subject) is None:
            return None
        if not headers:
            return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"
        # Concatenated instead of formatted: the library's names of headers are members of a string enumeration.
        head = "NATS/1.0\r\n"
        for name in headers:
            value = headers[name]
            if "\n" in value or "\r" in value or "\n" in name or "\r" in name:
                return None
            head += name + ": " + value + "\r\n"
        lines = (head + "\r\n").encode()
        size = len(lines)
        return f"HPUB {subject} {reply} {size} {size + len(payload)}\r\n".encode() + lines + payload + b"\r\n"

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
        reader: asyncio.StreamReader | None = getattr(self._transport, "_io_reader", None)
        if reader is not None:
            self._read_directly(reader)
        # The library upgrades to TLS without notice to asyncio's protocol, which warns when the server closes.
        writer = self._writer = getattr(self._transport, "_io_writer", None)
        if writer is not None and writer.get_extra_info("sslcontext") is not None:
            protocol: Any = writer.transport.get_protocol()
            protocol._over_ssl = True

    async def _connect_to_server(self, s: Srv) -> None:
        # The library loses a cancellation that arrives together with a server's refusal. Without this check, a closed
        # client would try to reconnect without end.
        if self.is_closed and asyncio.current_task() is self._reconnection_task:
            raise asyncio.CancelledError
        await super()._connect_to_server(s)

    async def _attempt_reconnect(self) -> None:
        # The library waits until the lost connection has taken all data. If the server is stopped or cannot be reached,
        # that ends only when the operating system gives the connection up, after about 15 minutes.
        if self._writer is not None:
            self._writer.transport.abort()
        await super()._attempt_reconnect()

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

    def _read_directly(self, reader: asyncio.StreamReader) -> None:
        """Hand messages of direct subscriptions over as soon as the socket has them, without waking the reading task.

        This happens only while the library has nothing left to read, so that the order stays. Anything else than
        complete, plain messages of such subscriptions goes to the library.
        """
        feed, parser = reader.feed_data, self._ps
        unread: bytearray = reader._buffer  # pyright: ignore[reportAttributeAccessIssue] - asyncio has no other name

        def feed_data(data: bytes) -> None:
            while data and not unread and not parser.buf and parser.state == AWAITING_CONTROL_LINE:
                found = _direct(data)
                take = self._takers.get(int(found[2])) if found is not None else None
                if found is None or take is None:
                    break
                end = found.end() + int(found[3])
                if len(data) < end + len(CRLF):
                    break
                body, subject = data[found.end() : end], found[1]
                data = data[end + len(CRLF) :]
                self._count_received(len(body))
                take(subject, body)
            if data:
                feed(data)

        reader.feed_data = feed_data  # pyright: ignore[reportAttributeAccessIssue] - replaced in this reader only

    async def subscribe_raw(self, subject: str, take: RawTake) -> Subscription:
        """Subscribe with a function that gets all messages as they are read from the wire, and must not block.

        The client library spends several times as long on a message: it parses the headers, and hands the message to a
        task of the subscription."""
        subscription = await self.subscribe(subject)
        self._raw_takers[subscription._id] = take  # pyright: ignore[reportPrivateUsage] - the library has no other name
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self._raw_takers.pop(sid, None)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        take = self._takers.get(sid) if not headers else None
        raw = self._raw_takers.get(sid) if take is None else None
        if take is None and raw is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self._count_received(len(data))
        if take is not None:
            take(subject, data)
        elif raw is not None:
            raw(subject, reply, data, headers)

    def _count_received(self, size: int) -> None:
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += size

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
