"""Committing: guarded publishes one by one, atomic batches, and group commit of what many runs have pending.

Where every append is synced to disk, a batch costs about as much as a single message, so one committer per worker
merges the pending appends of many runs. Within a batch all messages of a run bear the same guard, its last event before
the batch: that is what the server compares with. It does not compare with what the batch itself brings, so a batch has
one append of a run at most: of two behind the same event it would store both. A refused batch does not say whose guard
refused it: its messages are then published one by one, each of a run guarded by the one before.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Struct

from callboard.bus.log import Full, NoAnswer, Refused
from callboard.bus.requests import Requests

BATCH_MESSAGES_MAX = 500
"""Largest group commit; the server takes up to 1000 messages in a batch."""

SINGLES_MAX = 2
SINGLE_MESSAGES_MAX = 16
"""Messages of so few runs are published one by one if they are so few: a batch costs a staging file."""

MESSAGE_ID = "Nats-Msg-Id"
"""The header by which the server tells a message that is published again."""

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"

_REFUSED = frozenset({10071, 10164})
"""Wrong last sequence; on a replicated stream also: another write under the same guard is in flight."""

_NO_ROOM = frozenset({10002, 10023, 10047, 10077})
"""The account's quota is used up; the server's is; no storage can be had for it; the store does not take it."""


class Message(Struct):
    subject: str
    data: bytes
    headers: dict[str, str]


class _PubAck(msgspec.Struct):
    seq: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


_decode_ack = msgspec.json.Decoder(_PubAck).decode


def guarded(after: int, filter: str) -> dict[str, str]:
    """Headers that let a message in only if ``after`` is the last sequence matching the filter."""
    return {EXPECTED: str(after), EXPECTED_SUBJECT: filter}


def _taken(answer: bytes) -> _PubAck:
    ack = _decode_ack(answer)
    if ack.error is None:
        return ack
    code = ack.error.get("err_code")
    if code in _REFUSED:
        raise Refused
    reason = str(ack.error.get("description", code))
    if code in _NO_ROOM:
        raise Full(reason)
    # Whatever else the server says (no leader, too many batches in flight), the message is not stored or we cannot
    # know: the append is tried again, and gives up after its patience.
    raise NoAnswer(reason)


def no_room(error: Mapping[str, Any]) -> Full | None:
    """Return the refusal that an error of the JetStream API amounts to, if it is for lack of room."""
    return Full(str(error.get("description", ""))) if error.get("err_code") in _NO_ROOM else None


async def publish(requests: Requests, message: Message) -> int:
    """Publish one message and return its stream sequence.

    :raises Refused: if its guard does not hold
    :raises Full: if there is no room
    :raises NoAnswer: if no answer came, or one that says neither yes nor no
    """
    return _taken(await requests.request(message.subject, message.data, message.headers)).seq


async def publish_known(requests: Requests, message: Message, id: str) -> tuple[int, bool]:
    """Publish one message under an id; return its sequence, or that of the message which has the id, and whether so.

    Raises as `publish`.
    """
    headers = {**message.headers, MESSAGE_ID: id}
    ack = _taken(await requests.request(message.subject, message.data, headers))
    return ack.seq, ack.duplicate


async def publish_chain(requests: Requests, messages: Sequence[Message]) -> int:
    """Publish messages of one run one after the other, each guarded by the one before; return the sequence of the last.

    Only the guard of the first needs to be right.

    :raises Refused: as `publish`; so many of them, from the first on, may be stored
    :raises NoAnswer: likewise
    """
    sequence = await publish(requests, messages[0])
    for message in messages[1:]:
        message.headers[EXPECTED] = str(sequence)
        sequence = await publish(requests, message)
    return sequence


async def publish_batch(requests: Requests, messages: Sequence[Message]) -> int:
    """Publish messages as one atomic batch (ADR-50) and return the sequence of the last; the others precede it.

    :raises Refused: if the guard of any of them does not hold; nothing is stored then
    :raises NoAnswer: if no answer came, or the batch was not taken up
    """
    batch = uuid4().hex
    for i, message in enumerate(messages[:-1], 1):
        headers = {**message.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(i)}
        await requests.send(message.subject, message.data, headers)
    last = messages[-1]
    headers = {**last.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(messages))}
    headers["Nats-Batch-Commit"] = "1"
    return _taken(await requests.request(last.subject, last.data, headers, hurry=True)).seq


async def publish_turn(requests: Requests, messages: Sequence[Message]) -> int:
    """Publish messages of one run as a batch; if that is not taken up, one after the other. As `publish_chain`."""
    try:
        return await publish_batch(requests, messages)
    except Full:
        raise
    except NoAnswer:
        # It may be stored whole or not at all; then the first is refused, and whoever appends finds it there.
        return await publish_chain(requests, messages)


class _Pending:
    """Messages of one run that wait for their commit, and how it came out."""

    __slots__ = ("error", "gone", "leads", "messages", "run", "sequence", "woken")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.run = messages[0].headers[EXPECTED_SUBJECT]
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leads = False
        self.gone = False
        self.sequence = 0
        self.error: Refused | NoAnswer | None = None

    def lead(self) -> None:
        self.leads = True
        self._wake()

    def settle(self, sequence: int = 0, error: Refused | NoAnswer | None = None) -> None:
        self.sequence, self.error = sequence, error
        self._wake()

    def _wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Committer:
    """Merges the pending appends of many runs.

    There is no task to start or to stop: whoever finds nobody leading leads, that is, commits its own messages with all
    that is pending, and hands over to the next who waits.
    """

    def __init__(self, requests: Requests, *, batches: bool = False) -> None:
        self._requests = requests
        self._batches = batches
        self._pending: deque[_Pending] = deque()
        self._led = False
        self._crowded = False

    async def put(self, messages: Sequence[Message]) -> int:
        """Publish messages of one run, alone or together with those of others; as `publish_chain`."""
        pending = _Pending(messages)
        if self._led:
            await self._wait(pending)
        else:
            self._led = pending.leads = True
        if pending.leads:
            await self._lead(pending)
        if pending.error is not None:
            raise pending.error
        return pending.sequence

    async def _wait(self, pending: _Pending) -> None:
        """Wait until another leader has committed, or the lead has come to these messages."""
        self._pending.append(pending)
        try:
            await pending.woken
        except asyncio.CancelledError:
            # What no leader has taken was never published, and need not be.
            pending.gone = True
            if pending.leads:
                self._hand_over()
            raise

    async def _lead(self, pending: _Pending) -> None:
        batch = [pending]
        try:
            if self._crowded:
                # Those whom the last commit woke are all about to append: let them.
                await anyio.lowlevel.checkpoint()
            batch += self._taken(pending)
            self._crowded = len(batch) > 1
            # A leader that is cancelled must not leave the others of its batch without an answer.
            with anyio.CancelScope(shield=True):
                await self._commit(batch)
        finally:
            # Nor one that fails as it never should; whoever has its answer keeps it.
            for other in batch[1:]:
                if not other.woken.done():
                    other.settle(error=NoAnswer("the commit failed"))
            self._hand_over()

    def _taken(self, first: _Pending) -> list[_Pending]:
        """Take what goes into the batch of the leader, in order, up to a run that is in it already."""
        taken: list[_Pending] = []
        runs, room = {first.run}, BATCH_MESSAGES_MAX - len(first.messages)
        while self._pending and len(self._pending[0].messages) <= room and self._pending[0].run not in runs:
            pending = self._pending.popleft()
            if not pending.gone:
                taken.append(pending)
                runs.add(pending.run)
                room -= len(pending.messages)
        return taken

    def _hand_over(self) -> None:
        while self._pending:
            heir = self._pending.popleft()
            if not heir.gone:
                heir.lead()
                return
        self._led = False

    async def _commit(self, batch: list[_Pending]) -> None:
        messages = [message for pending in batch for message in pending.messages]
        many = len(batch) > SINGLES_MAX or len(messages) > SINGLE_MESSAGES_MAX
        if many or (self._batches and len(messages) > 1):
            try:
                last = await publish_batch(self._requests, messages)
            except (Refused, NoAnswer):
                # One guard refused them all, or nobody knows: one by one each gets its own answer.
                pass
            else:
                for pending in reversed(batch):
                    pending.settle(last)
                    last -= len(pending.messages)
                return
        if len(batch) == 1:
            await self._single(batch[0])
            return
        async with anyio.create_task_group() as tasks:
            for pending in batch:
                tasks.start_soon(self._single, pending)

    async def _single(self, pending: _Pending) -> None:
        try:
            pending.settle(await publish_chain(self._requests, pending.messages))
        except (Refused, NoAnswer) as error:
            pending.settle(error=error)
