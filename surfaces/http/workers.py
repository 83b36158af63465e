"""The list of live workers, from their heartbeats, and the number of messages that wait in the queues."""

from contextlib import suppress

import anyio
import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import list_consumers
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.command_routing import ADMISSION
from callboard.runtime.cluster.membership import BEAT_S, LOST_AFTER_S, Beat, Load

HEARING_S = BEAT_S + 0.5
"""Time after which every live worker has sent at least one beat."""

WORKERS_MAX = 1_000
"""Maximum number of workers in the list."""


class OneWorker(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A worker whose last beat is ``age_s`` seconds old. ``word`` is ``leaving`` if it accepts no further work."""

    name: str
    word: str
    guest: bool = False
    age_s: float
    load: Load | None = None


class Queue(Struct, frozen=True):
    """Numbers of waiting messages: those to be admitted, commands for runs, and commands that workers are handling."""

    starts: int
    commands: int
    held: int


class WorkerList(Struct, frozen=True):
    """Answer of ``workers``: live workers by name, the number of partitions, and the partitions without a worker."""

    workers: list[OneWorker]
    partitions: int
    unowned: list[int]
    queue: Queue


class Workers:
    """Listens to the beats of the workers of a log, from the first request on."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log
        self._heard: dict[str, tuple[Beat, float]] = {}
        self._since: float | None = None

    async def list_workers(self) -> WorkerList:
        """Return the live workers and the queues.

        :raises NoAnswer: if the log does not answer
        """
        workers = await self.live()
        read = {partition for one in workers if one.load is not None for partition in one.load.partitions}
        count = self._log.partitions
        unread = [partition for partition in range(count) if partition not in read]
        return WorkerList(workers, count, unread, await queue_of(self._log))

    async def live(self) -> list[OneWorker]:
        """Return the live workers."""
        if self._since is None:
            self._since = anyio.current_time()
            await self._log.nc.subscribe(self._log.subjects.beat(), cb=self._take)
        if (missing_s := self._since + HEARING_S - anyio.current_time()) > 0:
            await anyio.sleep(missing_s)
        now = anyio.current_time()
        self._heard = {name: one for name, one in self._heard.items() if now - one[1] <= LOST_AFTER_S}
        return [
            OneWorker(name=name, word=beat.word, guest=beat.guest, age_s=round(now - at, 3), load=beat.load)
            for name, (beat, at) in sorted(self._heard.items())
        ]

    async def _take(self, message: Msg) -> None:
        with suppress(*JSON_ERRORS):
            beat = msgspec.json.decode(message.data, type=Beat)
            if beat.store not in ("", self._log.store):
                return
            if beat.word == "bye":
                self._heard.pop(beat.worker, None)
            elif beat.worker in self._heard or len(self._heard) < WORKERS_MAX:
                self._heard[beat.worker] = beat, anyio.current_time()


async def queue_of(log: JetStreamLog) -> Queue:
    """Return what waits in the queues.

    :raises NoAnswer: if the log does not answer
    """
    found = await list_consumers(log.requests, log.stream)
    starts = sum(one["num_pending"] for one in found if one["name"] == ADMISSION)
    commands = [one for one in found if one["name"].startswith("partition-")]
    return Queue(starts, sum(one["num_pending"] for one in commands), sum(one["num_ack_pending"] for one in commands))
