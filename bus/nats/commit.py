"""Commits to the stream: single guarded publishes, atomic batches, and group commit of the appends of many runs.

On a server that syncs every append to disk, a batch costs about as much as a single message. So one committer per
worker merges the pending appends of many runs.

Within a batch all messages of a run have the same guard: the sequence of the run's last event before the batch. The
server compares guards with the stream only, and not with the other messages of the batch. So a batch contains at most
one append of a run: the server would store two appends that follow the same event. If the server refuses a batch, it
does not say which guard failed. The messages are then published one by one, each guarded by the run's previous message.

**Fast batches** (ADR-50) are stored message by message, as soon as each one arrives. The server stages nothing, so one
costs much less than an atomic batch; but if every message is synced, each is synced separately. So the committer finds
out which of the two is the quicker one for a number of messages. If the server refuses a message, it does not store
those after it. What is stored is a beginning of the turn, and any beginning is valid.

The first message of a fast batch has the guard of its run. Each further one expects the sequence that the message
before it gets if nobody else writes to the stream. If somebody does, this sequence is too low, and the server refuses
the message. It is never too high, because the stream has already reached the sequence before it. So every message is
stored directly after the one before it, or not at all. Messages that are only sent without waiting would not be safe:
if the first one is refused, the event of another worker may have exactly the sequence that the second one expects.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from callboard.bus.log.port import AppendRefused, Full, NoAnswer
from callboard.bus.nats.requests import Requests
from callboard.lib.quicker_way import QuickerWay

BATCH_MESSAGES_MAX = 500
"""Largest group commit; the server takes up to 1000 messages in a batch."""

SINGLES_MAX = 2
SINGLE_MESSAGES_MAX = 16
"""Up to this number of appends, with up to this number of messages in total, are published one by one: a batch costs
the server a staging file."""

FAILED_COSTS = 4
"""How much longer than its own time a fast batch takes that fails."""

MESSAGE_ID = "Nats-Msg-Id"
"""The header by which the server recognizes a message that is published again."""

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"

_UNHEARD = "_"
"""Begins the reply subjects of the messages of a fast batch but the last one, whose answer is sufficient."""

_REFUSED = frozenset({10071, 10164})
"""Error codes: wrong last sequence; on a replicated stream also another write with the same guard in flight."""

_NO_ROOM = frozenset({10002, 10023, 10047, 10077})
"""Error codes: the account's quota is used up; the server's is; no storage is available; the store failed to write."""


class OutgoingMessage(Struct):
    subject: str
    data: bytes
    headers: dict[str, str]
    reply: str = ""


class _PubAck(msgspec.Struct):
    seq: int = 0
    count: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


_decode_ack = msgspec.json.Decoder(_PubAck).decode


def guard_headers(after: int, filter: str) -> dict[str, str]:
    """Return headers with which the server stores a message only if ``after`` is the last sequence on the filter."""
    return {EXPECTED: str(after), EXPECTED_SUBJECT: filter}


def _read_ack(answer: bytes) -> _PubAck:
    try:
        ack = _decode_ack(answer)
    except msgspec.DecodeError as error:
        raise NoAnswer(f"the answer is no acknowledgement: {error}") from error
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
    *first, last = batched(messages, requests.name_batch())
    for message in first:
        await requests.send(message.subject, message.data, message.headers)
    return _read_ack(await requests.request(last.subject, last.data, last.headers, hurry=True)).seq


def batched(messages: Sequence[OutgoingMessage], name: str) -> Sequence[OutgoingMessage]:
    """Return messages with the headers of one atomic batch. A single message stays as it is."""
    if len(messages) == 1:
        return messages
    found = [
        OutgoingMessage(one.subject, one.data, {**one.headers, BATCH_ID: name, BATCH_SEQUENCE: str(i)})
        for i, one in enumerate(messages, 1)
    ]
    found[-1].headers["Nats-Batch-Commit"] = "1"
    return found


def fast_batched(messages: Sequence[OutgoingMessage], name: str, newest: int) -> Sequence[OutgoingMessage]:
    """Return messages of one run, of which the first has the run's guard, with the reply subjects of one fast batch.

    ``newest`` is the last sequence that the stream is known to have reached.
    """
    count = len(messages)
    found = [
        OutgoingMessage(
            one.subject,
            one.data,
            one.headers if i == 1 else {**one.headers, EXPECTED: str(newest + i - 1)},
            # After the name: messages for one acknowledgement, end at a gap, number, operation (0 begins, 1 adds).
            f"{_UNHEARD}.{name}.{count}.fail.{i}.{int(i > 1)}.$FI",
        )
        for i, one in enumerate(messages, 1)
    ]
    # The request's reply subject precedes this one. The operation 2 adds the message and ends the batch.
    found[-1].reply = f".{name}.{count}.fail.{count}.2.$FI"
    return found


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

    ``together`` means that all of them are to be stored or none. ``done`` is set to the sequence of the last message.
    It is set to None if their caller has to publish the messages of ``singly`` one by one.
    """

    __slots__ = ("done", "gone", "messages", "run", "singly", "together")

    def __init__(self, messages: Sequence[OutgoingMessage], *, together: bool) -> None:
        self.messages = messages
        self.together = together
        self.run = messages[0].headers[EXPECTED_SUBJECT]
        self.done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.gone = False
        self.singly: list[_Pending] = []

    def settle(self, sequence: int | None) -> None:
        if not self.done.done():
            self.done.set_result(sequence)

    def fail(self, error: AppendRefused | NoAnswer) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Commit(Struct):
    """A commit that waits for its answer."""

    batch: list[_Pending]
    messages: int
    either: bool
    """Whether a fast batch would be possible, if the server takes such batches."""
    fast: bool
    began: float


