"""The text of models' answers in a run while they are being given, each from its beginning.

Pieces of an answer are published as they come and stored nowhere. A client that begins to listen in the middle of one,
or misses a piece, asks the worker that calls the model for the text so far.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.actors.partial_answers import AskPartialAnswer, PartialAnswer
from callboard.bus.events import EffectCancelled, ModelCall, ModelResult, RunClaimed, payload_of
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.lib.concurrency import side_by_side
from callboard.lib.json_errors import JSON_ERRORS
from callboard.projections.trace.live_stream import Piece
from callboard.runtime.client.client import Client, unknown_run

PARTIAL_WAIT_S = 2.0
"""How long a worker may take to send what a model has said so far."""

ASKED_AT_ONCE = 16
"""How many answers are asked for at the same time."""


async def partial_answer(log: JetStreamLog, ref: RunRef, n: int) -> PartialAnswer | None:
    """Return what a model has said so far in the call that is event ``n`` of a run, or None if no worker has it.

    :raises UnknownRun: if the run does not exist
    """
    claim = await log.last_of_type(ref, RunClaimed.type)
    if claim is None:
        if await log.last(ref) is None:
            raise await unknown_run(log, ref)
        return None
    claimed = payload_of(claim.event) if claim.readable and not claim.encrypted else None
    if not isinstance(claimed, RunClaimed):
        return None
    asked = msgspec.json.encode(AskPartialAnswer(ref.tenant, ref.run, n))
    try:
        answer = await log.nc.request(log.subjects.worker(claimed.worker, "answer"), asked, timeout=PARTIAL_WAIT_S)
    except NatsError:
        # The worker has stopped, or its version does not know the request.
        return None
    return msgspec.json.decode(answer.data, type=PartialAnswer | None)


class Answers:
    """The answers of models in one run. Each piece is passed on once, in order, after all pieces before it."""

    def __init__(self, log: JetStreamLog, ref: RunRef, hear: Callable[[Piece], None], past: int) -> None:
        self._log = log
        self._ref = ref
        self._hear = hear
        self._past = past
        self._next: dict[int, tuple[int, int]] = {}
        """By call, the epoch of the worker that makes it, and the number of the piece that comes next."""
        self._asked: set[tuple[int, int]] = set()
        self._ended: set[int] = set()
        self._lock = anyio.Lock()

    async def take(self, message: Msg) -> None:
        """Take a message with a piece."""
        try:
            piece = msgspec.json.decode(message.data, type=Piece)
        except JSON_ERRORS:
            return  # from another program
        # Later pieces wait for the answer of the worker, which then is in order with them.
        async with self._lock:
            if piece.n in self._ended:
                return
            if piece.k > self._expected_index(piece) and (piece.n, piece.epoch) not in self._asked:
                self._asked.add((piece.n, piece.epoch))
                await self._catch_up(piece.n)
            epoch, _ = self._next.get(piece.n, (0, 0))
            if piece.epoch > epoch or (piece.epoch == epoch and piece.k >= self._expected_index(piece)):
                self._pass_on(piece)

    async def through(self, feed: AsyncIterator[Recorded]) -> AsyncIterator[Recorded]:
        """Yield the events of the run; when the past ones have been taken, ask for the answers that are in progress."""
        calls: dict[str, int] = {}
        is_past = True
        async for recorded in feed:
            yield recorded
            event = recorded.event
            if event.type == ModelCall.type:
                calls[event.key] = event.n
            elif event.type in (ModelResult.type, EffectCancelled.type):
                n = calls.pop(event.key, 0)
                self._ended.add(n)
                self._next.pop(n, None)
            if is_past and recorded.sequence >= self._past:
                is_past = False
                async with self._lock:
                    unheard = [n for n in calls.values() if n not in self._next]
                    await side_by_side(unheard, self._catch_up, ASKED_AT_ONCE)

    def _expected_index(self, piece: Piece) -> int:
        epoch, following = self._next.get(piece.n, (0, 0))
        return following if epoch == piece.epoch else 0

    async def _catch_up(self, n: int) -> None:
        found = await partial_answer(self._log, self._ref, n)
        if found is not None and (found.epoch, found.k) > self._next.get(n, (found.epoch, 0)):
            self._pass_on(Piece(n, found.epoch, 0, found.path, found.text, found.k, found.omitted))

    def _pass_on(self, piece: Piece) -> None:
        self._next[piece.n] = (piece.epoch, piece.following or piece.k + 1)
        self._hear(piece)


@asynccontextmanager
async def hear_answers(client: Client, ref: RunRef, hear: Callable[[Piece], None]) -> AsyncGenerator[Answers]:
    """Call ``hear`` with the pieces of the answers in a run for the length of the block. Pass the run's events through
    `Answers.through`, so that answers in progress are heard at once."""
    last = await client.log.last(ref)
    answers = Answers(client.log, ref, hear, last.sequence if last is not None else 0)
    subject = client.log.subjects.live(ref, None, "model.delta")
    subscription = await client.log.nc.subscribe(subject, cb=answers.take)
    try:
        yield answers
    finally:
        with anyio.CancelScope(shield=True):
            await subscription.unsubscribe()
