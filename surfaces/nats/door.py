"""The door: takes starts, commands and large values from the accounts of tenants into the log.

`callboard.bus.nats.accounts` lets a tenant's messages arrive on ``<prefix>.door.<tenant>.…``, which is not stored.
The door checks the subject, drops every header that Callboard does not use, and publishes the message in the stream.
So headers of a tenant cannot reach JetStream, where ``Nats-Rollup`` deletes messages and
``Nats-Schedule-Target`` publishes on any subject. The answer has JetStream's format: ``{"stream", "seq"}``, or
``{"error": {"code", "description"}}``.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import msgspec
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.commands import REPLY_HEADER, ROUTING_BYTES, WORKER_HEADER
from callboard.bus.log.port import AppendRefused, Full, NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.commit import EXPECTED, MESSAGE_ID, OutgoingMessage
from callboard.bus.outgoing_subjects import OutgoingPolicy
from callboard.bus.tracecontext import TRACEPARENT, TRACESTATE

if TYPE_CHECKING:
    from callboard.runtime.client.connection import Connection

logger = structlog.get_logger(__name__)

MESSAGES_MAX = 64
"""Messages that one process stores at once; beyond that the answer is an error, and the tenant publishes again."""

PIECES_MAX = 64
"""Pieces of one large value: 16 MiB in pieces of 256 KiB. A worker that reads the value reads every piece."""

HEADER_CHARS_MAX = 1_000
MESSAGE_ID_CHARS_MAX = 200

_KEPT = (REPLY_HEADER, WORKER_HEADER, TRACEPARENT, TRACESTATE)
_TOKEN = re.compile(r"[A-Za-z0-9_=-]{1,160}")
_VERB = re.compile(r"[a-z_]{1,40}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class _Refusal(Exception):
    """The message is not stored. ``code`` has the meaning it has in HTTP and JetStream."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.answer = {"error": {"code": code, "description": description}}


@asynccontextmanager
async def open_door(connection: "Connection", tasks: anyio.abc.TaskGroup) -> AsyncGenerator[None]:
    """Store the messages that tenants publish in their accounts, for the length of the block.

    All processes with an open door share the messages.
    """
    prefix = connection.log.subjects.prefix
    door = _Door(connection, tasks)
    subscription = await connection.nc.subscribe(f"{prefix}.door.*.>", queue=f"{prefix}.door", cb=door.take)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _close(subscription.unsubscribe())


async def _close(closing: Any) -> None:
    try:
        await closing
    except NatsError as error:
        logger.warning("door could not be closed in good order", error=str(error))


