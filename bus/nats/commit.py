"""Commits to the stream: single guarded publishes, atomic batches, and group commit of the appends of many runs.

On a server that syncs every append to disk, a batch costs about as much as a single message. So one committer per
worker merges the pending appends of many runs.

Within a batch all messages of a run have the same guard: the sequence of the run's last event before the batch. The
server compares guards with the stream only, and not with the other messages of the batch. So a batch contains at most
one append of a run: the server would store two appends that follow the same event. If the server refuses a batch, it
does not say which guard failed. The messages are then published one by one, each guarded by the run's previous message.
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

from callboard.bus.log.port import AppendRefused, Full, NoAnswer
from callboard.bus.nats.requests import Requests

BATCH_MESSAGES_MAX = 500
"""Largest group commit; the server takes up to 1000 messages in a batch."""

SINGLES_MAX = 2
SINGLE_MESSAGES_MAX = 16
"""Up to this number of appends, with up to this number of messages in total, are published one by one: a batch costs
the server a staging file."""

MESSAGE_ID = "Nats-Msg-Id"
"""The header by which the server recognizes a message that is published again."""

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"

_REFUSED = frozenset({10071, 10164})
"""Error codes: wrong last sequence; on a replicated stream also another write with the same guard in flight."""

_NO_ROOM = frozenset({10002, 10023, 10047, 10077})
"""Error codes: the account's quota is used up; the server's is; no storage is available; the store failed to write."""


class OutgoingMessage(Struct):
    subject: str
    data: bytes
    headers: dict[str, str]


class _PubAck(msgspec.Struct):
    seq: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


_decode_ack = msgspec.json.Decoder(_PubAck).decode


def guard_headers(after: int, filter: str) -> dict[str, str]:
    """Return headers with which the server stores a message only if ``after`` is the last sequence on the filter."""
    return {EXPECTED: str(after), EXPECTED_SUBJECT: filter}


def _read_ack(answer: bytes) -> _PubAck:
    ack = _decode_ack(answer)
    if ack.error is None:
        return ack
    code = ack.error.get("err_code")
    if code in _REFUSED:
        raise AppendRefused
    reason = str(ack.error.get("description", code))
    if code in _NO_ROOM:
        raise Full(reason)
    # After any other error (no leader, too many batches in flight) the message is not stored, or we cannot know. The
    # append is repeated until its time is up.
    raise NoAnswer(reason)


def no_room(error: Mapping[str, Any]) -> Full | None:
    """Return the exception for an error of the JetStream API, if the server has no space left; otherwise None."""
    return Full(str(error.get("description", ""))) if error.get("err_code") in _NO_ROOM else None


async def publish(requests: Requests, message: OutgoingMessage) -> int:
    """Publish one message and return its stream sequence.

    :raises AppendRefused: if its guard does not hold
    :raises Full: if the server has no space left
    :raises NoAnswer: if no answer came, or one that does not say whether the message is stored
    """
    return _read_ack(await requests.request(message.subject, message.data, message.headers)).seq


async def publish_known(requests: Requests, message: OutgoingMessage, id: str) -> tuple[int, bool]:
    """Publish one message under an id; return its sequence, and whether a message with this id was stored before.

    In that case the sequence is the one of the earlier message. Raises the same exceptions as `publish`.
    """
    headers = {**message.headers, MESSAGE_ID: id}
    ack = _read_ack(await requests.request(message.subject, message.data, headers))
    return ack.seq, ack.duplicate


async def publish_chain(requests: Requests, messages: Sequence[OutgoingMessage]) -> int:
    """Publish messages of one run one after the other, each guarded by the previous one; return the last sequence.

    Only the guard of the first message has to be correct.

    :raises AppendRefused: as `publish`; some of the messages, from the first on, may be stored
    :raises NoAnswer: as `publish`; some of the messages, from the first on, may be stored
    """
    sequence = await publish(requests, messages[0])
    for message in messages[1:]:
        message.headers[EXPECTED] = str(sequence)
        sequence = await publish(requests, message)
    return sequence


async def publish_batch(requests: Requests, messages: Sequence[OutgoingMessage]) -> int:
    """Publish messages as one atomic batch (ADR-50) and return the sequence of the last; the others precede it.

    :raises AppendRefused: if the guard of any message does not hold; the server has then stored nothing
    :raises NoAnswer: if no answer came, or the server did not accept the batch
    """
    batch = uuid4().hex
    for i, message in enumerate(messages[:-1], 1):
        headers = {**message.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(i)}
        await requests.send(message.subject, message.data, headers)
    last = messages[-1]
    headers = {**last.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(messages))}
    headers["Nats-Batch-Commit"] = "1"
    return _read_ack(await requests.request(last.subject, last.data, headers, hurry=True)).seq


async def publish_turn(requests: Requests, messages: Sequence[OutgoingMessage]) -> int:
    """Publish messages of one run as a batch, or one after the other if the server does not accept the batch.

    Returns and raises as `publish_chain`.
    """
    try:
        return await publish_batch(requests, messages)
    except Full:
        raise
    except NoAnswer:
        # The batch is stored completely or not at all. If it is stored, the first message is now refused, and the
        # caller of the append finds its events in the log.
        return await publish_chain(requests, messages)


class _Pending:
    """Messages of one run that wait for their commit, and the result of the commit.

    ``together`` means that all of them are to be stored or none.
    """

    __slots__ = ("error", "gone", "leads", "messages", "run", "sequence", "together", "woken")

    def __init__(self, messages: Sequence[OutgoingMessage], *, together: bool) -> None:
        self.messages = messages
        self.together = together
        self.run = messages[0].headers[EXPECTED_SUBJECT]
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leads = False
        self.gone = False
        self.sequence = 0
        self.error: AppendRefused | NoAnswer | None = None

    def lead(self) -> None:
        self.leads = True
        self._wake()

    def settle(self, sequence: int = 0, error: AppendRefused | NoAnswer | None = None) -> None:
        self.sequence, self.error = sequence, error
        self._wake()

    def _wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Committer:
    """Merges the pending appends of many runs.

    It needs no background task. A caller that finds no leader becomes the leader: it commits its own messages together
    with all pending ones, and hands the lead over to the next waiting caller.
    """

    def __init__(self, requests: Requests, *, batches: bool = False) -> None:
        self._requests = requests
        self._batches = batches
        self._pending: deque[_Pending] = deque()
        self._led = False
        self._crowded = False

    async def put(self, messages: Sequence[OutgoingMessage], *, together: bool = False) -> int:
        """Publish messages of one run, alone or in one batch with those of others. Return and raise as `publish_chain`.

        With ``together``, all messages are stored or none of them, as by `publish_batch`.
        """
        pending = _Pending(messages, together=together)
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
        """Wait until a leader has committed these messages, or until their caller is the leader."""
        self._pending.append(pending)
        try:
            await pending.woken
        except asyncio.CancelledError:
            # Messages that no leader has taken were never published, and are not needed any longer.
            pending.gone = True
            if pending.leads:
                self._hand_over()
            raise

    async def _lead(self, pending: _Pending) -> None:
        batch = [pending]
        try:
            if self._crowded:
                # The callers that the last commit woke are about to append again: let them join this batch.
                await anyio.lowlevel.checkpoint()
            batch += self._take_batch(pending)
            self._crowded = len(batch) > 1
            # If the leader is cancelled, the other callers of its batch still need their answers.
            with anyio.CancelScope(shield=True):
                await self._commit(batch)
        finally:
            # They need answers also if the leader fails unexpectedly. Answers that were already given stay.
            for other in batch[1:]:
                if not other.woken.done():
                    other.settle(error=NoAnswer("the commit failed"))
            self._hand_over()

    def _take_batch(self, first: _Pending) -> list[_Pending]:
        """Take the appends for the leader's batch, in order, up to one of a run that the batch already contains."""
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
            except (AppendRefused, NoAnswer):
                # The guard of one run failed, or the result is unknown. Published one by one, each run gets its answer.
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
            publish = publish_batch if pending.together else publish_chain
            pending.settle(await publish(self._requests, pending.messages))
        except (AppendRefused, NoAnswer) as error:
            pending.settle(error=error)
