"""Children on JetStream: how a worker admits child runs, and stores an event and a command to another run as one."""

from callboard.bus import events as ev
from callboard.bus.commit import Message, guarded, publish_batch
from callboard.bus.events import Problem
from callboard.bus.jetstream import MARK, NUMBER, JetStreamLog
from callboard.bus.log import Entry
from callboard.bus.subjects import RunRef, partition_of
from callboard.runtime.admission import Admission
from callboard.runtime.letters import Letter


class JetStreamChildren:
    """`callboard.runtime.letters.Children` of one worker. A child is admitted by its parent's worker itself: nothing
    is gained by sending the start round through the queue, and its refusal is an answer instead of a message."""

    def __init__(self, log: JetStreamLog, admission: Admission) -> None:
        self._log = log
        self._admission = admission

    async def admit(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        return await self._admission.admit_child(child, message, parent)

    async def call(self, child: RunRef) -> None:
        await self._admission.call_child(child)

    async def put(self, ref: RunRef, entry: Entry, after: int, letter: Letter) -> int:
        subjects = self._log.subjects
        headers = {**guarded(after, subjects.run(ref)), MARK: entry.id, NUMBER: str(entry.n)}
        event = Message(subjects.event(ref, entry.definition, entry.type), entry.data, headers)
        # No id for the server to tell repetitions by: they are told by the guard, and an id it knows refuses the batch.
        partition = partition_of(letter.to, self._log.partitions)
        command = Message(subjects.command(partition, letter.to, letter.verb), letter.body, {})
        # The answer names the sequence of the batch's last message, which is the command; the event is the one before.
        return await publish_batch(self._log.requests, [event, command]) - 1
