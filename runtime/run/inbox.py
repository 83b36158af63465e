"""The inbox of an active run: the commands that have come, and which of them its log has recorded.

A command is acknowledged when the event that records it is, and acts once: its sequence is the event's cause (law 9).

Consumes: start, alarm, wake, usage, hold, release, cancel, kill, pause, resume, answer, signal
"""

from collections import deque
from collections.abc import Callable

import msgspec

from callboard.bus.events import Event
from callboard.runtime.run.activation import Activation, Command
from callboard.runtime.run.reactions import reactions

OF_THE_FAMILY = frozenset({"wake", "usage", "hold", "release"})
"""What its parent and its children say to a run."""

COMMANDS_WAITING_MAX = 1_000
"""Commands that wait until an active run looks at them; more are delivered again later."""


class Inbox:
    """The commands of one activation. Those still ``waiting`` when it has ended were not looked at."""

    def __init__(self) -> None:
        self.waiting: deque[Command] = deque()
        self._causes: set[int] = set()
        self._recording: dict[int, Command] = {}

    @property
    def full(self) -> bool:
        return len(self.waiting) >= COMMANDS_WAITING_MAX

    def know(self, cause: int) -> None:
        """Note that the log holds an event of the command with this sequence: it is not obeyed again."""
        self._causes.add(cause)

    def obey_next(self, active: Activation, heed: Callable[[Command], bool]) -> None:
        """Take the oldest waiting command, and number the events that it becomes, if any; ``heed`` takes those of the
        family, and says whether there is anything to it."""
        command = self.waiting.popleft()
        if command.verb in ("start", "alarm") or command.sequence in self._causes:
            # It was there to wake the run, or is recorded already.
            command.done()
        elif command.verb in OF_THE_FAMILY:
            if not _heeded(heed, command):
                # Nobody waits for that child any more, or it is no run's words.
                command.done()
        else:
            self._record(active, command)

    def _record(self, active: Activation, command: Command) -> None:
        event: Event | None = None
        found = reactions(active.stage, command.verb, active.runlog.command(command.body))
        for reaction in found:
            # A crash between two events of a command must not make it look done: only the last names it.
            cause = command.sequence if reaction is found[-1] else 0
            node = active.stage.waits.address_of(reaction.key)
            event = active.runlog.state(reaction.payload, key=reaction.key, cause=cause, node=node)
            if reaction.key:
                active.stage.ledger.numbered(reaction.key, event)
        assert event is not None
        self.recorded_as(command, event.n)

    def recorded_as(self, command: Command, n: int) -> None:
        """Event ``n``, on its way into the log, records a command."""
        self._causes.add(command.sequence)
        self._recording[n] = command

    def appended(self, event: Event) -> None:
        """An event is in the log: the command that it records is done with."""
        command = self._recording.pop(event.n, None)
        if command is not None:
            command.done()


def _heeded(heed: Callable[[Command], bool], command: Command) -> bool:
    try:
        return heed(command)
    except msgspec.DecodeError:
        return False