class Committer:
    """Merges the pending appends of many runs.

    One commit is in flight at a time. It is sent by the caller that finds none in flight, or by the answer to the one
    before, and its own answer wakes the callers. So a commit needs no task. If a batch fails, one of its callers
    publishes the messages one by one, because each run needs its own answer. ``batches`` says whether the server stages
    atomic batches in memory, ``fast`` whether it takes fast ones.
    """

    def __init__(self, requests: Requests, *, batches: bool = False, fast: bool = False) -> None:
        self._requests = requests
        self._batches = batches
        self._fast = fast
        self._pending: deque[_Pending] = deque()
        self._busy = False
        self._newest = 0
        self._undisturbed = False
        """Whether nobody else wrote to the stream between the last two commits."""
        self._quicker: defaultdict[int, QuickerWay] = defaultdict(QuickerWay)
        """By number of messages: whether a fast batch (``True``) is quicker than an atomic one."""

    async def put(self, messages: Sequence[OutgoingMessage], *, together: bool = False) -> int:
        """Publish messages of one run, alone or in one batch with those of others. Return and raise as `publish_chain`.

        With ``together``, all messages are stored or none of them, as by `publish_batch`.
        """
        await self._requests.prepare()
        pending = _Pending(messages, together=together)
        self._pending.append(pending)
        if not self._busy:
            self._begin()
        try:
            sequence = await pending.done
        except asyncio.CancelledError:
            # Messages that are in no batch yet were never published, and are not needed any longer.
            pending.gone = True
            self._hand_over(pending.singly)
            raise
        return sequence if sequence is not None else await self._publish_singly(pending)

    def _begin(self) -> None:
        """Send the next commit, if there is anything to commit."""
        batch = self._take_batch()
        self._busy = bool(batch)
        if not batch:
            return
        messages = batch[0].messages if len(batch) == 1 else [one for pending in batch for one in pending.messages]
        many = len(batch) > SINGLES_MAX or len(messages) > SINGLE_MESSAGES_MAX
        either = len(batch) == 1 and not batch[0].together and 1 < len(messages) <= SINGLE_MESSAGES_MAX
        fast = self._fast and self._undisturbed and either
        if fast and self._batches:
            fast = self._quicker[len(messages)].choose()
        if len(messages) > 1 and not (fast or many or self._batches):
            self._hand_over(batch)
            return
        name = self._requests.name_batch()
        posted = fast_batched(messages, name, self._newest) if fast else batched(messages, name)
        try:
            commit = _Commit(batch, len(messages), either, fast, began=perf_counter())
            self._requests.post(posted, partial(self._take_answer, commit))
        except Exception:
            # A caller publishes them one by one, and has the error of the library.
            self._hand_over(batch)

    def _take_answer(self, commit: _Commit, read: Callable[[], bytes]) -> None:
        """Wake the callers of a commit that was answered, and send the next one."""
        batch, took = commit.batch, perf_counter() - commit.began
        try:
            ack = _read_ack(read())
            if commit.fast and ack.count != commit.messages:
                raise NoAnswer("the server has stored a part of the fast batch")
        except (AppendRefused, NoAnswer) as error:
            self._undisturbed = False
            if commit.fast:
                # The messages are now published again.
                self._quicker[commit.messages].note(True, FAILED_COSTS * took)
            if len(batch) == 1 and len(batch[0].messages) == 1:
                batch[0].fail(error)
                self._begin()
            else:
                # The guard of one run failed, or the result is unknown. Published one by one, each run gets its answer.
                self._hand_over(batch)
            return
        last = ack.seq
        self._note_sequence(last, commit.messages)
        if commit.either:
            self._quicker[commit.messages].note(commit.fast, took)
        for pending in reversed(batch):
            pending.settle(last)
            last -= len(pending.messages)
        if len(batch) == 1:
            self._begin()
        else:
            # The callers that were woken are about to append again: let them join the next batch.
            asyncio.get_running_loop().call_soon(self._begin)

    def _note_sequence(self, last: int, messages: int) -> None:
        """Note the last sequence of a commit."""
        self._undisturbed = last == self._newest + messages
        self._newest = last

    def _take_batch(self) -> list[_Pending]:
        """Take the oldest appends, in order, up to one of a run that the batch already contains."""
        taken: list[_Pending] = []
        runs, room = set[str](), BATCH_MESSAGES_MAX
        while self._pending:
            pending = self._pending[0]
            if not pending.gone:
                if taken and (len(pending.messages) > room or pending.run in runs):
                    break
                taken.append(pending)
                runs.add(pending.run)
                room -= len(pending.messages)
            self._pending.popleft()
        return taken

    def _hand_over(self, batch: list[_Pending]) -> None:
        """Have one of the callers publish the messages of a batch one by one. Without a caller nobody needs them."""
        waiting = [pending for pending in batch if not pending.gone]
        if waiting:
            waiting[0].singly = waiting
            waiting[0].settle(None)
        elif batch:
            self._begin()

    async def _publish_singly(self, leader: _Pending) -> int:
        batch, leader.singly = leader.singly, []
        leader.done = asyncio.get_running_loop().create_future()
        try:
            # If this caller is cancelled, the others still need their answers.
            with anyio.CancelScope(shield=True):
                if len(batch) == 1:
                    await self._single(leader)
                else:
                    async with anyio.create_task_group() as tasks:
                        for pending in batch:
                            tasks.start_soon(self._single, pending)
        finally:
            # They need answers also if this fails unexpectedly. Answers that were already given stay.
            for other in batch[1:]:
                other.fail(NoAnswer("the commit failed"))
            self._begin()
        sequence = await leader.done
        assert sequence is not None
        return sequence

    async def _single(self, pending: _Pending) -> None:
        try:
            publish = publish_batch if pending.together else publish_chain
            last = await publish(self._requests, pending.messages)
            self._note_sequence(last, len(pending.messages))
            pending.settle(last)
        except (AppendRefused, NoAnswer) as error:
            pending.fail(error)
