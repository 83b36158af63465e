"""Membership: which workers are alive, and which of them reads which partition.

Every `BEAT_S` a worker publishes a heartbeat on a plain subject; a new worker says hello and is answered at once. The
owner of a partition is the live worker with the highest hash of (worker, partition). The workers' views may differ for
a moment. That is harmless, since the guard of the log decides which worker may write.

A worker whose process has ended is lost at once: its parent says so, or the others see it, if they run on the same
machine. Of any other worker only its silence tells.

A **guest** is a worker that joined only for the runs it started: it gets partitions only if all workers are guests.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from math import inf

import anyio
import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import OutboundBufferLimitError

from callboard.bus.events import FORMAT
from callboard.bus.nats.connection import RECONNECT_PAUSE_S
from callboard.bus.nats.requests import NO_RESPONDERS
from callboard.lib.processes import has_ended, own_process
from callboard.runtime.cluster.code_hosts import CodeHosts

log = structlog.get_logger(__name__)

STRANGERS_MAX = 100
"""How many other streams are remembered, so that each is logged only once."""

BEAT_S = 1.0
LOST_AFTER_S = 3.5
"""A worker without a heartbeat for this long is considered dead."""

HELLO_WAIT_S = 0.05
"""How long a new worker listens for others before it takes partitions, unless no other is connected."""

SETTLE_S = 0.2
"""How long a new worker waits for the answer of a worker that may still perform a run, before it claims the run."""

ALL_BACK_S = RECONNECT_PAUSE_S + 0.05
"""How soon after a restart of the server its earlier clients are connected again."""

SETTLE_GUEST_S = 0.6
"""How long a guest waits: that worker may be about to reconnect to a restarted server."""


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

    process: str = ""
    """Its process, if its system can name it (`callboard.lib.processes`)."""


def name_worker(pid: int, mark: str) -> str:
    """Return the name of the worker in a process of this host. No other worker has or had it, if nothing else has the
    ``mark``."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
    return f"{host}-{pid}-{mark}"


async def report_end(nc: Client, subject: str, worker: str, store: str) -> None:
    """Tell all workers that the process of a worker has ended. If that fails, they find it out later."""
    with suppress(NatsError):
        await nc.publish(subject, msgspec.json.encode(Beat(worker, "bye", store=store)))


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
        self._processes: dict[str, str] = {}
        self._leaving: set[str] = set()
        self._newer: set[str] = set()
        self._guest = guest
        self._guests = {worker} if guest else set[str]()
        self._word = "here"
        self.settled = anyio.Event()
        """Set when every live worker has had the time to answer."""

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

    async def run(
        self, settle_s: float = 0.0, alone_settle_s: float = inf, *, hello_wait_s: float = HELLO_WAIT_S
    ) -> None:
        """Send and receive heartbeats until cancelled, then say good-bye.

        Wait ``hello_wait_s`` for other workers, unless the server reports no subscriber. `settled` is set after
        ``settle_s``, or after ``alone_settle_s`` if the server reports no subscriber.
        """
        alone = await self._nobody_listens()
        subscription = await self._nc.subscribe(self._subject, cb=self._take)
        try:
            await self._say("hello")
            until = anyio.current_time() + settle_s
            with anyio.move_on_after(hello_wait_s):
                await alone.wait()
            self._changed()
            with anyio.CancelScope(deadline=until):
                await alone.wait()
                await anyio.sleep(alone_settle_s)
            self.settled.set()
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
        load, code = self._load(), self._hosts.mine()
        return Beat(self._worker, word, self._guest, load, self._store, code, FORMAT, own_process())

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
            if self._forget(beat.worker):
                self._changed()
            return
        known = beat.worker in self._heard
        if beat.guest:
            self._guests.add(beat.worker)
        if beat.word == "leaving" and beat.worker not in self._leaving:
            self._leaving.add(beat.worker)
            known = False
        self._heard[beat.worker] = anyio.current_time()
        self._processes[beat.worker] = beat.process
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
        silent = [worker for worker, heard in self._heard.items() if now - heard > LOST_AFTER_S]
        ended = [worker for worker, process in self._processes.items() if has_ended(process)]
        if [worker for worker in (*silent, *ended) if self._forget(worker)]:
            self._changed()

    def _forget(self, worker: str) -> bool:
        """Forget a worker; return whether it was known."""
        self._leaving.discard(worker)
        self._guests.discard(worker)
        self._newer.discard(worker)
        self._hosts.forget(worker)
        self._processes.pop(worker, None)
        return self._heard.pop(worker, None) is not None
