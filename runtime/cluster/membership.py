"""Membership: which workers are alive, and which of them reads which partition.

Every `BEAT_S` a worker publishes a heartbeat on a plain subject; a new worker says hello and is answered at once. The
owner of a partition is the live worker with the highest hash of (worker, partition). The workers' views may differ for
a moment. That is harmless, since the guard of the log decides which worker may write.

A **guest** is a worker that joined only for the runs it started: it gets partitions only if all workers are guests.
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf

import anyio
import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import OutboundBufferLimitError

from callboard.bus.events import FORMAT
from callboard.bus.nats.connection import RECONNECT_PAUSE_S
from callboard.bus.nats.requests import NO_RESPONDERS
from callboard.runtime.cluster.code_hosts import CodeHosts

log = structlog.get_logger(__name__)

STRANGERS_MAX = 100
"""How many other streams are remembered, so that each is logged only once."""

BEAT_S = 1.0
LOST_AFTER_S = 3.5
"""A worker without a heartbeat for this long is considered dead."""

HELLO_WAIT_S = 0.05
HELLO_WAIT_BUSY_S = 0.2
"""How long a new worker listens for others before it takes partitions: longer if another worker holds commands, which
the new one would take from it."""

ALL_BACK_S = RECONNECT_PAUSE_S + 0.05
"""How soon after a restart of the server its earlier clients are connected again."""

HELLO_WAIT_GUEST_S = 0.6
"""How long a guest listens in that case: the holder may be about to reconnect to a restarted server."""


class Load(msgspec.Struct, frozen=True):
    """The load of a worker: its runs and running effects, each with its limit, and the partitions that it reads.

    ``store`` is the fill level of the store (1 is full), None if unknown. ``has_model`` says whether the worker has a
    default model for starts that name none.
    """

    runs: int
    runs_max: int
    effects: int
    effects_max: int
    partitions: list[int] = []
    store: float | None = None
    has_model: bool = False


class Beat(msgspec.Struct, frozen=True):
    worker: str
    word: str
    """``hello``, ``here``, ``leaving`` or ``bye``."""

    guest: bool = False
    load: Load | None = None
    """Set by workers that perform runs."""

    store: str = ""
    """Identifies the stream that the worker works on."""

    code: dict[str, list[str]] = {}
    """The entry points of the code that it was given, with their `short_code` digests."""

    format: int = 0
    """The number of the vocabulary that it knows (`callboard.bus.events.FORMAT`)."""


def _nothing() -> None:
    return None


class Membership:
    """This worker's view of all workers."""

    def __init__(
        self,
        nc: Client,
        subject: str,
        worker: str,
        changed: Callable[[], None],
        *,
        guest: bool = False,
        load: Callable[[], Load | None] = _nothing,
        store: str = "",
        hosts: CodeHosts | None = None,
    ) -> None:
        """``store`` identifies the stream of this worker; workers on another stream are not members."""
        self._hosts = hosts or CodeHosts(worker, dict)
        self.code_changed = False
        """Whether another worker has reported other code, or another version, than before. The reader resets it."""
        self._nc = nc
        self._store = store
        self._strangers: set[str] = set()
        self._subject = subject
        self._worker = worker
        self._changed = changed
        self._load = load
        self._heard: dict[str, float] = {}
        self._leaving: set[str] = set()
        self._newer: set[str] = set()
        self._guest = guest
        self._guests = {worker} if guest else set[str]()
        self._word = "here"

    def live(self) -> set[str]:
        """The live workers that accept work, this one included."""
        return {self._worker, *self._heard} - self._leaving

    def sharing(self, workers: set[str]) -> set[str]:
        """The workers that share the partitions: guests only if all are guests."""
        return workers - self._guests or workers

    def guests(self) -> set[str]:
        """All known guests."""
        return self._guests

    def newer(self) -> set[str]:
        """The other workers that know a newer vocabulary and accept work."""
        return self._newer & self.live()

    def leaving(self) -> set[str]:
        """The workers that accept no more work and finish the runs they have."""
        return self._leaving & self._heard.keys()

    async def leave(self) -> None:
        """Give up all partitions; other workers forward the commands of this worker's remaining runs."""
        self._word = "leaving"
        await self._say("leaving")

    async def run(self, hello_wait_s: float = HELLO_WAIT_S, alone_wait_s: float = inf) -> None:
        """Send and receive heartbeats until cancelled, then say good-bye.

        Wait ``hello_wait_s`` for other workers, or ``alone_wait_s`` if the server reports no subscriber.
        """
        alone = await self._nobody_listens() if alone_wait_s < hello_wait_s else anyio.Event()
        subscription = await self._nc.subscribe(self._subject, cb=self._take)
        try:
            await self._say("hello")
            with anyio.move_on_after(hello_wait_s):
                await alone.wait()
                await anyio.sleep(alone_wait_s)
            self._changed()
            while True:
                await anyio.sleep(BEAT_S)
                await self.beat()
                if self._nc.is_connected:
                    self._forget_the_lost()
                else:
                    # Without a connection no heartbeat arrives, which does not mean that the workers are lost.
                    self._heard = dict.fromkeys(self._heard, anyio.current_time())
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                await self._say("bye")
                await subscription.unsubscribe()

    async def _nobody_listens(self) -> anyio.Event:
        """Say hello before subscribing; the returned event is set when the server reports that no worker heard it."""
        alone = anyio.Event()

        async def note_status(message: Msg) -> None:
            if message.headers is not None and message.headers.get("Status") == NO_RESPONDERS:
                alone.set()

        inbox = self._nc.new_inbox()
        answers = await self._nc.subscribe(inbox, cb=note_status)
        await answers.unsubscribe(limit=1)
        await self._nc.publish(self._subject, msgspec.json.encode(self._beat("hello")), reply=inbox)
        return alone

    async def beat(self) -> None:
        """Publish a heartbeat."""
        await self._say(self._word)

    async def _say(self, word: str) -> None:
        # The server is away and the client's buffer is full: the heartbeat is lost, which must not end the worker.
        with suppress(OutboundBufferLimitError):
            await self._nc.publish(self._subject, msgspec.json.encode(self._beat(word)))

    def _beat(self, word: str) -> Beat:
        return Beat(self._worker, word, self._guest, self._load(), self._store, self._hosts.mine(), FORMAT)

    async def _take(self, message: Msg) -> None:
        beat = msgspec.json.decode(message.data, type=Beat)
        if beat.worker == self._worker:
            return
        if self._is_strange(beat):
            if beat.word == "hello":
                # So that it reports this worker as well.
                await self._say(self._word)
            return
        if beat.word == "bye":
            self._leaving.discard(beat.worker)
            self._guests.discard(beat.worker)
            self._newer.discard(beat.worker)
            self._hosts.forget(beat.worker)
            if self._heard.pop(beat.worker, None) is not None:
                self._changed()
            return
        known = beat.worker in self._heard
        if beat.guest:
            self._guests.add(beat.worker)
        if beat.word == "leaving" and beat.worker not in self._leaving:
            self._leaving.add(beat.worker)
            known = False
        self._heard[beat.worker] = anyio.current_time()
        is_newer = beat.format > FORMAT and beat.worker not in self._newer
        if is_newer:
            self._newer.add(beat.worker)
        if self._hosts.report(beat.worker, beat.code) or is_newer:
            self.code_changed = True
            known = False
        if beat.word == "hello":
            await self._say(self._word)
        if not known:
            self._changed()

    def _is_strange(self, beat: Beat) -> bool:
        """Whether a worker works on another stream, such as one in another JetStream domain of the same account.

        Both streams store all published messages, so runs are performed twice. That worker must not be a member: no
        worker would read the partitions of this stream that are assigned to it.
        """
        if not (beat.store and self._store) or beat.store == self._store:
            return False
        if beat.store not in self._strangers and len(self._strangers) < STRANGERS_MAX:
            self._strangers.add(beat.store)
            remedy = "Give all workers the same JetStream domain (nats_domain), or each domain a different prefix."
            log.error(
                "a worker with the same prefix uses another stream: runs may be performed twice",
                worker=beat.worker, subject=self._subject, store=self._store, other_store=beat.store, remedy=remedy,
            )  # fmt: skip
        return True

    def _forget_the_lost(self) -> None:
        now = anyio.current_time()
        lost = [worker for worker, heard in self._heard.items() if now - heard > LOST_AFTER_S]
        for worker in lost:
            del self._heard[worker]
            self._leaving.discard(worker)
            self._guests.discard(worker)
            self._newer.discard(worker)
            self._hosts.forget(worker)
        if lost:
            self._changed()
