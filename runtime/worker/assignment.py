"""Assignment: decides which queues a worker reads, and adjusts its share of the partitions when other workers change.

A guest reads no queues as long as other workers do; they pass on the messages for its runs.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
import structlog
from nats.aio.client import Client

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Delivery, Outbox, Puller, ensure_consumers, pending_acks, redeliver_now
from callboard.bus.subjects import RunRef, partition_of
from callboard.lib.processes import has_ended
from callboard.runtime.admission.command_routing import ADMISSION
from callboard.runtime.cluster.code_hosts import CodeHosts, owner
from callboard.runtime.cluster.membership import (
    SETTLE_GUEST_S,
    SETTLE_S,
    Load,
    Membership,
)

logger = structlog.get_logger(__name__)

_INBOX = -1
"""The number of the admission queue, which all workers read together, among the numbers of the partitions."""

Deliver = Callable[[Delivery], None]


class Assignment:
    """Pulls the queues of this worker: passes messages of partitions to ``deliver`` and all others to ``admit``."""

    def __init__(
        self,
        nc: Client,
        log: JetStreamLog,
        outbox: Outbox,
        worker: str,
        *,
        admit: Deliver,
        deliver: Deliver,
        ack_wait_s: float,
        room: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
        guest: bool = False,
        load: Callable[[], Load | None] = lambda: None,
        all_back_at: float = inf,
        code: Callable[[], Mapping[str, list[str]]] = dict,
    ) -> None:
        """``room`` waits until more messages may be admitted; ``load`` returns the load that this worker publishes.

        ``code`` returns the digests of this worker's code by entry point. ``all_back_at`` is the time on the event
        loop's clock by which every live worker has reconnected to the server, if that is known.
        """
        self._nc = nc
        self._log = log
        self._outbox = outbox
        self._worker = worker
        self._admit = admit
        self._room = room
        self._deliver = deliver
        self._ack_wait_s = ack_wait_s
        self._guest = guest
        self._all_back_at = all_back_at
        self._hosts = CodeHosts(worker, code)
        self._membership = Membership(
            nc,
            log.subjects.beat(),
            worker,
            self._workers_changed,
            guest=guest,
            load=self._load_with_partitions,
            store=log.store,
            hosts=self._hosts,
        )
        self._load = load
        self._tasks: anyio.abc.TaskGroup
        self._reading: dict[int, anyio.CancelScope] = {}
        self._pending_acks: dict[int, int] = {}
        self._changed = anyio.Event()
        self._leaving = False
        self._back = False
        self.ready = anyio.Event()

    @property
    def partitions(self) -> list[int]:
        """The partitions that this worker reads."""
        return sorted(queue for queue in self._reading if queue != _INBOX)

    def reads(self, ref: RunRef) -> bool:
        """Whether this worker reads the commands of a run."""
        return partition_of(ref, self._log.partitions) in self._reading

    def reader(self, ref: RunRef) -> str:
        """Return the other worker that reads the commands of a run; empty if this one does, or is about to."""
        sharing = self._membership.sharing(self._membership.live())
        found = owner(partition_of(ref, self._log.partitions), sharing)
        return "" if found == self._worker or self.reads(ref) else found

    def _load_with_partitions(self) -> Load | None:
        load = self._load()
        return msgspec.structs.replace(load, partitions=self.partitions) if load is not None else None

    # -- other workers ------------------------------------------------------------------------------------------------

    def others(self) -> set[str]:
        """The other workers that perform runs, including those that are about to leave."""
        return (self._membership.live() | self._membership.leaving()) - {self._worker}

    def leaving(self) -> set[str]:
        """The workers that take no further runs but still perform those that they have."""
        return self._membership.leaving()

    async def know(self, worker: str, process: str) -> bool:
        """Wait until it is known whether another worker, which may be about to reconnect, performs runs; return whether
        that took time, in which the run may have been claimed.

        ``process`` is its process, if known. If that has ended, there is nothing to wait for.
        """
        known = self._membership.settled.is_set() or worker == self._worker or worker in self.others()
        if known or has_ended(process):
            return False
        await self._membership.settled.wait()
        return True

    def guests(self) -> set[str]:
        """The other workers that keep the runs that they have taken."""
        return self._membership.guests() & self.others()

    def newer(self) -> set[str]:
        """The other workers of a newer version that accept work."""
        return self._membership.newer()

    # -- who has which code -------------------------------------------------------------------------------------------

    @property
    def code_differs(self) -> bool:
        """Whether another worker has code that this one does not have."""
        return self._hosts.differ

    def code_home(self, entry: str, digest: str) -> str:
        """Return the other worker that is to perform runs of an entry point; empty if this one is, or no worker is."""
        home = self._hosts.home(entry, digest, self._membership.live() - self._membership.guests())
        return "" if home == self._worker else home

    def had_last(self, entry: str) -> str:
        """Return the worker that had the code of an entry point last; empty if none is known."""
        return self._hosts.last(entry)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Create the consumers of the queues; count the unacknowledged deliveries of those that exist already.

        :raises NoAnswer: if JetStream does not answer or refuses
        """
        subjects, partitions = self._log.subjects, range(self._log.partitions)
        filters = {_durable(partition): list(subjects.partition(partition)) for partition in partitions}
        filters[ADMISSION] = list(subjects.inbound())
        held = await ensure_consumers(self._log.requests, self._log.stream, filters, self._ack_wait_s)
        self._pending_acks = {queue: held[_durable(queue)] for queue in (_INBOX, *partitions)}

    async def run(self) -> None:
        """Read the queues of this worker until cancelled."""
        with self._log.nc.back(self._note_reconnection):
            await self._run()

    async def _run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            if not self._guest:
                self._read(_INBOX, ADMISSION, self._admit)
            self._tasks.start_soon(self._follow_changes)
            back_in_s = self._all_back_at - anyio.current_time()
            times = settle_times(held=any(self._pending_acks.values()), guest=self._guest, back_in_s=back_in_s)
            await self._membership.run(*times)

    async def leave(self) -> None:
        """Stop reading and announce that to the other workers."""
        self._leaving = True
        await self._membership.leave()
        for scope in self._reading.values():
            scope.cancel()

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _workers_changed(self) -> None:
        self._changed.set()

    def _note_reconnection(self) -> None:
        self._back = True
        if self.ready.is_set():
            self._changed.set()

    async def _follow_changes(self) -> None:
        alive: set[str] = set()
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if self._leaving:
                return
            if self._back:
                self._back = False
                # A worker that has started in the meantime does not know this one until it receives a heartbeat.
                await self._membership.beat()
                await self._redeliver_own()
            # A worker that has just started derives the previous owners from the other workers.
            live, sharing = self._membership.live(), self._membership.sharing
            before, alive = alive or sharing(live - {self._worker}), sharing(live)
            there = live | self._membership.leaving()
            await self._readmit(before - there)
            self._share_admission(self._worker in alive)
            for partition in range(self._log.partitions):
                mine = owner(partition, alive) == self._worker
                if mine and partition not in self._reading:
                    predecessor = owner(partition, before) if before else None
                    # Deliveries that a lost worker has not acknowledged must not wait for the server's timeout.
                    await self._take_over(partition, predecessor is None or predecessor not in there)
                elif not mine and partition in self._reading:
                    self._reading.pop(partition).cancel()
            # The counts date from the start of this worker. At a later take-over they are unknown.
            self._pending_acks.clear()
            if self._membership.code_changed:
                # Runs that wait for code may be waiting for this worker's, or for another's that has just come.
                self._membership.code_changed = False
                await self._redeliver_own()
            self.ready.set()

    async def _redeliver_own(self) -> None:
        """Have all unacknowledged deliveries of this worker repeated, because some may be lost with the connection.

        The server cannot distinguish those from deliveries that this worker holds; repeating both is harmless. For the
        admission queue, one of the workers does this.
        """
        mine = [queue for queue in self._reading if queue != _INBOX or self._is_responsible()]
        async with anyio.create_task_group() as tasks:
            for queue in mine:
                tasks.start_soon(self._redeliver_pending, _durable(queue))

    async def _redeliver_pending(self, durable: str) -> None:
        try:
            if await pending_acks(self._log.requests, self._log.stream, durable):
                await redeliver_now(self._log.requests, self._log.stream, durable)
        except NoAnswer as error:
            logger.warning("deliveries lost with the connection are repeated later", consumer=durable, error=str(error))

    def _share_admission(self, mine: bool) -> None:
        if mine and _INBOX not in self._reading:
            self._read(_INBOX, ADMISSION, self._admit)
        elif not mine and _INBOX in self._reading:
            self._reading.pop(_INBOX).cancel()

    def _is_responsible(self) -> bool:
        """Whether this worker is responsible for redelivery from the admission queue, which all workers read."""
        return owner(_INBOX, self._membership.sharing(self._membership.live()) or {self._worker}) == self._worker

    async def _readmit(self, gone: set[str]) -> None:
        """Have the messages in admission at a lost worker redelivered: repeating is harmless, waiting is not."""
        alone = self._membership.live() == {self._worker} and not self.ready.is_set()
        if self._is_responsible() and (gone or (alone and self._pending_acks.pop(_INBOX, 0))):
            await self._redeliver(ADMISSION)

    async def _take_over(self, partition: int, orphaned: bool) -> None:
        # At the start of this worker, they may be those of one that was lost before this one could hear of it.
        if self._pending_acks.get(partition, orphaned):
            await self._redeliver(_durable(partition))
        self._read(partition, _durable(partition), self._deliver)

    async def _redeliver(self, durable: str) -> None:
        try:
            await redeliver_now(self._log.requests, self._log.stream, durable)
        except NoAnswer as error:
            logger.warning("deliveries held by a lost worker are repeated later", consumer=durable, error=str(error))

    def _read(self, queue: int, durable: str, deliver: Deliver) -> None:
        if self._leaving:
            # The worker began to leave during the take-over; it would only return every delivery.
            return
        puller = Puller(self._log.nc, self._log.stream, durable, deliver, self._outbox.send)
        scope = self._reading[queue] = anyio.CancelScope()
        run = partial(puller.run, self._room) if queue == _INBOX else puller.run
        self._tasks.start_soon(self._pull, run, scope)

    async def _pull(self, run: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        with scope:
            await run()


def _durable(queue: int) -> str:
    return ADMISSION if queue == _INBOX else f"partition-{queue}"


def settle_times(*, held: bool, guest: bool, back_in_s: float) -> tuple[float, float]:
    """Return how long a new worker waits before it claims runs that other workers may perform, and how long if no other
    worker is connected, in seconds.

    ``held`` means that commands are held by some worker that may be about to reconnect; in ``back_in_s`` seconds, every
    live worker has reconnected.
    """
    if not held:
        return 0.0, 0.0
    if guest:
        return SETTLE_GUEST_S, inf
    return SETTLE_S, max(0.0, back_in_s)