class _Door:
    def __init__(self, connection: "Connection", tasks: anyio.abc.TaskGroup) -> None:
        self._nc = connection.nc
        self._log = connection.log
        self._tasks = tasks
        self._policy = OutgoingPolicy(self._log.subjects.prefix, connection.config.nats_inbox_prefix)
        self._active = 0

    async def take(self, message: Msg) -> None:
        """Store a message in a separate task: the client library makes one call at a time."""
        if self._active >= MESSAGES_MAX:
            await self._answer(message, _Refusal(503, f"{MESSAGES_MAX} messages are being stored; try again").answer)
            return
        self._active += 1
        self._tasks.start_soon(self._store, message)

    async def _store(self, message: Msg) -> None:
        try:
            with content_guard():
                answer = await self._publish(message)
            await self._answer(message, answer)
        finally:
            self._active -= 1

    async def _publish(self, message: Msg) -> dict[str, Any]:
        try:
            entering = self._stored_message(message)
            return {"stream": self._log.stream, "seq": await self._log.publish(entering)}
        except _Refusal as refusal:
            return refusal.answer
        except AppendRefused:
            # Only pieces of large values are guarded. This piece is already stored, and the first one is kept.
            stored = await self._first_sequence(message)
            return {"stream": self._log.stream, "seq": stored, "duplicate": True}
        except Full as full:
            return _Refusal(503, f"the store is full: {full.reason}").answer
        except NoAnswer:
            return _Refusal(503, "the log does not answer; publish again, with the same Nats-Msg-Id").answer
        except NatsError as error:
            return _Refusal(400, f"the message cannot be stored: {type(error).__name__}").answer

    async def _first_sequence(self, message: Msg) -> int:
        try:
            found = await self._log.next_message(self._stored_message(message).subject, 1)
        except NoAnswer:
            return 0
        return found.sequence if found is not None else 0

    def _stored_message(self, message: Msg) -> OutgoingMessage:
        """Return the message to store for a message of a tenant.

        :raises _Refusal: if tenants may not publish on its subject, or it is too large
        """
        prefix = self._log.subjects.prefix
        tenant, family, *rest = message.subject.removeprefix(f"{prefix}.door.").split(".")
        headers = message.headers or {}
        if not _TOKEN.fullmatch(tenant):
            raise _Refusal(400, "the subject does not contain a valid tenant")
        if len(message.data) > (most := self._nc.max_payload - ROUTING_BYTES):
            # With the added headers it would be too large, and the server would close the connection of this process.
            raise _Refusal(413, f"the message has {len(message.data)} bytes, expected at most {most}")
        match family, rest:
            case "start", []:
                kept = self._keep_headers(tenant, headers)
            case "tell", [run, verb] if _TOKEN.fullmatch(run) and _VERB.fullmatch(verb):
                kept = self._keep_headers(tenant, headers)
            case "blob", [run, digest, number] if _TOKEN.fullmatch(run) and _DIGEST.fullmatch(digest):
                kept = _piece_headers(number, headers)
            case _:
                expected = "start.<tenant>, tell.<tenant>.<run>.<verb>, blob.<tenant>.<run>.<sha256>.<i>"
                raise _Refusal(400, f"tenants cannot publish on this subject; expected {expected} below {prefix}")
        return OutgoingMessage(".".join([prefix, family, tenant, *rest]), message.data, kept)

    def _keep_headers(self, tenant: str, headers: Mapping[str, str]) -> dict[str, str]:
        kept = {name: headers[name] for name in _KEPT if 0 < len(headers.get(name, "")) <= HEADER_CHARS_MAX}
        if id := headers.get(MESSAGE_ID):
            if len(id) > MESSAGE_ID_CHARS_MAX:
                raise _Refusal(400, f"{MESSAGE_ID} has more than {MESSAGE_ID_CHARS_MAX} characters")
            # Ids apply to the whole stream. The prefix keeps those of tenants apart from each other and from ours.
            kept[MESSAGE_ID] = f"door.{tenant}.{id}"
        return kept

    async def _answer(self, message: Msg, answer: dict[str, Any]) -> None:
        if not message.reply:
            return
        # The tenant's allow-list applies to its runs, not to this: the server generates the reply subjects of tenants.
        if self._policy.fault_of_reply("", message.reply) is not None:
            logger.warning("a message names a reply subject that is not for answers", subject=message.subject)
            return
        try:
            await self._nc.publish(message.reply, msgspec.json.encode(answer))
        except NatsError as error:
            logger.warning("a tenant could not be answered", subject=message.subject, error=str(error))


def _piece_headers(number: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with which a piece of a large value is stored, once only."""
    if not _NUMBER.fullmatch(number) or int(number) >= PIECES_MAX:
        raise _Refusal(400, f"a large value has at most {PIECES_MAX} pieces, with the numbers 0 to {PIECES_MAX - 1}")
    count = headers.get(COUNT, "")
    if not _NUMBER.fullmatch(count) or not 0 < int(count) <= PIECES_MAX:
        raise _Refusal(400, f"the header {COUNT} must be the number of pieces, 1 to {PIECES_MAX}")
    return {COUNT: count, EXPECTED: "0"}
