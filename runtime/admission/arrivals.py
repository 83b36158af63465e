"""Arrivals: finds the commands that the server has stored but the worker of their run has not received yet.

An elapsed deadline is recorded only after the messages that were stored before it. Such a message may still wait for
admission, or be routed but not delivered yet: after a time without workers, the alarm of a run is delivered before it.
"""

import datetime as dt

from callboard.bus.commands import TELLS
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import ack_floor, stored_at
from callboard.bus.subjects import RunRef, partition_of
from callboard.runtime.admission.command_routing import ADMISSION
from callboard.runtime.admission.decided import verdict_of_tell
from callboard.runtime.run.activation import ReceivedCommands


class StoredTells:
    """`callboard.runtime.run.activation.Arrivals`, read from the stream."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log

    async def earliest(self, ref: RunRef, heard: ReceivedCommands) -> dt.datetime | None:
        """Return the time at which the oldest undelivered message to a run was stored; None without one.

        :raises NoAnswer: if the log does not answer
        """
        # In this order, so that a message admitted in between is found among the commands.
        times = [await self._first_unadmitted_time(ref, heard), await self._first_undelivered_time(ref, heard)]
        return min((time for time in times if time is not None), default=None)

    async def _first_unadmitted_time(self, ref: RunRef, heard: ReceivedCommands) -> dt.datetime | None:
        """Return the time at which the first command without a verdict was stored."""
        filter = self._log.subjects.tells(ref)
        if await self._log.next_sequence(filter, heard.tells + 1) is None:
            return None
        # All commands up to there are admitted or refused. Later ones may be, too.
        heard.tells = max(heard.tells, await ack_floor(self._log.requests, self._log.stream, ADMISSION))
        while (tell := await self._log.next_message(filter, heard.tells + 1)) is not None:
            verb = tell.subject.rpartition(".")[2]
            if await verdict_of_tell(self._log, ref, verb, tell.sequence) is None:
                return stored_at({}, tell.time_ns)
            heard.tells = tell.sequence
        return None

    async def _first_undelivered_time(self, ref: RunRef, heard: ReceivedCommands) -> dt.datetime | None:
        """Return the time at which the first command that is routed but not delivered was stored."""
        filter = self._log.subjects.commands(partition_of(ref, self._log.partitions), ref)
        while (command := await self._log.next_message(filter, heard.commands + 1)) is not None:
            if command.subject.rpartition(".")[2] in TELLS:
                return stored_at(command.headers, command.time_ns)
            heard.note(command.sequence)
        return None
