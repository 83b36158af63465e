"""Committing: guarded publishes one by one, atomic batches, and group commit of what many runs have pending.

Where every append is synced to disk, a batch costs about as much as a single message, so one committer per worker
merges the pending appends of many runs; each message keeps its own run's guard. A refused batch does not say whose
guard refused it: its messages are then published one by one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import anyio
import msgspec

from callboard.bus.log import Refused, Unknown
from callboard.bus.requests import Requests

BATCH_MESSAGES_MAX = 500
"""Largest group commit; the server takes up to 1000 messages in a batch."""

SINGLES_MAX = 2
"""So few pending appends are published one by one: a batch costs a staging file."""

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"

_REFUSED = frozenset({10071, 10164})
"""Wrong last sequence; on a replicated stream also: another write under the same guard is in flight."""


@dataclass(slots=True)
class Message:
    subject: str
    data: bytes
    headers: dict[str, str]


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: dict[str, object] | None = None


_decode_ack = msgspec.json.Decoder(_PubAck).decode


def guarded(after: int, filter: str) -> dict[str, str]:
    """Headers that let a message in only if ``after`` is the last sequence matching the filter."""
    return {EXPECTED: str(after), EXPECTED_SUBJECT: filter}


def _sequence(answer: bytes) -> int:
    ack = _decode_ack(answer)
    if ack.error is None:
        return ack.seq
    code = ack.error.get("err_code")
    if code in _REFUSED:
        raise Refused
    # Whatever else the server says (no leader, too many batches in flight, disk trouble), the message is not stored
    # or we cannot know: the append is tried again, and gives up after its patience.
    raise Unknown(str(ack.error.get("description", code)))


async def publish(requests: Requests, message: Message) -> int:
    """Publish one message and return its stream sequence.

    :raises Refused: if its guard does not hold
    :raises Unknown: if no answer came, or one that says neither yes nor no
    """
    return _sequence(await requests.request(message.subject, message.data, message.headers))


async def publish_batch(requests: Requests, messages: Sequence[Message]) -> int:
    """Publish messages as one atomic batch (ADR-50) and return the sequence of the last; the others precede it.

    :raises Refused: if the guard of any of them does not hold; nothing is stored then
    :raises Unknown: if no answer came, or the batch was not taken up
    """
    batch = uuid4().hex
    for i, message in enumerate(messages[:-1], 1):
        headers = {**message.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(i)}
        await requests.send(message.subject, message.data, headers)
    last = messages[-1]
    headers = {**last.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(messages))}
    headers["Nats-Batch-Commit"] = "1"
    return _sequence(await requests.request(last.subject, last.data, headers))


class _Pending:
    """A message that waits for its commit, and how it came out."""

    __slots__ = ("done", "error", "gone", "leads", "message", "sequence", "woken")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leads = False
        self.done = False
        self.gone = False
        self.sequence = 0
        self.error: Refused | Unknown | None = None

    def settle(self, sequence: int = 0, error: Refused | Unknown | None = None) -> None:
        self.sequence, self.error, self.done = sequence, error, True
        self.wake()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Committer:
    """Merges the pending appends of many runs.

    There is no task to start or to stop: whoever comes first leads, that is, commits all that is pending until its own
    message is through, and hands over to the next who waits.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._pending: list[_Pending] = []
        self._led = False

    async def put(self, message: Message) -> int:
        """Publish a message, alone or together with others; as `publish`."""
        pending = _Pending(message)
        self._pending.append(pending)
        try:
            if self._led:
                await pending.woken
            else:
                self._led = pending.leads = True
            while pending.leads and not pending.done:
                await self._commit_pending()
        finally:
            pending.gone = True
            if pending.leads:
                self._hand_over()
        if pending.error is not None:
            raise pending.error
        return pending.sequence

    def _hand_over(self) -> None:
        self._pending = [pending for pending in self._pending if not pending.gone]
        if self._pending:
            heir = self._pending[0]
            heir.leads = True
            heir.wake()
        else:
            self._led = False

    async def _commit_pending(self) -> None:
        # Whoever was cancelled has left its message here; it was never published, and need not be.
        waiting = [pending for pending in self._pending if not pending.gone]
        batch, self._pending = waiting[:BATCH_MESSAGES_MAX], waiting[BATCH_MESSAGES_MAX:]
        # A leader that is cancelled must not leave the others of its batch without an answer.
        try:
            with anyio.CancelScope(shield=True):
                await self._commit(batch)
        finally:
            # Nor one that fails as it never should.
            for pending in batch:
                if not pending.done:
                    pending.settle(error=Unknown("the commit failed"))

    async def _commit(self, batch: list[_Pending]) -> None:
        if len(batch) > SINGLES_MAX:
            try:
                last = await publish_batch(self._requests, [pending.message for pending in batch])
            except (Refused, Unknown):
                # One guard refused them all, or nobody knows: one by one each gets its own answer.
                pass
            else:
                for i, pending in enumerate(reversed(batch)):
                    pending.settle(last - i)
                return
        if len(batch) == 1:
            await self._single(batch[0])
            return
        async with anyio.create_task_group() as tasks:
            for pending in batch:
                tasks.start_soon(self._single, pending)

    async def _single(self, pending: _Pending) -> None:
        try:
            pending.settle(await publish(self._requests, pending.message))
        except (Refused, Unknown) as error:
            pending.settle(error=error)
